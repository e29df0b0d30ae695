"""Repair a program: the model works in one sandbox, and its file is graded in another."""

from orsay import Environment
from orsay.toolsets import Bash, Files, Submit

TESTS = """\
import subprocess, sys
for numbers, total in (("1 2 3", "6"), ("", "0"), ("-4 9", "5")):
    done = subprocess.run([sys.executable, "/work/total.py"], input=numbers, capture_output=True, text=True)
    assert done.stdout.strip() == total, numbers
"""


class Repair(Environment):
    """A program adds up numbers, and does so wrongly."""

    toolsets = (Bash, Files, Submit)
    splits = {"train": [{"code": "print(sum(map(int, input().split()[1:])))\n"}]}

    async def setup(self) -> None:
        files = {"/work/total.py": self.task["code"]}
        self.box = await self.sandbox(image="python:3.11-slim", memory="512m", network="none", files=files)

    def prompt(self) -> str:
        return (
            "The program /work/total.py should print the sum of the numbers on its standard input, of which"
            " there may be none. Repair it, then submit."
        )

    async def grade(self) -> float:
        result = await self.box.grade(
            "python3 /tests/run.py",
            artifacts=["/work/total.py"],
            files={"/tests/run.py": TESTS},
            timeout_s=30,
        )
        return float(result.ok)
