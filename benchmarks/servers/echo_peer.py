"""The same echo environment for a released server of the standard, started with that server's own `run`.

BENCH_PEER=openreward.environments python echo_peer.py 19101    # needs: pip install openreward
BENCH_PEER=ors python echo_peer.py 19102                        # needs: pip install ors-sdk

Or hosted by ours: BENCH_PEER=openreward.environments orsay serve echo_peer:EchoEnvironment
"""

import asyncio
import importlib
import os
import sys
import time
from typing import Any

from pydantic import BaseModel

peer: Any = importlib.import_module(os.environ["BENCH_PEER"])
tool: Any = peer.tool


class Text(BaseModel):
    text: str


class Seconds(BaseModel):
    seconds: float


def answer(text: str) -> Any:
    return peer.ToolOutput(blocks=[peer.TextBlock(text=text)], reward=0.0, finished=False)


class EchoEnvironment(peer.Environment):  # type: ignore[misc]  # which package it is from is known at run time
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{"id": i, "text": f"say hello {i}"} for i in range(10)]

    async def get_prompt(self) -> list[Any]:
        return [peer.TextBlock(text=self.task_spec["text"])]

    @tool  # type: ignore[untyped-decorator]  # as above, and below
    async def echo(self, args: Text) -> peer.ToolOutput:
        """Echo the text."""
        return answer(args.text)

    @tool  # type: ignore[untyped-decorator]
    def echo_sync(self, args: Text) -> peer.ToolOutput:
        """Echo the text, from a plain function."""
        return answer(args.text)

    @tool  # type: ignore[untyped-decorator]
    async def slow(self, args: Seconds) -> peer.ToolOutput:
        """Wait without holding a thread."""
        await asyncio.sleep(args.seconds)
        return answer("ok")

    @tool  # type: ignore[untyped-decorator]
    def block(self, args: Seconds) -> peer.ToolOutput:
        """Wait, holding a thread."""
        time.sleep(args.seconds)
        return answer("ok")


if __name__ == "__main__":
    peer.Server([EchoEnvironment]).run(host="127.0.0.1", port=int(sys.argv[1]))
