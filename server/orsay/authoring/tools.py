"""Tools: decorators that mark methods, and the table rows that the server makes of marked methods.

``tool_table`` builds the rows. The marks are those of ``openreward.environments`` and ``ors``, so that
classes written for these packages work too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from orsay_protocol import ListToolsOutput, TerminalToolSpec, ToolSpec

from ..errors import ToolDefinitionError
from .signature import Bind, capture_scope

__all__ = ["ToolRow", "ToolTable", "listing", "mark_of", "method_of", "terminal", "terminal_spec", "tool"]

F = TypeVar("F", bound=Callable[..., Any])


@overload
def tool(fn: F) -> F: ...
@overload
def tool(
    *,
    shared: bool = True,
    concurrent: bool = False,
    exclusive: bool = False,
    time_limit_s: float | None = None,
    detached: bool = False,
) -> Callable[[F], F]: ...
def tool(
    fn: Any = None,
    *,
    shared: bool = True,
    concurrent: bool = False,
    exclusive: bool = False,
    time_limit_s: float | None = None,
    detached: bool = False,
) -> Any:
    """Make a method a tool: ``@tool`` or ``@tool(...)``.

        @tool
        def echo(self, text: str) -> ToolOutput:
            \"\"\"Submit a string.

            Args:
                text: The string to echo back.
            \"\"\"

    Parameters are typed (short spelling), or there is one, annotated with a pydantic model (full spelling).
    Returns a ToolOutput, a str, a block, an image, or a list of those.

    Calls of one tool in one session run one after the other; different tools overlap.

    shared: listed for every task. False hides a tool that ``list_task_tools`` lists for some tasks.
    concurrent: calls need not wait for another call of the same tool. Not for a tool that gives reward.
    exclusive: nothing else runs in the session meanwhile, as for a tool that ends the episode.
    time_limit_s: instead of the environment's or the server's limit.
    detached: a call goes on when the client that made it is gone.

    A method that cannot be a tool raises ToolDefinitionError (a TypeError) when its class is defined.
    Standard: tools, execution.
    """
    if time_limit_s is not None and not time_limit_s > 0:
        raise ToolDefinitionError(f"@tool(time_limit_s={time_limit_s!r}): the limit must be over 0 seconds")

    def mark(marked: Any) -> Any:
        _require_method(marked, "tool")
        marked._env_tool = True
        marked._env_tool_shared = shared
        marked._env_tool_concurrent = concurrent
        marked._env_tool_exclusive = exclusive
        marked._env_tool_time_limit_s = time_limit_s
        marked._env_tool_detached = detached
        capture_scope(method_of(marked))
        return marked

    return mark if fn is None else mark(fn)


def terminal(fn: F) -> F:
    """Make a tool the terminal one: it takes the model's last plain message and ends the episode.

    Goes with ``@tool``, in either order. The tool has one argument, which gets the message, or none. It is
    not among the listed tools. One per environment, its toolsets included. Standard: tools.
    """
    _require_method(fn, "terminal")
    fn._env_tool_terminal = True  # type: ignore[attr-defined]  # a mark on the function
    return fn


def _require_method(marked: Any, decorator: str) -> None:
    if not (inspect.isroutine(marked) or isinstance(marked, staticmethod | classmethod)):
        raise ToolDefinitionError(f"@{decorator} goes on a method; it was put on a {type(marked).__name__}")


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool of one class. ``owner`` is None for the environment itself, else the toolset's class.

    ``function`` takes the owner's instance first. Terminal tools are ``exclusive``; exclusive tools are never
    ``concurrent``. With ``collision`` two tools have the name, and calls are refused.
    """

    name: str
    description: str
    input_schema: dict[str, Any] | None
    owner: type | None
    function: Callable[..., Any]
    shared: bool
    concurrent: bool
    exclusive: bool
    terminal: bool
    detached: bool
    time_limit_s: float | None
    is_async: bool
    collision: bool = False
    fields: tuple[str, ...] = ()
    bind: Bind = field(default=lambda input: ((), {}), repr=False, compare=False)
    """Makes the arguments after ``self`` of an input. Raises pydantic's ValidationError."""

    def spec(self) -> ToolSpec:
        """The tool's entry in a listing."""
        return ToolSpec(name=self.name, description=self.description, input_schema=self.input_schema)


class ToolTable(dict[str, ToolRow]):
    """Immutable lookup table of tools by name. The only way to find one: clients cannot reach any other
    attribute of an instance.

    ``listed`` has the tools that clients see, in order: of two toolsets with the same name the first is
    called. ``terminal`` is the terminal tool, if any.
    """

    def __init__(self, rows: Iterable[ToolRow], listed: Sequence[ToolRow], terminal: ToolRow | None) -> None:
        super().__init__((row.name, row) for row in rows)
        self.listed = tuple(listed)
        self.terminal = terminal


def listing(table: ToolTable) -> ListToolsOutput:
    """Listed tools and the terminal tool, in the form of the wire."""
    return ListToolsOutput(
        tools=[row.spec() for row in table.listed],
        terminal_tool=None if table.terminal is None else terminal_spec(table.terminal),
    )


def terminal_spec(row: ToolRow) -> TerminalToolSpec:
    """Description of the terminal tool."""
    return TerminalToolSpec(
        name=row.name, arg=row.fields[0] if row.fields else None, description=row.description
    )


def mark_of(raw: Any, name: str, default: Any) -> Any:
    """A mark of a raw class attribute."""
    if inspect.isclass(raw):
        return default
    return getattr(raw, name, getattr(method_of(raw), name, default))


def method_of(raw: Any) -> Any:
    """The function inside a staticmethod or classmethod."""
    return raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
