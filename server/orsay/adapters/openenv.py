"""Environments of OpenEnv: a running server, an image, or a class in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..authoring.results import ToolOutput
from ..errors import BadTask, LoadError
from .inputs import schema_tool
from .objects import find, target_or_problem
from .openenv_offer import ActionRefused, Offer, Play
from .openenv_results import Reply, observation_blocks, to_output, tool_result
from .openenv_source import Opening, open_source
from .procedural import (
    Adapted,
    Seeded,
    Seeds,
    changed,
    class_name,
    environment_name,
    origin,
    step_limit,
)

__all__ = ["openenv_environment"]

Score = Callable[[Mapping[str, Any]], "float | None"]
_OWN = ("prompt", "reward", "max_steps", "name", "train_tasks", "test_tasks", "seed", "answer_limit_s")
_OVER = "The episode is over: nothing happened."


@dataclass(frozen=True, slots=True)
class _Source:
    """Source of the episodes of one class, with prompt, reward function and step limit."""

    opening: Opening
    lead: str
    score: Score | None
    max_steps: int | None


class _OpenEnv(Adapted):
    """Base of the classes made below; the tools are added to each."""

    _source: ClassVar[_Source]
    _play: Play | None = None
    _over = False
    _done = 0

    async def setup(self) -> None:
        self._play = await self._source.opening.play()
        self._first = await self._play.reset(**self._reset_settings())
        self._over = self._first.done

    async def teardown(self) -> None:
        if self._play is not None:
            await self._play.close()

    def prompt(self) -> Any:
        lead = [self._source.lead] if self._source.lead else []
        seen = {
            key: value for key, value in self._first.observation.items() if value not in (None, "", [], {})
        }
        return [*lead, *(observation_blocks(seen) if seen else [])] or [self._name]

    def _reset_settings(self) -> dict[str, Any]:
        raise NotImplementedError

    async def _step(self, action: dict[str, Any]) -> ToolOutput:
        if self._over or self._play is None:
            return ToolOutput(blocks=[_OVER], finished=True)
        try:
            reply = await self._play.step(action)
        except ActionRefused as exc:
            return ToolOutput(blocks=[f"The action was refused: {exc}"], metadata={"error": str(exc)})
        return self._result(reply, observation_blocks(reply.observation))

    async def _call(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        if self._over or self._play is None:
            return ToolOutput(blocks=[_OVER], finished=True)
        reply = await self._play.call(name, arguments)
        return self._result(reply, tool_result(reply.observation))

    def _result(self, reply: Reply, blocks: list[Any]) -> ToolOutput:
        self._done += 1
        self._over = reply.done or self._done == self._source.max_steps
        output = to_output(reply, blocks, finished=self._over)
        if self._source.score is not None:
            output.reward = self._source.score(
                {"observation": reply.observation, "reward": reply.reward, "done": reply.done}
            )
        return output


class _WithSeeds(_OpenEnv, Seeded):
    """Environments without tasks of their own: tasks are seeds."""

    def _reset_settings(self) -> dict[str, Any]:
        return {"seed": self._seed}


class _WithTasks(_OpenEnv):
    """Environments with tasks: a task is named by split and index when the episode is reset."""

    def __init__(self, task_spec: Any = None, secrets: Mapping[str, str] | None = None) -> None:
        super().__init__(task_spec, secrets)
        if not isinstance(self.task_spec.get("split"), str) or not isinstance(
            self.task_spec.get("index"), int
        ):
            raise BadTask(f'a task of {self._name!r} is {{"split": name, "index": number}}')

    @classmethod
    def list_splits(cls) -> list[Any]:
        return list(cls._source.opening.offer.splits)

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        found = await cls._source.opening.ask("num_tasks", {"split": split})
        return int(found["num_tasks"])

    @classmethod
    async def get_task(cls, split: str, index: int) -> dict[str, Any]:
        if index < 0:
            index += await cls.num_tasks(split)
        if index < 0:
            raise IndexError(f"{split!r} has fewer tasks")
        found = await cls._source.opening.ask("task", {"split": split, "index": index})
        return {"split": split, "index": index, "task": found.get("task")}

    def _reset_settings(self) -> dict[str, Any]:
        return {"split": self.task_spec["split"], "index": self.task_spec["index"]}


def openenv_environment(
    source: str | type,
    *,
    prompt: str | None = None,
    reward: str | Score | None = None,
    max_steps: int | None = None,
    name: str | None = None,
    train_tasks: int = 10_000,
    test_tasks: int = 1_000,
    seed: int = 0,
    answer_limit_s: float = 600.0,
    **settings: Any,
) -> type[Adapted]:
    """An environment of OpenEnv. Each ORS session is one OpenEnv session, or one container, or one instance.

    source: the URL of a running server, ``image:NAME`` for a Docker image that holds one, or a class (or
        ``module:Class``) that is made in this process.
    prompt: stands before the first observation; by default the environment's description of itself.
    reward: a function (or ``module:function``) that gives the reward of each step from a dict with
        ``observation``, ``reward`` and ``done``, in place of the reward that OpenEnv gave.
    max_steps: the episode is over after so many calls, for environments that do not end by themselves.
    answer_limit_s: how long a server may take for one answer.
    settings: for a class, arguments of its constructor, and ``concurrent``: whether several episodes may
        live in one process, where the class does not say so. For a URL: ``headers``. For an image:
        ``env_vars``.

    Raises LoadError: openenv is missing, nothing answers at the URL, there is no such class, image or
    setting, or no Docker to run the image.
    """
    seeds = Seeds.checked(train_tasks=train_tasks, test_tasks=test_tasks, seed=seed)
    target, problem = target_or_problem(source)
    given = changed(
        prompt=(prompt, None),
        reward=(reward if reward is None else target_or_problem(reward)[0] or reward, None),
        max_steps=(step_limit(max_steps), None),
        name=(name, None),
        train_tasks=(train_tasks, 10_000),
        test_tasks=(test_tasks, 1_000),
        seed=(seed, 0),
        answer_limit_s=(answer_limit_s, 600.0),
    )
    opening = open_source(source, settings, answer_limit_s, known=_OWN)
    offer = opening.offer
    lead = prompt if prompt is not None else offer.description
    members: dict[str, Any] = {
        "__doc__": offer.description or f"{offer.name} of OpenEnv.",
        "__module__": __name__,
        "_origin": origin("openenv", target, {**given, **settings}, problem),
        "_name": environment_name(name, offer.name),
        "_source": _Source(opening, lead, _score(reward), max_steps),
    }
    members.update(_tools(offer))
    if offer.splits:
        return type(class_name(offer.name), (_WithTasks,), members)
    return type(class_name(offer.name), (_WithSeeds,), {**members, "_seeds": seeds})


def _tools(offer: Offer) -> dict[str, Any]:
    """The environment's tools by their names, changed where a name means something else in a class."""
    found: dict[str, Any] = {}
    if offer.action is not None:
        schema = {**offer.action}
        fields = {key: each for key, each in schema.get("properties", {}).items() if key != "metadata"}
        schema["properties"] = fields
        text = str(schema.pop("description", "")) or "Do one action and see what comes of it."
        found["step"] = schema_tool(text, schema, _OpenEnv._step)
    for each in offer.tools:
        taken = each.name in found or hasattr(_WithSeeds, each.name) or hasattr(_WithTasks, each.name)
        found[f"{each.name}_tool" if taken else each.name] = _mcp_tool(
            each.name, each.description, each.schema
        )
    if not found:
        raise LoadError(f"{offer.name} of OpenEnv offers neither actions nor tools")
    return found


def _mcp_tool(name: str, description: str, schema: Mapping[str, Any]) -> Any:
    async def run(environment: _OpenEnv, arguments: dict[str, Any]) -> ToolOutput:
        return await environment._call(name, arguments)

    return schema_tool(description, schema, run)


def _score(reward: str | Score | None) -> Score | None:
    return find("openenv", reward) if isinstance(reward, str) else reward
