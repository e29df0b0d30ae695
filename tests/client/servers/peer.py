"""Environments for the client's tests on a released server: ``python peer.py openreward|ors-sdk``.

Run by the interpreter of that release. Prints its URL once the socket listens.
"""

# No postponed annotations here: the released packages read them as objects.

import asyncio
import importlib
import json
import socket
import sys

import uvicorn
from pydantic import BaseModel

package = {"openreward": "openreward.environments", "ors-sdk": "ors"}[sys.argv[1]]
m = importlib.import_module(package)
tool, ToolOutput, TextBlock = m.tool, m.ToolOutput, m.TextBlock
terminal = getattr(m, "terminal", None)
can_score = hasattr(m, "GroupScore")


class Text(BaseModel):
    text: str


class Number(BaseModel):
    number: float


def said(text, reward=None, finished=False):
    return ToolOutput(blocks=[TextBlock(text=text)], reward=reward, finished=finished)


class Peer(m.Environment):
    """Everything the client looks at."""

    def __init__(self, task_spec={}, secrets={}):
        super().__init__(task_spec=task_spec, secrets=secrets)
        self.secrets = dict(secrets)
        self.count = 0

    @classmethod
    def list_splits(cls):
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split):
        return [{"id": i} for i in range(450 if split == "train" else 3)]

    async def setup(self):
        await asyncio.sleep(self.task_spec.get("setup_s", 0))
        if self.task_spec.get("setup_fails"):
            raise RuntimeError("no setup today")

    async def get_prompt(self):
        return [TextBlock(text=f"task {self.task_spec.get('id')}")]

    @tool
    async def add(self, args: Number) -> ToolOutput:
        """Add to the count; over at 3."""
        self.count += args.number
        return said(str(self.count), reward=args.number, finished=self.count >= 3)

    @tool
    async def boom(self) -> ToolOutput:
        """Raise."""
        raise RuntimeError("boom, it said")

    @tool
    async def echo(self, args: Text) -> ToolOutput:
        """Echo."""
        return said(args.text)

    @tool
    async def slow(self, args: Number) -> ToolOutput:
        """Count after a while."""
        self.count += 1
        await asyncio.sleep(args.number)
        return said(str(self.count))

    @tool
    async def spaces(self, args: Number) -> ToolOutput:
        """Many spaces."""
        return said(" " * int(args.number))

    @tool
    async def whoami(self) -> ToolOutput:
        """The secrets."""
        secrets = {name: value for name, value in self.secrets.items() if value}
        return said(json.dumps(secrets))

    if terminal is not None:

        @terminal
        @tool
        async def answer(self, args: Text) -> ToolOutput:
            """The last word."""
            return said(f"answered {args.text}", reward=1.0, finished=True)

    if can_score:

        async def score_group(self, candidates):
            return [float(len(candidate.messages)) for candidate in candidates]


class Second(m.Environment):
    """Scores nothing."""

    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{"id": "second"}]

    async def get_prompt(self):
        return [TextBlock(text="second")]

    @tool
    async def nothing(self) -> ToolOutput:
        """Nothing."""
        return said("")


if __name__ == "__main__":
    server = m.Server([Peer, Second])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(server.app, log_level="warning", timeout_keep_alive=60)
    uvicorn.Server(config).run(sockets=[listener])
