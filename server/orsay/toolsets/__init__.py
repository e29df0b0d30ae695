"""Tools of a model that works in a sandbox: list the classes in ``toolsets`` of an environment.

class Repair(Environment):
    toolsets = (Bash, Files, Submit)

    async def setup(self) -> None:
        self.box = await self.sandbox(files={"/work/main.py": self.task["code"]})

    async def grade(self) -> float:
        result = await self.box.grade("python3 /tests/run.py", artifacts=["/work"], files=TESTS)
        return float(result.ok)
"""

from .files import Files
from .shell import Bash, Shell
from .submit import Submit

__all__ = ["Bash", "Files", "Shell", "Submit"]
