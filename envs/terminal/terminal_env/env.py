"""The terminal environment: a task of a shell in a sandbox, graded by what holds in the end.

The reward is 1.0 or 0.0, given once, at ``submit``. Nothing in the sandbox knows what is checked; see
``checks``.
"""

from __future__ import annotations

import os
import posixpath
from typing import ClassVar

from orsay import Environment, JSONObject, Sandbox, TextBlock, ToolOutput
from orsay.toolsets import Bash, Submit

from .checks import WORK, Started, started
from .problem import Problem
from .tasks import SPLITS, own_task, problem_of

__all__ = ["TerminalEnvironment", "WorkBash", "prepare", "solved"]

IMAGE = "orsay-terminal"
"""Made by ``docker build -t orsay-terminal image``; the variable TERMINAL_IMAGE names another one."""


class WorkBash(Bash):
    """The tool ``bash``; commands begin in /work."""

    folder = WORK
    time_limit_s = 120


class TerminalEnvironment(Environment):
    """Do a task with a shell: files, text, processes, git, archives, sqlite, logs or permissions."""

    toolsets = (WorkBash, Submit)
    splits: ClassVar = SPLITS
    setup_time_limit_s = 900  # a full server has sandboxes wait

    def __init__(self, task_spec: JSONObject | None = None, secrets: dict[str, str] | None = None) -> None:
        """Raises ValueError for a task that was not made here."""
        super().__init__(task_spec, secrets)
        self.own = own_task(self.task_spec)
        self.problem = problem_of(self.own)
        self._over = False
        self.image = os.environ.get("TERMINAL_IMAGE", IMAGE)

    async def setup(self) -> None:
        self.box = await self.sandbox(image=self.image, memory="512m", network="none", processes=256)
        self._processes = await prepare(self.box, self.problem)

    def prompt(self) -> str:
        return (
            f"Task {self.own['id']}.\n\n{self.problem.prompt}\n\n"
            f"You work in {WORK} on a Linux machine without a network, as root, with the tool `bash`: each"
            " command is"
            f" a shell of its own that begins in {WORK}, and relative paths above are below it. Call"
            " `submit` when"
            " you are done. There is one attempt, and the result must be right in all parts."
        )

    async def grade(self) -> ToolOutput:
        if self._over:
            return ToolOutput(blocks=[TextBlock(text="There was one attempt.")], finished=True)
        self._over = True
        won = await solved(self.box, self.problem, self._processes)
        text = "The task is done." if won else "The task is not done as asked."
        return ToolOutput(blocks=[TextBlock(text=text)], reward=float(won), finished=True)


async def prepare(box: Sandbox, problem: Problem) -> dict[str, Started]:
    """Put a problem into a fresh sandbox; the processes that its setup started, by name."""
    await box.check(f"mkdir -p {WORK}")
    for path, content in problem.files.items():
        await box.write(posixpath.join(WORK, path), content)
    said = await box.check(problem.setup, cwd=WORK, timeout_s=120) if problem.setup else ""
    pairs = [line.split() for line in said.splitlines()]
    return {name: await started(box, int(pid)) for name, pid in pairs}


async def solved(box: Sandbox, problem: Problem, processes: dict[str, Started]) -> bool:
    """True where all checks of the problem hold. Raises SandboxError."""
    for check in problem.checks:
        try:
            if not await check.holds(box, processes):
                return False
        except OSError:  # what should be there is not, or is something else
            return False
    return True
