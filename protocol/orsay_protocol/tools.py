"""Models of tools and of the results of calls."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field, RootModel

from .blocks import Blocks, JSONObject, Wire

__all__ = [
    "ListToolsOutput",
    "RunToolError",
    "RunToolErrorReason",
    "RunToolOutput",
    "RunToolSuccess",
    "TerminalToolSpec",
    "ToolOutput",
    "ToolSpec",
]


class ToolSpec(Wire):
    """A tool as a model sees it. ``input_schema`` is null for a tool without arguments.

    Never add a field: released clients build their own class from these keys and fail on an unknown one.
    """

    name: str
    description: str
    input_schema: JSONObject | None


class TerminalToolSpec(Wire):
    """The tool that takes the model's last plain message; ``arg`` is null when it takes nothing."""

    name: str
    arg: str | None = None
    description: str = ""


class ListToolsOutput(Wire):
    """Answer of ``/tools`` and ``/task_tools``."""

    tools: list[ToolSpec]
    terminal_tool: TerminalToolSpec | None = None
    supports_score_group: bool | None = None
    message_block_types: list[str] | None = None


class ToolOutput(Wire):
    """Result of a tool: blocks for the model, an optional reward, and ``finished`` at the end."""

    blocks: Blocks
    metadata: JSONObject | None = None
    reward: float | None = None
    finished: bool = False


class RunToolSuccess(Wire):
    """The tool ran."""

    ok: Literal[True] = True
    output: ToolOutput


RunToolErrorReason: TypeAlias = Literal["not_found", "name_collision", "input_validation", "episode_finished"]


class RunToolError(Wire):
    """The call was refused and the tool did not run."""

    ok: Literal[False] = False
    error: str
    reason: RunToolErrorReason | None = None


class RunToolOutput(RootModel[RunToolSuccess | RunToolError]):
    """Data of the ``end`` event of ``/call``, in its two forms."""

    root: RunToolSuccess | RunToolError = Field(discriminator="ok")
