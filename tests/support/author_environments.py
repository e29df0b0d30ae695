"""Environments of ``orsay`` whose tools run code in sandboxes."""

from __future__ import annotations

import json
from pathlib import Path

from orsay import Environment, Sandbox, ToolOutput, Toolset, sandbox, tool
from orsay.toolsets import Bash, Files, Submit


class Runner(Toolset):
    @tool
    async def shell(self, command: str) -> ToolOutput:
        """Run a command."""
        result = await self.sandbox.run(command, timeout_s=20)
        return ToolOutput(blocks=[result.output], metadata={"code": result.return_code})


class Bench(Environment):
    """A sandbox made in setup, a toolset that finds it, and an isolated grader."""

    toolsets = (Runner,)
    splits = {
        "train": [
            {"answer": "42"},
            {"image": "no/such-image:1"},
            {"answer": "", "network": "moon"},
            {"network": ["pypi.org"]},
        ]
    }

    async def setup(self) -> None:
        self.box: Sandbox = await self.sandbox(
            image=self.task.get("image"),
            cpus=0.5,
            memory="256m",
            network=self.task.get("network", "none"),
            files={"/work/in/numbers": "20\n22\n", "/work/in/bytes": bytes(range(256))},
            env={"GREETING": "hello"},
        )

    def prompt(self) -> str:
        return "Write the sum of /work/in/numbers to /work/answer."

    @tool
    async def many(self) -> ToolOutput:
        """Run several at once; one is killed by its limit."""
        slow = await self.box.run("echo early; sleep 30", timeout_s=1)
        told = {
            "slow": [slow.output, slow.return_code, slow.timed_out],
            "greeting": (await self.box.run("echo $GREETING; pwd", cwd="/work")).output,
            "stdin": (await self.box.run(["cat"], stdin="typed")).output,
            "bytes": (await self.box.read("/work/in/bytes")) == bytes(range(256)),
            "names": [each.name for each in await self.box.list("/work/in")],
            "id": self.box.id,
        }
        return ToolOutput(blocks=[json.dumps(told)])

    @tool
    async def another(self) -> ToolOutput:
        """A second sandbox, which is not closed."""
        other = await sandbox(files={"/mine": "x"})
        return ToolOutput(blocks=[other.id])

    @tool
    def blocking(self) -> ToolOutput:
        """A sandbox of code that is not async."""
        with sandbox(env={"A": "b"}) as box:
            box.write("/f", b"\0\xff")
            return ToolOutput(blocks=[box.run("echo $A; wc -c < /f").output + box.id])

    @tool(time_limit_s=2)
    def stuck(self, note: str) -> ToolOutput:
        """Run a command for longer than the tool may; the sandbox's id is written to a file."""
        with sandbox() as box:
            Path(note).write_text(box.id)
            return ToolOutput(blocks=[box.run("sleep 600", timeout_s=None).output])

    @tool
    async def fork(self) -> ToolOutput:
        """A second sandbox with the same files."""
        await self.box.write("/work/mine", "kept")
        other = await self.box.fork()
        return ToolOutput(blocks=[await other.read_text("/work/mine")])

    @tool
    async def lose(self) -> ToolOutput:
        """Use a sandbox that has ended."""
        await self.box.close()
        return ToolOutput(blocks=[(await self.box.run("true")).output])

    @tool
    async def submit(self) -> ToolOutput:
        """Grade the answer."""
        result = await self.box.grade(
            "python3 /grader/grade.py", artifacts=["/work/answer"], files={"/grader/grade.py": _GRADER}
        )
        return ToolOutput(blocks=[result.output], reward=float(result.ok), finished=True)


class Workshop(Environment):
    """The toolsets that come with the package."""

    toolsets = (Bash, Files, Submit)
    splits = {"train": [{}]}

    async def setup(self) -> None:
        await self.sandbox(files={"/work/main.py": "print('one')\nprint('two')\n"})

    def prompt(self) -> str:
        return "Repair /work/main.py."

    async def grade(self) -> float:
        assert self.sandbox.first is not None
        result = await self.sandbox.first.grade("python3 /work/main.py", artifacts=["/work"])
        return float(result.output == "ONE\nzero\ntwo\n")


class Foreign(Environment):
    """A toolset of ``openreward``, found by name."""

    splits = {"train": [{}]}

    async def setup(self) -> None:
        await self.sandbox(files={"/work/a.txt": "alpha"})

    def prompt(self) -> str:
        return "Look around."

    @tool
    def nothing(self) -> ToolOutput:
        """Do nothing."""
        return ToolOutput(blocks=[])


_GRADER = """
import os, sys
sys.exit(os.path.exists("/work/in") or open("/work/answer").read().strip() != "42")
"""
