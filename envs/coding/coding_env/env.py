"""The coding environment: a function or a small program, written in a sandbox and graded in another one.

The reward comes with ``submit``: 1.0 if the solution is right for every hidden input, else 0.0.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from orsay import Environment, JSONObject, Sandbox, TextBlock, ToolOutput, tool
from orsay.toolsets import Bash, Files, Submit

from .cases import examples, hidden
from .grading import LIMITS, Job, commands, run_jobs, source_of
from .languages import LANGUAGES, PLAIN, WORK
from .problem import Instance
from .tasks import Tasks, instance_of

__all__ = ["CCodingEnvironment", "CodingEnvironment"]

_DRIVER = "/opt/coding/driver.py"  # in the model's sandbox, for the examples
_LARGEST_SOURCE = 200_000
_MOST_SHOWN = 2_000


class _Bash(Bash):
    """The tool ``bash``, in the folder of the solution."""

    folder: ClassVar[str] = WORK
    time_limit_s: ClassVar[float] = 60


class _Files(Files):
    """The tools for files, in the folder of the solution."""

    folder: ClassVar[str] = WORK


class CodingEnvironment(Environment):
    """Write a function or a small program; hidden inputs decide whether it is right."""

    image: ClassVar[str] = os.environ.get("CODING_IMAGE", "python:3.11-slim")
    """Image of both sandboxes. It has Python, which runs the solutions of the other languages too."""

    languages: ClassVar[Sequence[str]] = PLAIN

    partial: ClassVar[bool] = False
    """The reward is the share of the hidden inputs that pass, and not 1.0 or 0.0."""

    toolsets: ClassVar[Sequence[type]] = (_Bash, _Files, Submit)

    splits: ClassVar[Mapping[str, Tasks]] = {split: Tasks(split, PLAIN) for split in ("train", "test")}

    box: Sandbox

    def __init__(self, task_spec: JSONObject | None = None, secrets: Mapping[str, str] | None = None) -> None:
        """Raises ValueError for a task that was not made here."""
        super().__init__(task_spec, secrets)
        tasks = self.splits.get(str(self.task_spec.get("split")))
        if tasks is None or not tasks.own(self.task_spec):
            raise ValueError("not a task of the coding environment; take one from its splits by index")
        self._instance: Instance = instance_of(self.task_spec)
        self._examples: list[Any] = examples(self._instance, str(self.task_spec["id"]))
        self._over = False

    async def setup(self) -> None:
        """Raises RuntimeError where the image lacks the language of the task."""
        language = LANGUAGES[self._instance.language]
        self.box = await self.sandbox(
            image=self.image,
            memory="1g",
            network="none",
            files={f"{WORK}/examples.txt": self._shown_examples(), _DRIVER: source_of("driver")},
            env={"LC_ALL": "C"},
        )
        found = await self.box.run(f"command -v {language.needs}", timeout_s=30)
        if not found.ok:
            raise RuntimeError(
                f"the image {self.image} has no {language.needs}: set CODING_IMAGE to one that has"
            )

    def prompt(self) -> str:
        instance, language = self._instance, LANGUAGES[self._instance.language]
        if instance.problem.form == "function":
            what = (
                f"Write it as the Python function `{instance.function}{instance.problem.signature}` in the "
                f"file `{language.path}`. Arguments and result are values of JSON: lists, not tuples."
            )
        else:
            build, run = commands(instance, language.path)
            how = " && ".join(" ".join(words) for words in (build, run) if words)
            what = (
                f"Write it as a program in {language.title}, in the file `{language.path}`, which is run by "
                f"`{how}`. It reads standard input, writes to standard output, and ends with exit code 0. "
                "White space at the end of lines and of the output does not count."
            )
        return (
            f"{instance.text()}\n\n{what}\n\n{self._shown_examples()}\n"
            "`run_examples` runs your file on these examples. `submit` ends the task: your file alone is run "
            "on hidden inputs of the same kind, without a network, with "
            f"{LIMITS['cpu_s']} seconds of CPU time for each, and must be right for all of them."
        )

    def _shown_examples(self) -> str:
        parts = []
        for number, value in enumerate(self._examples, 1):
            given, expected = self._instance.stdin(value), self._instance.expected(value)
            if self._instance.problem.form == "function":
                arguments = ", ".join(repr(each) for each in value)
                parts.append(
                    f"Example {number}: {self._instance.function}({arguments}) returns {expected!r}\n"
                )
            else:
                parts.append(f"Example {number}, input:\n{given}Example {number}, output:\n{expected}")
        return "\n".join(parts)

    @tool
    async def run_examples(self) -> str:
        """Run the solution on the examples of the task, and compare."""
        language = LANGUAGES[self._instance.language]
        build, run = commands(self._instance, language.path, driver=_DRIVER)
        if not await self.box.exists(language.path):
            return f"There is no {language.path}."
        if build:
            built = await self.box.run(build, cwd=WORK, timeout_s=LIMITS["build_s"], max_bytes=_MOST_SHOWN)
            if not built.ok:
                return f"It cannot be built (exit code {built.return_code}):\n{built.output}"
        lines = []
        for number, value in enumerate(self._examples, 1):
            done = await self.box.run(
                ["bash", "-c", 'exec "$@" 2>/tmp/stderr', "bash", *run],
                cwd=WORK,
                stdin=self._instance.stdin(value),
                timeout_s=LIMITS["wall_s"],
                max_bytes=int(LIMITS["output_bytes"]),
            )
            if done.ok and self._instance.accepts(value, done.raw):
                lines.append(f"Example {number}: right.")
                continue
            said = await self.box.run(["head", "-c", str(_MOST_SHOWN), "/tmp/stderr"], timeout_s=10)
            end = "over the time limit" if done.timed_out else f"exit code {done.return_code}"
            lines.append(
                f"Example {number}: not right ({end}). Standard output:\n{done.output[:_MOST_SHOWN]}\n"
                f"Standard error:\n{said.output}"
            )
        return "\n".join(lines)

    async def grade(self) -> ToolOutput:
        """Called by the tool ``submit``."""
        if self._over:
            return ToolOutput(blocks=[TextBlock(text="It was submitted before.")], finished=True)
        path = LANGUAGES[self._instance.language].path
        if not await self._has_source(path):
            self._over = True
            return _answer(f"There is no file {path} of at most {_LARGEST_SOURCE} bytes.", 0.0)
        seed = secrets.token_hex(16)
        inputs = hidden(self._instance, seed, shown=self._examples)
        job = Job(instance=self._instance, source=path, inputs=inputs)
        (verdict,) = await run_jobs(self.box, [job], artifacts=[path])
        self._over = True
        reward = verdict.passed / verdict.cases if self.partial else float(verdict.passed == verdict.cases)
        output = _answer(verdict.text(), reward)
        output.metadata = {"passed": verdict.passed, "cases": verdict.cases, "seed": seed}
        return output

    async def _has_source(self, path: str) -> bool:
        try:
            info = await self.box.stat(path)
        except OSError:
            return False
        return info.kind == "file" and info.size <= _LARGEST_SOURCE


class CCodingEnvironment(CodingEnvironment):
    """The same, in C; the image is made by ``image/Dockerfile``."""

    image: ClassVar[str] = os.environ.get("CODING_C_IMAGE", "orsay-coding-c")

    languages: ClassVar[Sequence[str]] = ("c",)

    splits: ClassVar[Mapping[str, Tasks]] = {split: Tasks(split, ("c",)) for split in ("train", "test")}


def _answer(text: str, reward: float) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)], reward=reward, finished=True)
