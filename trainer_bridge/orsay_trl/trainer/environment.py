"""Environment class for TRL: a method for each tool, ``reset``, ``get_reward``, the episode's state.

TRL lists the methods of the class and then reads them from the instance. There each is a callable that is
also the tool's schema, so that the model gets the complete schema: TRL and transformers pass a dictionary on
unchanged, and would build an incomplete one from a function's signature.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from orsay_client import errors
from orsay_client.transport import encode_json

from ..play.content import Content
from ..play.environment import LiveEnvironment
from ..play.episode import Episode, Reply, Tools
from ..play.fault_budget import TooManyFaults
from ..play.naming import attribute_names
from ..play.parsing import guard
from ._trl import calling_trainer, is_trainer, label_sessions, making_owner, starting_trainer, tokenizer_of
from .async_worker import outlive_failure

__all__ = ["BoundTool", "EnvironmentFactory", "RolloutEnvironment", "environment_class"]

_PYTHON: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class BoundTool(dict[str, Any]):
    """A tool of one rollout: its schema in OpenAI's function format, callable with the tool's arguments."""

    def __init__(self, schema: Mapping[str, Any], call: Callable[[str, dict[str, Any]], Content]) -> None:
        super().__init__(schema)
        function = schema["function"]
        self._call = call
        self._parameters = tuple((function.get("parameters") or {}).get("properties") or {})
        self.__name__ = str(function["name"])
        self.__doc__ = function.get("description")
        self.__annotations__ = _annotations(function.get("parameters") or {})

    def __call__(self, /, *positional: Any, **arguments: Any) -> Content:
        """Result of the call for the model. Positional arguments are taken in the schema's order."""
        if len(positional) > len(self._parameters):
            raise TypeError(f"{self.__name__}() takes {len(self._parameters)} arguments at most")
        given = dict(zip(self._parameters, positional, strict=False))
        if twice := given.keys() & arguments:
            raise TypeError(f"{self.__name__}() got {', '.join(sorted(twice))} twice")
        return self._call(self.__name__, given | arguments)

    def __repr__(self) -> str:
        return f"<tool {self.__name__}>"


