"""Description of an environment class for the rest of the server: read once, checked, makes instances.

Takes classes of this package, of ``openreward.environments`` and of ``ors`` alike.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orsay_protocol import MESSAGE_BLOCK_TYPES, GroupCandidate, ListToolsOutput, Split

from ..errors import BadTask, LoadError, ToolDefinitionError
from .compat import foreign_base, foreign_internals, to_foreign_candidates
from .environment import Environment
from .results import to_blocks, to_listing, to_messages, to_output, to_scores
from .sandbox.uses import uses_sandboxes
from .tasks import Run, TaskSource, overrides, run_author
from .tool_table import new_toolset, tool_table, toolset_table
from .tools import ToolTable, listing, terminal_spec

__all__ = [
    "HostedEnvironment",
    "builtin_toolset",
    "environment_base",
    "host",
    "new_toolset",
    "session_listing",
    "session_toolset_table",
    "to_blocks",
    "to_candidates",
    "to_listing",
    "to_messages",
    "to_output",
    "to_scores",
]


@dataclass(frozen=True, slots=True, eq=False)
class HostedEnvironment:
    """Description of a class. ``name`` is its public name, ``key`` the same in lower case.

    A ``plain_`` hook is the inherited one, which runs no author code and may be skipped. ``waiting_hooks``
    are inherited ones that only await the author's coroutine function: they run on the event loop, not on a
    thread.
    """

    cls: type
    base: type
    name: str
    key: str
    description: str
    tools: ToolTable
    listing: ListToolsOutput
    splits: tuple[Split, ...]
    tasks: TaskSource
    call_time_limit_s: float | None
    setup_time_limit_s: float | None
    supports_score_group: bool
    replayable: bool
    uses_sandboxes: bool
    repeatable_commands: bool
    plain_constructor: bool
    plain_setup: bool
    plain_teardown: bool
    plain_task_tools: bool
    waiting_hooks: frozenset[str]
    takes_secrets: bool

    def construct(self, task_spec: Mapping[str, Any], secrets: dict[str, str]) -> object:
        """Make the instance of an episode. Runs author code, unless ``plain_constructor``."""
        if self.takes_secrets:
            return self.cls(task_spec=task_spec, secrets=secrets)
        return self.cls(task_spec=task_spec)


def environment_base(cls: type) -> type | None:
    """The ``Environment`` that ``cls`` derives from, ours or another package's; None if there is none."""
    return Environment if issubclass(cls, Environment) else foreign_base(cls)


def host(cls: type, *, run: Run = run_author) -> HostedEnvironment:
    """Read and check an environment class. ``run`` calls author code of its tasks.

    Raises LoadError when it cannot be served: no environment, still abstract, no tool, no split, no tasks, no
    prompt, a malformed or ambiguous tool, a constructor without a parameter for the task.
    """
    if not inspect.isclass(cls):
        raise LoadError(f"{cls!r} is not a class; pass the environment class itself")
    base = environment_base(cls)
    if base is None or cls is base:
        raise LoadError(
            f"{cls.__name__} is not an environment; derive it from orsay.Environment "
            "(classes of openreward.environments and ors are taken too)"
        )
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise LoadError(f"{cls.__name__} is abstract; implement {missing}")
    _require_usual_calls(cls, base)
    name = _name(cls)
    tools = _tools(cls)
    splits = _splits(cls)
    _require_tasks(cls, base, splits)
    _require_prompt(cls, base)
    scores = overrides(cls, base, "score_group")
    return HostedEnvironment(
        cls=cls,
        base=base,
        name=name,
        key=name.lower(),
        description=inspect.cleandoc(cls.__doc__ or ""),
        tools=tools,
        listing=_listing(cls, base, tools, scores),
        splits=splits,
        tasks=TaskSource(cls, base, splits, name=name, run=run),
        call_time_limit_s=_limit(cls, "call_time_limit_s"),
        setup_time_limit_s=_limit(cls, "setup_time_limit_s"),
        supports_score_group=scores,
        replayable=_flag(cls, "replayable"),
        uses_sandboxes=uses_sandboxes(cls, tuple(getattr(cls, "toolsets", None) or ())),
        repeatable_commands=_flag(cls, "repeatable_commands"),
        plain_constructor=not (overrides(cls, base, "__init__") or overrides(cls, base, "__new__")),
        plain_setup=not overrides(cls, base, "setup"),
        plain_teardown=not overrides(cls, base, "teardown"),
        plain_task_tools=not overrides(cls, base, "list_task_tools"),
        waiting_hooks=_waiting_hooks(cls),
        takes_secrets=_takes_secrets(cls),
    )


