"""Base classes for authors: ``Environment`` and ``Toolset``.

They hold defaults only; ``hosted`` reads a class for the server.
"""

from __future__ import annotations

import inspect
from abc import ABC
from collections.abc import Awaitable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from orsay_protocol import (
    MESSAGE_BLOCK_TYPES,
    Blocks,
    GroupCandidate,
    GroupScore,
    JSONObject,
    ListToolsOutput,
    Message,
    RunToolOutput,
    RunToolSuccess,
    Split,
    TerminalToolSpec,
)

from .results import flatten, to_blocks, to_messages, to_output, when_ready
from .sandbox.bound import EnvironmentSandbox, SandboxAttribute
from .tool_table import check_tools, new_toolset, tool_table
from .tools import listing

__all__ = ["Environment", "Prompt", "Splits", "Toolset"]

Splits: TypeAlias = Mapping[str, Sequence[Any]] | Sequence[str | Split]
Prompt: TypeAlias = str | Blocks | Sequence[Message]

_EMPTY: Mapping[str, Any] = MappingProxyType({})


class _Alias:
    """Non-data descriptor that reads another attribute until an instance assigns its own value."""

    def __init__(self, target: str) -> None:
        self._target = target

    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else getattr(instance, self._target)


class Environment(ABC):  # noqa: B024  # an ABC so that authors may have abstract methods of their own
    """Tasks, a prompt for each, and tools that act on one; an instance is one episode on one task.

        class Echo(Environment):
            splits = {"train": [{"target": "hello"}, {"target": "world"}]}

            def prompt(self) -> str:
                return f"Say {self.task['target']}."

            @tool
            def echo(self, text: str) -> ToolOutput:
                won = text == self.task["target"]
                return ToolOutput(blocks=[text], reward=float(won), finished=True)

    Every hook may be ``def`` or ``async def``. A malformed tool raises ToolDefinitionError here, when the
    class is defined; everything else that is missing raises LoadError when the class is hosted.
    Standard: model, life cycle, tools.
    """

    toolsets: ClassVar[Sequence[type]] = ()
    """Classes whose tools belong to this environment; made per session, when one of their tools is called."""

    splits: ClassVar[Splits] = ()
    """Split names with their tasks, ``{"train": tasks}``, or names alone when ``get_task`` or ``list_tasks``
    provide the tasks. ``tasks`` is any sequence of JSON objects; one that computes its items is never listed
    to count or to get one."""

    call_time_limit_s: ClassVar[float | None] = None
    """Time limit of each tool call, in place of the server's setting."""

    setup_time_limit_s: ClassVar[float | None] = None
    """Time limit of ``setup``, in place of the server's setting."""

    replayable: ClassVar[bool] = False
    """Determinism: the same calls lead to the same state and answers. The server then rebuilds sessions from
    the journal after it, or a worker, was killed. Such an environment takes all randomness from seeds of
    its task, and has no effects outside."""

    repeatable_commands: ClassVar[bool] = False
    """Determinism of sandboxes, where the class is ``replayable``: the same commands in a new sandbox lead to
    the same answers. A session that used a sandbox, which is gone, is rebuilt only then."""

    # Also class attributes, for subclasses that do not call super().__init__().
    task_spec: JSONObject = _EMPTY
    secrets: Mapping[str, str] = _EMPTY

    sandbox = SandboxAttribute()
    """Makes a machine for untrusted code: ``self.box = await self.sandbox(image=..., network="none")``. It
    ends with the session at the latest. Parameters: see ``orsay.sandbox``."""

    if TYPE_CHECKING:
        task: Any
        """The same as ``task_spec``, unless the instance assigns its own."""
    else:
        task = _Alias("task_spec")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_tools(cls, taken=_TAKEN)

    def __init__(self, task_spec: JSONObject | None = None, secrets: Mapping[str, str] | None = None) -> None:
        """``task_spec`` is untrusted input of a client, unless the server serves tasks by index only."""
        self.task_spec = {} if task_spec is None else task_spec
        self.secrets = {} if secrets is None else secrets

    # one episode

    def setup(self) -> Awaitable[None] | None:
        """Prepare the episode, after the constructor and before the first prompt or call."""
        return None

    def teardown(self) -> Awaitable[None] | None:
        """Release the resources of the episode; runs once, also if ``setup`` failed or was interrupted."""
        return None

    def prompt(self) -> Prompt | Awaitable[Prompt]:
        """The first message to the model: a str, blocks (str and images among them), or messages.

        The short spelling of ``get_prompt`` and ``get_messages``; implement one of the three.
        """
        raise NotImplementedError(f"{type(self).__name__} has no prompt: implement prompt()")

    def get_prompt(self) -> Blocks | Awaitable[Blocks]:
        """The prompt as blocks. By default made from ``prompt``, else from ``get_messages``, flattened."""
        if (
            type(self).prompt is Environment.prompt
            and type(self).get_messages is not Environment.get_messages
        ):
            return when_ready(self.get_messages(), lambda value: flatten(to_messages(value)))
        return when_ready(self.prompt(), to_blocks)

    def get_messages(self) -> Sequence[Message] | Awaitable[Sequence[Message]]:
        """The prompt as messages. Made from ``prompt``, else from ``get_prompt`` in one message."""
        if type(self).prompt is Environment.prompt and type(self).get_prompt is not Environment.get_prompt:
            return when_ready(self.get_prompt(), to_messages)
        return when_ready(self.prompt(), to_messages)

    def list_task_tools(self) -> ListToolsOutput | Awaitable[ListToolsOutput]:
        """Tools of this task only, listed after the shared ones; methods are ``@tool(shared=False)``."""
        return ListToolsOutput(tools=[])

    def score_group(
        self, candidates: Sequence[GroupCandidate]
    ) -> Sequence[GroupScore | float] | Awaitable[Sequence[GroupScore | float]]:
        """One score per candidate rollout of this task, in order. Optional; raise when scoring fails."""
        raise NotImplementedError(f"{type(self).__name__} does not score groups")

    # tasks. Results are Any, and awaitable where inherited: authors override these sync or async

    @classmethod
    def list_splits(cls) -> Sequence[str | Split]:
        """Splits by name; a name other than train, validation and test is of type validation."""
        return list(cls.splits)

    @classmethod
    def list_tasks(cls, split: str) -> Any:
        """All tasks of ``split``. Raises NotImplementedError where tasks can only be counted and got."""
        return list(cls._declared(split))

    @classmethod
    def num_tasks(cls, split: str) -> Any:
        """Number of tasks in ``split``."""
        return cls._num_tasks(split)

    @classmethod
    def get_task(cls, split: str, index: int) -> Any:
        """The task at ``index``; negative counts from the end. Raises IndexError."""
        return cls._get_task(split, index)

    @classmethod
    def get_task_range(cls, split: str, start: int | None = None, stop: int | None = None) -> Any:
        """Tasks from ``start`` up to ``stop``, as a slice: None and negative numbers as in Python."""
        return cls._get_task_range(split, start, stop)

    @classmethod
    async def _num_tasks(cls, split: str) -> int:
        return len(await cls._tasks(split))

    @classmethod
    async def _get_task(cls, split: str, index: int) -> Any:
        tasks = await cls._tasks(split)
        return tasks[index + len(tasks) if -len(tasks) <= index < 0 else index]

    @classmethod
    async def _get_task_range(cls, split: str, start: int | None, stop: int | None) -> list[Any]:
        total = await _value(cls.num_tasks(split))
        return [
            await _value(cls.get_task(split, index)) for index in range(*slice(start, stop).indices(total))
        ]

    @classmethod
    def _declared(cls, split: str) -> Sequence[Any]:
        if isinstance(cls.splits, Mapping) and split in cls.splits:
            return cls.splits[split]
        raise NotImplementedError(f"{cls.__name__} has no list of tasks for split {split!r}")

    @classmethod
    async def _tasks(cls, split: str) -> Sequence[Any]:
        if cls.list_tasks.__func__ is Environment.list_tasks.__func__:  # type: ignore[attr-defined]
            return cls._declared(split)
        tasks: Sequence[Any] = await _value(cls.list_tasks(split))
        return tasks

    # offers of the class

    @classmethod
    def name(cls) -> str:
        """Public name of the environment; clients may use any letter case."""
        return cls.__name__

    @classmethod
    def list_tools(cls) -> ListToolsOutput:
        """Tools for every task. Raises ToolDefinitionError."""
        found = listing(tool_table(cls, cls.toolsets))
        found.supports_score_group = cls.score_group is not Environment.score_group
        found.message_block_types = list(MESSAGE_BLOCK_TYPES)
        return found

    @classmethod
    def terminal_tool(cls) -> TerminalToolSpec | None:
        """The ``@terminal`` tool, if there is one."""
        return cls.list_tools().terminal_tool

    @classmethod
    def is_assistant_message_final(cls) -> bool:
        """True if a message without tool calls ends the episode: there is a ``@terminal`` tool."""
        return cls.terminal_tool() is not None

    async def call_terminal_tool(self, message: str = "") -> RunToolOutput:
        """Call the ``@terminal`` tool of this class directly, as a test does. No lock, no time limit.

        Raises ValueError when the class has none.
        """
        row = tool_table(type(self), self.toolsets).terminal
        if row is None:
            raise ValueError(f"{type(self).__name__} has no @terminal tool")
        args, kwargs = row.bind(dict.fromkeys(row.fields, message))
        owner = self if row.owner is None else new_toolset(row.owner, self)
        value = await _value(row.function(owner, *args, **kwargs))
        return RunToolOutput(RunToolSuccess(output=to_output(value, row.name)))


class Toolset(ABC):  # noqa: B024  # as above
    """Tools that several environments share: list the class in ``toolsets``.

    ``env`` is the environment of the session, ``sandbox`` its attribute of that name; reading ``sandbox``
    raises ValueError if the environment has none.
    """

    def __init__(self, env: Any, sandbox_attr: str = "sandbox") -> None:
        self.env = env
        sandbox = getattr(env, sandbox_attr, None)
        if sandbox is not None and not isinstance(sandbox, EnvironmentSandbox):
            self.sandbox = sandbox

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_tools(cls)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "sandbox":
                made = getattr(self.env, "sandbox", None)
                if isinstance(made, EnvironmentSandbox) and made.first is not None:
                    return made.first
                raise ValueError(
                    f"toolset {type(self).__name__} needs a sandbox, but its environment has none: "
                    "assign env.sandbox in the environment's __init__ or setup, or make one there with "
                    "await self.sandbox()"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    else:
        sandbox: Any

    @classmethod
    def name(cls) -> str:
        """Name of the toolset."""
        return cls.__name__


# Environment itself has no tools: looked up when a subclass is made, which is after this.
_TAKEN = frozenset(name for name in vars(Environment) if not name.startswith("_"))


async def _value(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result
