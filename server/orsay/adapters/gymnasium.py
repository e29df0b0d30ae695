"""Environments of Gymnasium: one typed tool ``step``, tasks that are seeds."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..authoring.imports import search_here
from ..authoring.results import ToolOutput
from ..authoring.tools import tool
from ..errors import LoadError, ToolDefinitionError
from ..suggest import did_you_mean
from . import manual
from .plain import plain
from .procedural import Seeded, Seeds, changed, class_name, environment_name, origin
from .spelling import unknown_setting

if TYPE_CHECKING:
    import gymnasium

__all__ = ["gymnasium_environment"]

Render = Literal["image", "ansi"]
_MODES: dict[str | None, str | None] = {None: None, "image": "rgb_array", "ansi": "ansi"}
_OWN = ("render", "actions", "prompt", "name", "train_tasks", "test_tasks", "seed")
_MAKE = ("max_episode_steps", "disable_env_checker")
_COLOURED = re.compile(r"\x1b\[[\d;]*[1-9][\d;]*m(.*?)\x1b\[0?m", re.DOTALL)
_CODE = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
_INSTALL = "pip install 'orsay[gymnasium]'"


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Recipe for the environment of an episode, and its description."""

    make: Callable[[], gymnasium.Env[Any, Any]]
    rendered: bool
    prompt: str


class _Gymnasium(Seeded):
    """Base of the classes made below."""

    _recipe: ClassVar[_Recipe]
    _env: gymnasium.Env[Any, Any] | None = None
    _over = False

    def setup(self) -> None:
        self._env = self._recipe.make()
        self._first, _ = self._env.reset(seed=self._seed)

    def teardown(self) -> None:
        if self._env is not None:
            self._env.close()

    def prompt(self) -> Any:
        return [self._recipe.prompt, *self._see(self._first)]

    def _see(self, observation: Any) -> list[Any]:
        """Blocks for the model: the rendered state if ``render`` is set, else the observation."""
        spaces = _spaces()
        assert self._env is not None
        if self._recipe.rendered:
            frame = self._env.render()
            return [frame if hasattr(frame, "shape") else _without_colours(str(frame))]
        return list(spaces.to_blocks(self._env.observation_space, observation))

    def _act(self, action: Any) -> ToolOutput:
        if self._over or self._env is None:
            return ToolOutput(blocks=["The episode is over: nothing happened."], finished=True)
        observation, reward, terminated, truncated, info = self._env.step(action)
        self._over = bool(terminated or truncated)
        spaces = _spaces()
        space = self._env.observation_space
        details = {"terminated": bool(terminated), "truncated": bool(truncated), "info": plain(info)}
        if not spaces.is_picture(space):
            details["observation"] = spaces.encode(space, observation)
        return ToolOutput(
            blocks=self._see(observation), reward=float(reward), finished=self._over, metadata=details
        )


def gymnasium_environment(
    env_id: str,
    *,
    render: Render | None = None,
    actions: Sequence[str] | None = None,
    prompt: str | None = None,
    name: str | None = None,
    train_tasks: int = 10_000,
    test_tasks: int = 1_000,
    seed: int = 0,
    **settings: Any,
) -> type[Seeded]:
    """The environment that ``gymnasium.make(env_id, **settings)`` makes, as a class with one tool ``step``.

    render: what the model sees in place of the observation: ``image`` (mode rgb_array) or ``ansi`` (text).
    actions: names of the actions of a discrete space, in order, which the model then chooses from.
    prompt: replaces the environment's description of itself; the first observation follows it.
    name: what clients ask for; ``env_id`` without slashes by default.
    train_tasks, test_tasks, seed: the tasks are that many seeds, from ``seed`` on and a billion later.

    Raises LoadError: gymnasium is missing, or a package that the environment needs; it knows no such
    environment or setting; the action space has no form as the argument of a tool.
    """
    seeds = Seeds.checked(train_tasks=train_tasks, test_tasks=test_tasks, seed=seed)
    if render not in _MODES:
        raise LoadError(f"render must be image or ansi; found {render!r}")
    gym = _gymnasium()

    def make() -> gymnasium.Env[Any, Any]:
        mode = {} if render is None else {"render_mode": _MODES[render]}
        env: gymnasium.Env[Any, Any] = gym.make(env_id, **mode, **settings)
        return env

    env = _probe(gym, make, env_id, render, settings)
    try:
        step, text = _step(env, env_id, actions), prompt if prompt is not None else _prompt(env, env_id)
        title = environment_name(name, env_id)
    finally:
        env.close()
    given = changed(
        render=(render, None),
        actions=(actions, None),
        prompt=(prompt, None),
        name=(name, None),
        train_tasks=(train_tasks, 10_000),
        test_tasks=(test_tasks, 1_000),
        seed=(seed, 0),
    )
    members = {
        "__doc__": f"{env_id} of Gymnasium.",
        "__module__": __name__,
        "_origin": origin("gymnasium", env_id, {**given, **settings}),
        "_name": title,
        "_seeds": seeds,
        "_recipe": _Recipe(make, render is not None, text),
        "step": step,
    }
    try:
        return type(class_name(env_id), (_Gymnasium,), members)
    except ToolDefinitionError as exc:
        raise LoadError(f"gymnasium:{env_id}: {exc}") from exc


