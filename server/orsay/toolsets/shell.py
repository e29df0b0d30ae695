"""Tools that run commands: each on its own, or one after the other in a shell that remembers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ..authoring.environment import Toolset
from ..authoring.results import ToolOutput
from ..authoring.sandbox.model import CommandResult
from ..authoring.tools import tool

__all__ = ["Bash", "Shell", "is_unicode", "shown"]

_REMEMBERING = Path(__file__).with_name("remembering.sh").read_text()
# Bash expands it, and reads the file of that name before a command. The file is there, or is made.
_BASH_ENV = """$(
    [ -f "$__orsay_file" ] ||
        { printf %s "$__orsay_shell" >"$__orsay_file.$$" && mv -f "$__orsay_file.$$" "$__orsay_file"; }
    printf %s "$__orsay_file"
)"""


class _Commands(Toolset):
    """What both have in common."""

    time_limit_s: ClassVar[float] = 120
    """The longest time limit that a model may ask for, in seconds, and the one where it asks for none."""
    max_characters: ClassVar[int] = 16_000
    """Characters of output that a model gets; of more, the first and the last half of them."""
    user: ClassVar[str] = ""
    """User that runs the commands; empty for root."""
    folder: ClassVar[str] = ""
    """Folder in which commands begin; empty for the image's own."""

    async def _ran(
        self, command: str, timeout_s: float | None, env: Mapping[str, str] | None = None
    ) -> ToolOutput:
        limit = self.time_limit_s if timeout_s is None else min(timeout_s, self.time_limit_s)
        if not limit > 0:
            return ToolOutput(blocks=["timeout_s must be more than 0: nothing ran."])
        if "\0" in command:
            return ToolOutput(blocks=["A command cannot hold a NUL: nothing ran."])
        if not is_unicode(command):
            return ToolOutput(blocks=["A command cannot hold half of a surrogate pair: nothing ran."])
        result = await self.sandbox.run(
            command,
            timeout_s=limit,
            max_bytes=8 * self.max_characters,
            user=self.user,
            cwd=self.folder,
            env=env,
        )
        return ToolOutput(
            blocks=[shown(result, self.max_characters)],
            metadata={
                "return_code": result.return_code,
                "timed_out": result.timed_out,
                "duration_s": result.duration_s,
            },
        )


class Bash(_Commands):
    """The tool ``bash``: each command in a shell of its own."""

    @tool
    async def bash(self, command: str, timeout_s: float | None = None) -> ToolOutput:
        """Run a command of bash in a new shell, and return what it prints.

        Args:
            command: The command; it may have several lines.
            timeout_s: Seconds after which it is killed.
        """
        return await self._ran(command, timeout_s)


class Shell(_Commands):
    """The tool ``bash``: a shell that keeps its folder, variables, functions, aliases and options.

    A command is a process of its own all the same: one that is killed, or that ``exec`` replaces, leaves the
    shell as it was before.
    """

    def __init__(self, env: Any, sandbox_attr: str = "sandbox") -> None:
        super().__init__(env, sandbox_attr)
        self._file = f"/tmp/.orsay-shell-{secrets.token_hex(6)}"  # of the sandbox
        self._known: tuple[str, str] | None = None

    @tool
    async def bash(self, command: str, timeout_s: float | None = None) -> ToolOutput:
        """Run a command in a shell that keeps its folder and variables, and return what it prints.

        Args:
            command: The command; it may have several lines.
            timeout_s: Seconds after which it is killed; the shell is then as it was before.
        """
        env = {
            "BASH_ENV": _BASH_ENV,
            "__orsay_file": self._file,
            "__orsay_shell": _REMEMBERING,
            "__orsay_theirs": await self._bash_env(),
        }
        return await self._ran(command, timeout_s, env)

    async def _bash_env(self) -> str:
        """BASH_ENV as the image and the author have set it."""
        box = self.sandbox
        if self._known is None or self._known[0] != box.id:
            found = await box.run('printf %s "$BASH_ENV"', timeout_s=self.time_limit_s, user=self.user)
            self._known = box.id, found.output if found.ok else ""
        return self._known[1]


def is_unicode(text: str) -> bool:
    """False for text with half of a surrogate pair, which is no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(result: CommandResult, most: int) -> str:
    """Text for a model: the output, cut in its middle, and how it ended where that was not with 0."""
    text = result.output
    if len(text) > most:
        half = most // 2
        left = len(text) - 2 * half
        text = f"{text[:half]}\n[... {left} characters are left out ...]\n{text[-half:]}"
    elif result.truncated:
        text += "\n[... the rest is left out ...]"
    if result.timed_out:
        end = f"[killed after its time limit of {result.duration_s:.0f} s]"
    elif result.return_code:
        end = f"[exit code {result.return_code}]"
    else:
        return text or "[no output]"
    return f"{text.rstrip()}\n{end}" if text.strip() else end
