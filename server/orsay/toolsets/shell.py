"""Tools that run commands: each on its own, or one after the other in a shell that remembers."""

from __future__ import annotations

import secrets
import shlex
from typing import Any, ClassVar

from ..authoring.environment import Toolset
from ..authoring.results import ToolOutput
from ..authoring.sandbox.model import CommandResult
from ..authoring.tools import tool

__all__ = ["Bash", "Shell", "shown"]


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

    async def _ran(self, command: str, timeout_s: float | None) -> ToolOutput:
        limit = self.time_limit_s if timeout_s is None else min(timeout_s, self.time_limit_s)
        if not limit > 0:
            return ToolOutput(blocks=["timeout_s must be more than 0: nothing ran."])
        if "\0" in command:
            return ToolOutput(blocks=["A command cannot hold a NUL: nothing ran."])
        result = await self.sandbox.run(
            command, timeout_s=limit, user=self.user, cwd=self.folder, max_bytes=8 * self.max_characters
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
    """The tool ``bash``: a shell that keeps folder, variables and functions from one command to the next.

    A command is a process of its own all the same: one that is killed leaves the shell as it was before.
    """

    def __init__(self, env: Any, sandbox_attr: str = "sandbox") -> None:
        super().__init__(env, sandbox_attr)
        self._state = f"/tmp/.orsay-shell-{secrets.token_hex(6)}"  # of the sandbox

    @tool
    async def bash(self, command: str, timeout_s: float | None = None) -> ToolOutput:
        """Run a command in a shell that keeps its folder and variables, and return what it prints.

        Args:
            command: The command; it may have several lines.
            timeout_s: Seconds after which it is killed; the shell is then as it was before.
        """
        state = shlex.quote(self._state)
        # Read-only variables belong to each bash itself. The state takes its place only once it is whole.
        script = (
            f"[ -f {state} ] && . {state} 2>/dev/null\n"
            "__orsay_save() { local code=$?; trap - EXIT; { declare -p | grep -v '^declare -[a-zA-Z]*r';"
            f" declare -f; alias; printf 'cd %q\\n' \"$PWD\"; }} >{state}.new 2>/dev/null"
            f" && mv -f {state}.new {state}; exit $code; }}\n"
            f"trap __orsay_save EXIT\n{command}\n"
        )
        return await self._ran(script, timeout_s)


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