class RolloutEnvironment:
    """One environment in a trainer's pool, made by ``spec.environment_factory``; plays episodes in turn.

    After a rollout it holds ``reward``, ``rewards``, ``metadata``, ``finished`` and ``last_output``, as TRL's
    own environment for OpenReward does, and the whole ``episode``.
    """

    def __init__(self, live: LiveEnvironment) -> None:
        self.live = live
        self.episode: Episode | None = None
        self.scored_by_function = False
        self._prefetched: deque[tuple[str, dict[str, Any], Future[Reply]]] = deque()
        tools = live.tools
        for schema, attribute in zip(tools.schemas, attribute_names(tools.names).values(), strict=True):
            setattr(self, attribute, BoundTool(schema, self._call))

    # TRL offers every public method of the class to the model, except these two.

    def reset(self, **row: Any) -> Content:
        """Begin the episode of a row of the dataset and return the environment's prompt.

        The previous episode is closed. If a fault left no session, a prompt is returned all the same: such a
        rollout is masked, not scored.
        """
        self._close()
        self.scored_by_function = False
        self._prefetched.clear()
        trainer = calling_trainer()
        if trainer is not None:
            label_sessions([self.live], state=trainer.state, args=trainer.args, model=trainer.model)
        self.episode = self.live.begin(row)
        return self.episode.observation

    def get_reward(self) -> float | None:
        """The episode's reward, None after a fault.

        None also where ``spec.reward_funcs`` has scored the rollout, which TRL would otherwise count twice,
        and with ``EnvironmentSpec(get_reward=False)``.
        """
        if self.episode is None or self.scored_by_function:
            return None
        reward = self.episode.reward if self.live.options.get_reward else None  # may mark the episode lost
        try:
            self.live.faults.check_latest([self.episode])
        except TooManyFaults:
            outlive_failure()
            raise
        return reward

    # The state of the rollout

    @property
    def reward(self) -> float | None:
        """Reward by the spec's policy; ``unscored`` before anything was scored; None after a fault."""
        return self.live.options.rules.unscored if self.episode is None else self.episode.reward

    @property
    def rewards(self) -> list[float | None]:
        """One entry for each call."""
        return [] if self.episode is None else self.episode.rewards

    @property
    def metadata(self) -> list[dict[str, Any] | None]:
        """One entry for each call."""
        return [] if self.episode is None else self.episode.metadata

    @property
    def finished(self) -> bool:
        """True if the environment finished the episode."""
        return self.episode is not None and self.episode.finished

    @property
    def last_output(self) -> str:
        """The text of the last answer."""
        return "" if self.episode is None else self.episode.last_output

    def _close(self) -> None:
        """End the session on the server, in the background; the state above stays."""
        if self.episode is not None:
            self.live.release([self.episode])

    # Calls

    def _call(self, name: str, arguments: dict[str, Any]) -> Content:
        if self.episode is None:
            raise RuntimeError("call reset() first: there is no episode yet")
        if self._prefetched:
            ahead_name, ahead_arguments, future = self._prefetched.popleft()
            if ahead_name == name and _spelled(ahead_arguments) == _spelled(arguments):
                return self.live.wait(future).content
            self._prefetched.clear()
            self.episode.mark_lost(
                "not_replayed", f"{ahead_name!r} was called ahead, but {name!r} was wanted"
            )
        return self.live.pool.run(self.episode.call(name, arguments)).content

    def _call_ahead(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        """Start calls that the trainer is about to make, in this order."""
        if self.episode is None:
            return
        for name, arguments in calls:
            future = self.live.pool.start(self.episode.call(name, arguments))
            self._prefetched.append((name, arguments, future))


class EnvironmentFactory:
    """Maker of the environments in a trainer's pool, all of one class in one process."""

    def __init__(self, live: LiveEnvironment) -> None:
        self.live = live

    def __call__(self) -> RolloutEnvironment:
        if (owner := making_owner()) is not None:
            # A worker's loop renders the whole conversation in each turn, a trainer appends tokens.
            guard(tokenizer_of(owner), rendered=not is_trainer(owner))
        return self._class(self.live)

    def __getstate__(self) -> dict[str, Any]:
        # AsyncGRPO plays rollouts in a process without the trainer.
        if (trainer := starting_trainer()) is not None:
            label_sessions([self.live], args=trainer.args, model=trainer.model)
        return {"live": self.live}

    @cached_property
    def _class(self) -> type[RolloutEnvironment]:
        return environment_class(self.live.class_name, self.live.tools)


def environment_class(name: str, tools: Tools) -> type[RolloutEnvironment]:
    """Class of the environments of one spec, with a method for each tool."""
    methods = {
        attribute: _method(attribute, tool) for tool, attribute in attribute_names(tools.names).items()
    }
    return type(name, (RolloutEnvironment,), methods)


def _method(attribute: str, name: str) -> Callable[..., Content]:
    def method(self: RolloutEnvironment, /, *positional: Any, **arguments: Any) -> Content:
        return self.__dict__[attribute](*positional, **arguments)  # type: ignore[no-any-return]

    method.__name__ = method.__qualname__ = attribute
    method.__doc__ = f"Call the tool {name!r}."
    return method


def _spelled(arguments: Mapping[str, Any]) -> bytes | None:
    """Arguments as JSON, for comparison (NaN is not NaN); None for invalid ones."""
    try:
        return encode_json(arguments)
    except errors.BadRequest:
        return None


def _annotations(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Python types of a schema's properties, for ``help`` in a shell."""
    found: dict[str, Any] = {
        name: _python_type(schema) for name, schema in (parameters.get("properties") or {}).items()
    }
    return found | {"return": str}


def _python_type(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return inspect.Parameter.empty
    kind = schema.get("type")
    if isinstance(kind, str):
        return _PYTHON.get(kind, object)
    for option in schema.get("anyOf") or schema.get("oneOf") or []:
        if isinstance(option, Mapping) and option.get("type") in _PYTHON:
            return _PYTHON[option["type"]]
    return object
