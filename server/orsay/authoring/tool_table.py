"""Builds the table of tools of a class, once; a malformed tool is an error, never ignored."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..errors import ToolDefinitionError
from .signature import Signature, Unresolved, annotations_of, read_signature
from .tools import ToolRow, ToolTable, mark_of, method_of

__all__ = ["check_tools", "new_toolset", "read_tools", "tool_table", "toolset_table"]

_SIGNATURE = "_orsay_signature"
_NO_RESULTS = (None, bool, int, float, dict, "None", "bool", "int", "float", "dict")


def check_tools(cls: type, *, taken: frozenset[str] = frozenset()) -> None:
    """Raise ToolDefinitionError for the first malformed tool of ``cls``.

    ``taken`` names are reserved in such a class. Undefined names in annotations are accepted here;
    ``tool_table`` checks again.
    """
    terminals: list[str] = []
    for name, raw in _marked(cls):
        if name in taken:
            raise ToolDefinitionError(
                f"tool {name!r} of {cls.__name__} has the name of a method that every environment has; "
                "call the tool something else"
            )
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
                f"tool {name!r} of {cls.__name__} is annotated with something undefined: {exc}; "
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
                    f"tool {row.name!r} is defined in {cls.__name__} and in its toolset "
                    f"{row.owner.__name__ if row.owner else ''}; rename one of them"
                )
            if visible:
                listed.append(row)
            taken = rows.get(row.name)
            if taken is None:
                rows[row.name] = row
            elif taken.owner is None and not taken.collision:
                rows[row.name] = _collided(taken)
    return ToolTable(rows.values(), listed, last)


def toolset_table(cls: type) -> ToolTable:
    """The tools of a toolset by itself. Raises ToolDefinitionError."""
    rows = read_tools(cls, owner=cls)
    terminals = [row for row in rows if row.terminal]
    _require_one_terminal(cls, [row.name for row in terminals])
    listed = [row for row in rows if row.shared and not row.terminal]
    return ToolTable(rows, listed, terminals[0] if terminals else None)


def _collided(row: ToolRow) -> ToolRow:
    return replace(row, collision=True)


def _require_one_terminal(cls: type, names: Sequence[str]) -> None:
    if len(names) > 1:
        raise ToolDefinitionError(
            f"{cls.__name__} has {len(names)} @terminal tools ({', '.join(names)}); keep one"
        )


def _marked(cls: type) -> Iterator[tuple[str, Any]]:
    """Names and raw attributes of marked methods, alphabetically, without overridden ones."""
    for name in dir(cls):
        raw = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        if mark_of(raw, "_env_tool", False) is True:
            yield name, raw
        elif mark_of(raw, "_env_tool_terminal", False) is True:
            raise ToolDefinitionError(
                f"method {name!r} of {cls.__name__} is marked @terminal but not @tool; add @tool"
            )


def _read_row(cls: type, name: str, raw: Any, *, owner: type | None) -> ToolRow:
    where = f"tool {name!r} of {cls.__name__}"
    function = method_of(raw)
    signature = _signature(cls, raw, function, where)
    is_terminal = bool(mark_of(raw, "_env_tool_terminal", False))
    is_async = inspect.iscoroutinefunction(function)
    concurrent, exclusive = _locking(raw, is_async=is_async)
    if is_terminal and len(signature.fields) > 1:
        raise ToolDefinitionError(
            f"{where} is @terminal and takes {len(signature.fields)} arguments "
            f"({', '.join(signature.fields)}); it gets the model's last message and nothing else: "
            "keep one or none"
        )
    if is_terminal and mark_of(raw, "_env_tool_concurrent", False):
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
        shared=bool(mark_of(raw, "_env_tool_shared", True)),
        concurrent=concurrent and not (exclusive or is_terminal),
        exclusive=exclusive or is_terminal,
        terminal=is_terminal,
        detached=bool(mark_of(raw, "_env_tool_detached", False)),
        time_limit_s=mark_of(raw, "_env_tool_time_limit_s", None),
        is_async=is_async,
        fields=signature.fields,
        bind=signature.bind,
    )


def _locking(raw: Any, *, is_async: bool) -> tuple[bool, bool]:
    """Locking flags of a tool: concurrent, exclusive.

    ``ors`` has neither mark: async calls overlap freely, and a sync call blocks the event loop, so that it
    runs alone.
    """
    concurrent = mark_of(raw, "_env_tool_concurrent", None)
    if concurrent is None:
        return is_async, not is_async
    return bool(concurrent), bool(mark_of(raw, "_env_tool_exclusive", False))


def _signature(cls: type, raw: Any, function: Any, where: str) -> Signature:
    """Read once per function, also when many classes inherit it."""
    if not inspect.isfunction(inspect.unwrap(function)):
        raise ToolDefinitionError(f"{where} is a {type(function).__name__}; write it as a method")
    _require_result(inspect.unwrap(function), where)
    known: Signature | None = vars(function).get(_SIGNATURE)
    if known is not None:
        return known
    namespace = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    signature = read_signature(function, namespace, where=where, bound=isinstance(raw, staticmethod))
    setattr(function, _SIGNATURE, signature)
    return signature


def _require_result(real: Any, where: str) -> None:
    if inspect.isgeneratorfunction(real) or inspect.isasyncgenfunction(real):
        raise ToolDefinitionError(f"{where} yields, but a call has one result; return it")
    result = annotations_of(real).get("return", "")
    if result in _NO_RESULTS:
        raise ToolDefinitionError(
            f"{where} returns {getattr(result, '__name__', result)}, which a model cannot be shown; "
            "return a str, a ToolOutput, a block, an image, or a list of those"
        )


def _callable(raw: Any) -> Callable[..., Any]:
    """The function with the owner's instance as first argument."""
    function: Callable[..., Any] = method_of(raw)
    if isinstance(raw, staticmethod):
        return lambda owner, /, *args, **kwargs: function(*args, **kwargs)
    if isinstance(raw, classmethod):
        return lambda owner, /, *args, **kwargs: function(type(owner), *args, **kwargs)
    return function


def new_toolset(cls: Any, env: object) -> object:
    """Make a declared toolset; its constructor gets the environment if it has a parameter for it."""
    try:
        inspect.signature(cls).bind(env)
    except ValueError:  # made by C code, without a signature
        return cls(env)
    except TypeError:
        return cls()
    return cls(env)
