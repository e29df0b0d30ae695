"""Environments of two methods, as TRL-ENV defines them: ``reset(seed)`` and ``step(action)`` give text."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol, get_type_hints

from ..authoring.results import ToolOutput, when_ready
from ..authoring.tools import tool
from ..errors import LoadError
from .objects import find, target_or_problem
from .procedural import Seeded, Seeds, changed, class_name, environment_name, origin, step_limit
from .spelling import unknown_setting

__all__ = ["TextProtocol", "text_environment"]

RewardMeaning = Literal["step", "total"]


class TextProtocol(Protocol):
    """Interface of the object of an episode. The methods may be async.

    It also has ``alive``, false when the episode is over, and its reward: ``last_step_reward`` (of the last
    step) or ``reward`` (of the last step, or so far: the setting ``reward`` says which).
    """

    def reset(self, seed: Any) -> Any: ...
    def step(self, action: str) -> Any: ...


class _Text(Seeded):
    """Base of the classes made below."""

    _make: ClassVar[tuple[Callable[[], Any]]]
    _seed_type: ClassVar[type]
    _total: ClassVar[bool]
    _lead: ClassVar[str]
    _steps: ClassVar[int | None]
    _object: Any = None
    _before = 0.0
    _done = 0

    def setup(self) -> Awaitable[None] | None:
        self._object = self._make[0]()
        return when_ready(self._object.reset(self._seed_type(self._seed)), self._begin)

    def teardown(self) -> Awaitable[None] | None:
        close = getattr(self._object, "close", None)
        found: Awaitable[None] | None = close() if callable(close) else None
        return found

    def _begin(self, text: Any) -> None:
        self._first = _text(text, "reset")
        if self._total:
            self._before = _number(self._object)

    def prompt(self) -> Any:
        return [self._lead, self._first] if self._lead else [self._first]

    @tool
    def step(self, action: str) -> Any:
        """Act by a text, and read the environment's answer.

        Args:
            action: What to do.
        """
        if not _alive(self._object) or self._done == self._steps:
            return ToolOutput(blocks=["The episode is over: nothing happened."], finished=True)
        return when_ready(self._object.step(action), self._answer)

    def _answer(self, text: Any) -> ToolOutput:
        self._done += 1
        value = _number(self._object)
        reward = value - self._before if self._total else value
        self._before = value
        cut = self._done == self._steps
        return ToolOutput(
            blocks=[_text(text, "step")], reward=reward, finished=cut or not _alive(self._object)
        )


def text_environment(
    factory: str | Callable[..., Any],
    *,
    reward: RewardMeaning = "step",
    prompt: str = "",
    max_steps: int | None = None,
    name: str | None = None,
    train_tasks: int = 10_000,
    test_tasks: int = 1_000,
    seed: int = 0,
    **arguments: Any,
) -> type[Seeded]:
    """A class, or a function that makes an object, with TRL-ENV's two methods, as an environment.

    factory: the class or function, or ``module:Class``. It is called with ``arguments`` for each episode.
    reward: whether ``reward`` is that of the last ``step``, or the ``total`` so far, of which each call then
        gives what was added.
    prompt: stands before the text of ``reset``.
    max_steps: the episode is over after so many steps.
    name, train_tasks, test_tasks, seed: as for the other adapters. ``reset`` gets the seed as a str if its
        parameter is annotated so, else as an int.

    Raises LoadError: there is no such class or setting, or it lacks one of the methods.
    """
    seeds = Seeds.checked(train_tasks=train_tasks, test_tasks=test_tasks, seed=seed)
    if reward not in ("step", "total"):
        raise LoadError(f"reward must be step or total; found {reward!r}")
    made = find("text", factory) if isinstance(factory, str) else factory
    target, problem = target_or_problem(factory)
    title = target or str(getattr(made, "__name__", "text"))
    reset = _check(made, title, arguments)
    given = changed(
        reward=(reward, "step"),
        prompt=(prompt, ""),
        max_steps=(max_steps, None),
        name=(name, None),
        train_tasks=(train_tasks, 10_000),
        test_tasks=(test_tasks, 1_000),
        seed=(seed, 0),
    )
    own = getattr(made, "__name__", "Text")
    members = {
        "__doc__": inspect.getdoc(made) if inspect.isclass(made) else f"What {own} makes.",
        "__module__": __name__,
        "_origin": origin("text", target, {**given, **arguments}, problem),
        "_name": environment_name(name, own),
        "_seeds": seeds,
        "_make": (lambda: made(**arguments),),
        "_seed_type": _seed_type(reset),
        "_total": reward == "total",
        "_lead": prompt,
        "_steps": step_limit(max_steps),
    }
    return type(class_name(own), (_Text,), members)


def _check(made: Callable[..., Any], title: str, arguments: dict[str, Any]) -> Any:
    """The ``reset`` of a class, None for a function. Raises LoadError."""
    if inspect.isclass(made):
        missing = [each for each in ("reset", "step") if not callable(getattr(made, each, None))]
        if missing:
            raise LoadError(f"text:{title} lacks {' and '.join(missing)}; write reset(seed) and step(action)")
    parameters: Mapping[str, inspect.Parameter]
    try:
        parameters = inspect.signature(made).parameters
    except (TypeError, ValueError):
        parameters = {}
    open_ended = not parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for key in arguments:
        if key not in parameters and not (open_ended and parameters):
            own = ("reward", "prompt", "max_steps", "name", "train_tasks", "test_tasks", "seed")
            raise unknown_setting("text", title, key, {*parameters, *own})
    return getattr(made, "reset", None) if inspect.isclass(made) else None


def _seed_type(reset: Any) -> type:
    try:
        hints = [kind for key, kind in get_type_hints(reset).items() if key != "return"]
    except Exception:  # no class, or annotations that cannot be resolved
        return int
    return str if hints[:1] == [str] else int


def _text(value: Any, method: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{method} must return text; it returned {type(value).__name__}")
    return value


def _alive(made: Any) -> bool:
    return bool(made.alive)


def _number(made: Any) -> float:
    found = made.last_step_reward if hasattr(made, "last_step_reward") else made.reward
    return float(found)