def _without_colours(text: str) -> str:
    """Terminal output as plain text: coloured parts in brackets, other escape codes removed."""
    return _CODE.sub("", _COLOURED.sub(r"[\1]", text))


def _step(env: gymnasium.Env[Any, Any], env_id: str, actions: Sequence[str] | None) -> Any:
    """The tool. Its argument's type is the action space."""
    space: Any = env.action_space
    discrete = type(space).__name__ == "Discrete"
    documented = manual.section(type(env.unwrapped).__doc__, "Action Space")
    if actions is not None:
        names = [str(each) for each in actions]
        if not discrete or len(names) != int(space.n) or len(set(names)) != len(names):
            raise LoadError(
                f"gymnasium:{env_id}: actions must name each action of {space} once; found {actions!r}"
            )
        kind: Any = Literal.__getitem__(tuple(names))
        first = int(space.start)
        chosen = {each: first + number for number, each in enumerate(names)}
        documented = ""
    else:
        kind, chosen = _type_of(space, env, env_id), {}

    def step(self: Any, action: Any) -> ToolOutput:
        output: ToolOutput = self._act(chosen[action] if chosen else action)
        return output

    step.__annotations__ = {"action": kind, "return": ToolOutput}
    step.__doc__ = "Do one action and see what comes of it." + (f"\n\n{documented}" if documented else "")
    return tool(step)


def _type_of(space: Any, env: gymnasium.Env[Any, Any], env_id: str) -> Any:
    spaces = _spaces()
    description = f"An element of {space}."
    if type(space).__name__ == "Discrete":
        first, count = int(space.start), int(space.n)
        known = getattr(env.unwrapped, "get_action_meanings", None)
        names = known() if callable(known) else manual.action_names(type(env.unwrapped).__doc__, first, count)
        if len(names) == count:
            description = ", ".join(f"{first + at}: {each}" for at, each in enumerate(names))
    try:
        return spaces.annotation(space, description=description)
    except spaces.UnsupportedSpace as exc:
        raise LoadError(f"gymnasium:{env_id} cannot be served: its action space {space}: {exc}") from exc


def _prompt(env: gymnasium.Env[Any, Any], env_id: str) -> str:
    text = type(env.unwrapped).__doc__
    parts = [manual.introduction(text) or f"You are in the environment {env_id}."]
    for title in ("Observation Space", "Rewards"):
        if found := manual.section(text, title):
            parts.append(f"{title}:\n{found}")
    parts.append("Act with the tool `step` until the episode ends. This is what you see first:")
    return "\n\n".join(parts)


def _probe(
    gym: Any, make: Callable[[], gymnasium.Env[Any, Any]], env_id: str, render: Any, settings: dict[str, Any]
) -> gymnasium.Env[Any, Any]:
    """A sample environment, to read its spaces. Raises LoadError with the remedy."""
    search_here()
    try:
        env = make()
        modes = env.metadata.get("render_modes", [])
        if _MODES[render] is not None and _MODES[render] not in modes:
            env.close()
            raise LoadError(f"gymnasium:{env_id} cannot be rendered as {render}; it has the modes {modes}")
        if render is not None:
            env.reset(seed=0)
            env.render()  # fails now if its drawing package is missing
    except gym.error.DependencyNotInstalled as exc:
        raise LoadError(f"gymnasium:{env_id} needs more to be installed: {exc}") from exc
    except gym.error.Error as exc:
        bare = env_id.rpartition(":")[2]
        raise LoadError(f"gymnasium:{env_id}: {exc}{did_you_mean(bare, gym.registry, listed=False)}") from exc
    except TypeError as exc:
        unknown = _unknown_setting(gym, env_id, settings)
        raise unknown or LoadError(f"gymnasium:{env_id} cannot be made: {exc}") from exc
    except LoadError:
        raise
    except Exception as exc:
        raise LoadError(f"gymnasium:{env_id} cannot be made: {type(exc).__name__}: {exc}") from exc
    return env


def _unknown_setting(gym: Any, env_id: str, settings: dict[str, Any]) -> LoadError | None:
    try:
        entry = gym.spec(env_id.rpartition(":")[2]).entry_point
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = getattr(importlib.import_module(module), attribute)
        parameters = inspect.signature(entry).parameters
    except Exception:  # a creator without a signature: the error of its call must suffice
        return None
    known = {*parameters, *_MAKE, *_OWN} - {"render_mode", "kwargs", "self"}
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return None
    unknown = next((key for key in settings if key not in known), None)
    return None if unknown is None else unknown_setting("gymnasium", env_id, unknown, known)


def _gymnasium() -> Any:
    try:
        return importlib.import_module("gymnasium")
    except ImportError as exc:
        raise LoadError(f"environments of Gymnasium need the package gymnasium ({exc}): {_INSTALL}") from exc


def _spaces() -> Any:
    return importlib.import_module(f"{__package__}.spaces")