def _waiting_hooks(cls: type) -> frozenset[str]:
    if not issubclass(cls, Environment):
        return frozenset()
    found = set()
    for hook, other in (("get_prompt", "get_messages"), ("get_messages", "get_prompt")):
        from_other = not overrides(cls, Environment, "prompt") and overrides(cls, Environment, other)
        source = other if from_other else "prompt"
        if not overrides(cls, Environment, hook) and inspect.iscoroutinefunction(getattr(cls, source)):
            found.add(hook)
    return frozenset(found)


def _require_usual_calls(cls: type, base: type) -> None:
    for name in foreign_internals(base):
        if overrides(cls, base, name):
            raise LoadError(
                f"{cls.__name__} overrides {name}, an internal of {base.__module__} that is not used here; "
                "do that work in the tools themselves"
            )


def _name(cls: Any) -> str:
    try:
        name = cls.name()
    except Exception as exc:
        raise LoadError(f"{cls.__name__}.name() raised {type(exc).__name__}: {exc}") from exc
    if not isinstance(name, str) or not name or "/" in name:
        raise LoadError(f"{cls.__name__}.name() must return a name without '/'; it returned {name!r}")
    return name


def _tools(cls: Any) -> ToolTable:
    toolsets = tuple(getattr(cls, "toolsets", None) or ())
    for toolset in toolsets:
        if not inspect.isclass(toolset):
            raise LoadError(f"{cls.__name__}.toolsets must hold classes; found {toolset!r}")
    try:
        tools = tool_table(cls, toolsets)
    except ToolDefinitionError as exc:
        raise LoadError(str(exc)) from exc
    if not tools.listed and tools.terminal is None:
        raise LoadError(f"{cls.__name__} has no tools; put @tool on the methods a model may call")
    return tools


def _listing(cls: Any, base: type, tools: ToolTable, scores: bool) -> ListToolsOutput:
    found = to_listing(cls.list_tools()) if overrides(cls, base, "list_tools") else listing(tools)
    found.supports_score_group = scores
    found.message_block_types = list(MESSAGE_BLOCK_TYPES)
    return found


def _splits(cls: Any) -> tuple[Split, ...]:
    try:
        raw = cls.list_splits()
    except Exception as exc:
        raise LoadError(f"{cls.__name__}.list_splits() raised {type(exc).__name__}: {exc}") from exc
    if isinstance(raw, str) or not isinstance(raw, Iterable):
        if inspect.iscoroutine(raw):
            raw.close()
        raise LoadError(f"{cls.__name__}.list_splits() must return a list; it returned {raw!r}")
    splits = tuple(_split(cls, item) for item in raw)
    names = [split.name for split in splits]
    if not names:
        raise LoadError(
            f'{cls.__name__} has no splits; write for example splits = {{"train": [{{"question": "..."}}]}}'
        )
    if len(set(names)) < len(names):
        raise LoadError(f"{cls.__name__} names a split twice: {', '.join(names)}")
    return splits


def _split(cls: type, item: Any) -> Split:
    if isinstance(item, Split):
        return item
    if isinstance(item, str):
        kind = item if item in ("train", "validation", "test") else "validation"
        return Split.model_validate({"name": item, "type": kind})
    if hasattr(item, "model_dump"):
        return Split.model_validate(item.model_dump())
    raise LoadError(f"{cls.__name__} has a split that is neither a name nor a Split: {item!r}")


def _require_tasks(cls: Any, base: type, splits: Sequence[Split]) -> None:
    if overrides(cls, base, "list_tasks"):
        return
    if all(overrides(cls, base, name) for name in ("num_tasks", "get_task")):
        return
    declared = getattr(cls, "splits", None)
    for split in splits:
        if not isinstance(declared, Mapping) or split.name not in declared:
            raise LoadError(
                f"{cls.__name__} has no tasks for split {split.name!r}; give splits as a mapping of "
                "names to tasks, or implement list_tasks, or num_tasks and get_task"
            )
        tasks = declared[split.name]
        if isinstance(tasks, str | Mapping) or not (
            hasattr(tasks, "__len__") and hasattr(tasks, "__getitem__")
        ):
            raise LoadError(
                f"the tasks of split {split.name!r} of {cls.__name__} must be a sequence of dicts "
                f"(with len() and an index); found {type(tasks).__name__}"
            )


