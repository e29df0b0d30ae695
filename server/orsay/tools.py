"""Tools: the marks on methods, and the table that a class is read into, once.

A tool is found in its class's table and nowhere else: no attribute of an instance is reachable by name from
outside. Marks are the ones that ``openreward.environments`` and ``ors`` set, so their classes read the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from orsay_protocol import ListToolsOutput, TerminalToolSpec, ToolSpec

from .errors import ToolDefinitionError
from .signature import Bind, Signature, Unresolved, capture_scope, read_signature

__all__ = ["ToolRow", "ToolTable", "check_tools", "listing", "read_tools", "terminal", "tool", "tool_table"]

F = TypeVar("F", bound=Callable[..., Any])

_SIGNATURE = "_orsay_signature"


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
        capture_scope(_function(marked), 3)
        return marked

    return mark if fn is None else mark(fn)


def terminal(fn: F) -> F:
    """Make a tool the one that takes the model's last plain message and ends the episode.

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

    ``function`` takes the owner's instance first. ``exclusive`` includes terminal tools, and ``concurrent``
    excludes exclusive ones. With ``collision`` the name means two tools, and a call must be refused.
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
    binder: Bind = field(default=lambda input: ((), {}), repr=False, compare=False)

    def bind(self, input: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments after ``self``. Raises pydantic's ValidationError."""
        return self.binder(input)

    def spec(self) -> ToolSpec:
        """The tool as it is listed."""
        return ToolSpec(name=self.name, description=self.description, input_schema=self.input_schema)


class ToolTable(dict[str, ToolRow]):
    """Tools by name, as they are called; never changed after it was built.

    ``listed`` holds what clients are shown, in order: two toolsets may list the same name, of which the
    first is called. ``terminal`` is the terminal tool, if any.
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
    """The terminal tool as it is described."""
    return TerminalToolSpec(
        name=row.name, arg=row.fields[0] if row.fields else None, description=row.description
    )


def check_tools(cls: type) -> None:
    """Raise ToolDefinitionError for the first tool of ``cls`` that cannot be one.

    Names in annotations that are not defined yet are let pass; ``tool_table`` looks again.
    """
    terminals: list[str] = []
    for name, raw in _marked(cls):
        try:
            row = _read_row(cls, name, raw, owner=None)
        except Unresolved:
            continue
        if row.terminal:
            terminals.append(name)
    _require_one_terminal(cls, terminals)


def read_tools(cls: type, *, owner: type | None) -> list[ToolRow]:
    """The tools of one class, alphabetically. Raises ToolDefinitionError."""
    rows = []
    for name, raw in _marked(cls):
        try:
            rows.append(_read_row(cls, name, raw, owner=owner))
        except Unresolved as exc:
            raise ToolDefinitionError(
                f"tool {name!r} of {cls.__qualname__} is annotated with something that is not defined: {exc}; "
                "define or import it in the module (not under TYPE_CHECKING)"
            ) from exc
    return rows


def tool_table(cls: type, toolsets: Sequence[type] = ()) -> ToolTable:
    """The tools of a class and of its toolsets, read and checked. Raises ToolDefinitionError."""
    own = read_tools(cls, owner=None)
    borrowed = [read_tools(toolset, owner=toolset) for toolset in toolsets]
    terminals = [row for rows in [own, *borrowed] for row in rows if row.terminal]
    _require_one_terminal(cls, [row.name for row in terminals])
    last = terminals[0] if terminals else None
    hidden = last.name if last else None

    rows = {row.name: row for row in own}
    listed = [row for row in own if row.shared and row.name != hidden]
    shown = {row.name for row in listed}
    for toolset in borrowed:
        for row in toolset:
            visible = row.shared and row.name != hidden
            if visible and row.name in shown:
                raise ToolDefinitionError(
                    f"tool {row.name!r} is defined in {cls.__qualname__} and in its toolset "
                    f"{row.owner.__qualname__ if row.owner else ''}; rename one of them"
                )
            if visible:
                listed.append(row)
            taken = rows.get(row.name)
            if taken is None:
                rows[row.name] = row
            elif taken.owner is None and not taken.collision:
                rows[row.name] = _collided(taken)
    return ToolTable(rows.values(), listed, last)


def _collided(row: ToolRow) -> ToolRow:
    values = {name: getattr(row, name) for name in ToolRow.__slots__}
    return ToolRow(**{**values, "collision": True})


def _require_one_terminal(cls: type, names: Sequence[str]) -> None:
    if len(names) > 1:
        raise ToolDefinitionError(
            f"{cls.__qualname__} has {len(names)} @terminal tools ({', '.join(names)}); keep one"
        )


def _marked(cls: type) -> Iterator[tuple[str, Any]]:
    """Names and raw attributes of marked methods, alphabetically; what a subclass overrides is gone."""
    for name in dir(cls):
        raw = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        if _mark(raw, "_env_tool", False) is True:
            yield name, raw
        elif _mark(raw, "_env_tool_terminal", False) is True:
            raise ToolDefinitionError(
                f"method {name!r} of {cls.__qualname__} is marked @terminal but not @tool; add @tool"
            )


def _mark(raw: Any, name: str, default: Any) -> Any:
    if not (inspect.isroutine(raw) or isinstance(raw, staticmethod | classmethod)):
        return default
    return getattr(raw, name, getattr(_function(raw), name, default))


def _function(raw: Any) -> Any:
    return raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw


def _read_row(cls: type, name: str, raw: Any, *, owner: type | None) -> ToolRow:
    where = f"tool {name!r} of {cls.__qualname__}"
    function = _function(raw)
    signature = _signature(cls, raw, function, where)
    is_terminal = bool(_mark(raw, "_env_tool_terminal", False))
    is_async = inspect.iscoroutinefunction(function)
    concurrent, exclusive = _locking(raw, is_async=is_async)
    if is_terminal and len(signature.fields) > 1:
        raise ToolDefinitionError(
            f"{where} is @terminal and takes {len(signature.fields)} arguments "
            f"({', '.join(signature.fields)}); it gets the model's last message and nothing else: keep one or none"
        )
    if is_terminal and _mark(raw, "_env_tool_concurrent", False):
        raise ToolDefinitionError(
            f"{where} is @terminal and concurrent=True, but it ends the episode and must run alone; "
            "remove concurrent=True"
        )
    return ToolRow(
        name=name,
        description=signature.description,
        input_schema=signature.input_schema,
        owner=owner,
        function=_callable(raw),
        shared=bool(_mark(raw, "_env_tool_shared", True)),
        concurrent=concurrent and not (exclusive or is_terminal),
        exclusive=exclusive or is_terminal,
        terminal=is_terminal,
        detached=bool(_mark(raw, "_env_tool_detached", False)),
        time_limit_s=_mark(raw, "_env_tool_time_limit_s", None),
        is_async=is_async,
        fields=signature.fields,
        binder=signature.bind,
    )


def _locking(raw: Any, *, is_async: bool) -> tuple[bool, bool]:
    """Whether a tool is concurrent, and whether it is exclusive.

    ``ors`` knows neither: there async calls overlap freely, and a sync call has the event loop, so that
    nothing else runs. Its tools carry no such marks.
    """
    concurrent = _mark(raw, "_env_tool_concurrent", None)
    if concurrent is None:
        return is_async, not is_async
    return bool(concurrent), bool(_mark(raw, "_env_tool_exclusive", False))


def _signature(cls: type, raw: Any, function: Any, where: str) -> Signature:
    """Read once per function, also when many classes inherit it."""
    known: Signature | None = vars(function).get(_SIGNATURE)
    if known is not None:
        return known
    if not inspect.isfunction(inspect.unwrap(function)):
        raise ToolDefinitionError(f"{where} is a {type(function).__name__}; write it as a method")
    namespace = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    signature = read_signature(function, namespace, where=where, bound=isinstance(raw, staticmethod))
    setattr(function, _SIGNATURE, signature)
    return signature


def _callable(raw: Any) -> Callable[..., Any]:
    """The function with the owner's instance as first argument."""
    if isinstance(raw, staticmethod):
        function = raw.__func__
        return lambda owner, *args, **kwargs: function(*args, **kwargs)
    if isinstance(raw, classmethod):
        function = raw.__func__
        return lambda owner, *args, **kwargs: function(type(owner), *args, **kwargs)
    function = raw
    assert callable(function)
    return function