def _require_prompt(cls: Any, base: type) -> None:
    hooks = [name for name in ("prompt", "get_prompt", "get_messages") if hasattr(base, name)]
    own = [name for name in hooks if overrides(cls, base, name)]
    if not own:
        raise LoadError(f"{cls.__name__} has no prompt; implement {' or '.join(hooks)}")
    for name in own:
        if not callable(getattr(cls, name)):
            raise LoadError(f"{cls.__name__}.{name} must be a method that returns the prompt")


def _limit(cls: type, name: str) -> float | None:
    value = getattr(cls, name, None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise LoadError(f"{cls.__name__}.{name} must be a number of seconds over 0; found {value!r}")
    return float(value)


def _flag(cls: type, name: str) -> bool:
    value = getattr(cls, name, False)
    if not isinstance(value, bool):
        raise LoadError(f"{cls.__name__}.{name} must be True or False; found {value!r}")
    return value


def _takes_secrets(cls: type) -> bool:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):  # made by C code, without a signature
        return True
    for names in (("task_spec", "secrets"), ("task_spec",)):
        try:
            signature.bind(**dict.fromkeys(names))
        except TypeError:
            continue
        return "secrets" in names
    raise LoadError(
        f"{cls.__name__}.__init__ must take task_spec and secrets by these names; it is __init__{signature}"
    )


def to_candidates(hosted: HostedEnvironment, candidates: Sequence[GroupCandidate]) -> list[Any]:
    """Candidates in the models that the class expects: those of its own package."""
    return list(candidates) if hosted.base is Environment else to_foreign_candidates(hosted.base, candidates)


def builtin_toolset(name: str) -> type:
    """The toolset that a client binds to its session by name. Raises BadTask.

    Those are classes of the package ``openreward``, which is imported now: do this where author code runs.
    """
    try:
        package: Any = importlib.import_module("openreward.toolsets")  # optional, and slow to import
    except ImportError as exc:
        raise BadTask(
            f"Toolset {name!r} is not available: toolsets by name come with the package openreward (and most "
            f"need env.sandbox), which cannot be imported here ({exc})"
        ) from exc
    known: Mapping[str, type] = package.BUILTIN_TOOLSETS
    if name not in known:
        raise BadTask(f"unknown toolset {name!r}; known toolsets: {', '.join(sorted(known))}")
    return known[name]


def session_toolset_table(toolset: object) -> ToolTable:
    """The tools of a toolset that is bound to one session. Raises BadTask."""
    try:
        return toolset_table(type(toolset))
    except ToolDefinitionError as exc:
        raise BadTask(f"toolset {type(toolset).__name__}: {exc}") from exc


def session_listing(
    hosted: HostedEnvironment, instance_task_tools: Any = None, session_toolset: object | None = None
) -> ListToolsOutput:
    """Tools of one session: shared ones, then ``list_task_tools``, then those of the session's toolset.

    A tool of the session's toolset replaces others of its name, and its terminal tool the environment's.
    ``instance_task_tools`` is what ``list_task_tools`` returned.
    """
    tools = list(hosted.listing.tools)
    if instance_task_tools is not None:
        tools.extend(to_listing(instance_task_tools).tools)
    terminal = hosted.listing.terminal_tool
    hidden = {terminal.name} if terminal else set()
    bound = None if session_toolset is None else session_toolset_table(session_toolset)
    if bound is not None:
        if bound.terminal is not None:
            terminal = terminal_spec(bound.terminal)
            hidden.add(terminal.name)
        names = {row.name for row in bound.listed}
        tools = [spec for spec in tools if spec.name not in names]
        tools.extend(row.spec() for row in bound.listed)
    return ListToolsOutput(
        tools=[spec for spec in tools if spec.name not in hidden],
        terminal_tool=terminal,
        supports_score_group=hosted.listing.supports_score_group,
        message_block_types=hosted.listing.message_block_types,
    )
