"""Reward functions for TRL: what episodes are worth, and how an environment compares a group of them."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from orsay_client import errors
from orsay_protocol import (
    GroupCandidate,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

from . import metrics
from .content import text_of
from .episode import common_prompt

if TYPE_CHECKING:
    from .binding import RolloutEnvironment
    from .episode import Episode

__all__ = ["EnvironmentReward", "GroupReward", "candidate"]

_log = logging.getLogger("orsay_trl")

Completion: TypeAlias = Sequence[Mapping[str, Any]] | str


class EnvironmentReward:
    """Reward function: the reward of each rollout's episode, None after a fault.

    Where the environment has a terminal tool, the model's last plain message is handed in first. With
    ``log_metric`` and ``log_extra``, as TRL gives them, it logs the metrics and the rollouts' ids. Raises
    TooManyFaults when more of a batch is lost than the spec allows.
    """

    __name__ = "environment_reward"

    def __call__(
        self,
        environments: Sequence[RolloutEnvironment] | None = None,
        prompts: Sequence[Any] | None = None,
        completions: Sequence[Completion] | None = None,
        env_reward: Sequence[float | None] | None = None,
        trainer_state: Any = None,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        if environments is None:
            if env_reward is not None:  # of a rollout function, which has scored already
                return list(env_reward)
            # AsyncGRPO hands over no environments; there get_reward() of each is the reward.
            return [None] * len(completions or prompts or ())
        played = [environment for environment in environments if environment.episode is not None]
        if completions is not None:
            _grade_messages(environments, completions)
        _require_prompts_of_groups(environments, log_metric)
        rewards = [environment.reward for environment in environments]
        for environment in played:
            environment.scored_by_function = True
        if log_metric is not None:
            metrics.log(list(zip(environments, rewards, strict=True)), log_metric)
        if log_extra is not None:
            log_extra("rollout_id", [e.episode.id if e.episode is not None else None for e in environments])
        _offer_attachment(played, log_metric)
        for spec, group in _by_spec(played):
            if trainer_state is not None:
                spec.stage.step = int(getattr(trainer_state, "global_step", 0))
            spec.faults.batch([e.episode for e in group if e.episode is not None])
        return rewards


class GroupReward:
    """Reward function: the scores of the environment's ``score_group`` for the rollouts of each task.

    A rollout lost to a fault takes no part and gets None; so does a whole group whose scoring fails. Groups
    are the neighbours in a batch that play one task: keep each within one process, with a batch size that is
    a multiple of ``num_generations``.
    """

    __name__ = "group_reward"

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Completion],
        environments: Sequence[RolloutEnvironment] | None = None,
        **_: Any,
    ) -> list[float | None]:
        if environments is None:
            raise ValueError(
                "group_reward needs the environments, which this trainer does not hand to reward functions"
            )
        scores: list[float | None] = [None] * len(environments)
        for places in _groups(environments):
            group = {
                place: episode
                for place in places
                if (episode := environments[place].episode) is not None and episode.fault is None
            }
            if not group:
                continue
            candidates = [candidate(prompts[at], completions[at], group[at]) for at in group]
            found = environments[places[0]].spec.run(_score(list(group.values()), candidates))
            for place, score in zip(group, found, strict=True):
                scores[place] = score
        return scores


async def _score(episodes: Sequence[Episode], candidates: list[GroupCandidate]) -> list[float | None]:
    """By the first session of the group that can."""
    for episode in episodes:
        try:
            return [score.reward for score in await episode.score_group(candidates)]
        except (errors.Fault, errors.ClientClosed) as exc:
            _log.warning("rollout %s could not score its group: %s", episode.id, exc)
    return [None] * len(episodes)


def candidate(prompt: Any, completion: Completion, episode: Episode) -> GroupCandidate:
    """A rollout as messages of the standard: chat messages of OpenAI's form in, blocks out."""
    chat: list[Mapping[str, Any]] = []
    for role, part in (("user", prompt), ("assistant", completion)):
        chat += [{"role": role, "content": part}] if isinstance(part, str) else list(part)
    messages: list[Message] = []
    calls: list[str] = []
    for turn in chat:
        text = text_of(turn.get("content") or "")
        if turn["role"] == "tool":
            call_id = calls.pop(0) if calls else "call"
            result = ToolResultBlock(tool_call_id=call_id, blocks=[TextBlock(text=text)])
            if (
                messages
                and messages[-1].role == "user"
                and isinstance(messages[-1].blocks[-1], ToolResultBlock)
            ):
                messages[-1] = Message(role="user", blocks=[*messages[-1].blocks, result])
            else:
                messages.append(Message(role="user", blocks=[result]))
            continue
        blocks: list[Any] = [TextBlock(text=text)] if text else []
        for call in turn.get("tool_calls") or ():
            function = call["function"]
            call_id = str(call.get("id") or f"call_{len(messages)}_{len(calls)}")
            calls.append(call_id)
            arguments = function.get("arguments") or {}
            if isinstance(arguments, str):
                arguments = json.loads(arguments)
            blocks.append(ToolCallBlock(id=call_id, name=function["name"], input=arguments))
        messages.append(Message(role=turn["role"], blocks=blocks))
    return GroupCandidate(messages=messages, metadata={"rollout": episode.id, "reward": episode.reward})


def _grade_messages(environments: Sequence[RolloutEnvironment], completions: Sequence[Completion]) -> None:
    """Hand the last plain message of each unfinished episode to its terminal tool, all at the same time."""
    completion_of = {id(e): completion for e, completion in zip(environments, completions, strict=True)}
    for spec, group in _by_spec(environments):
        if spec.tools.terminal is None:
            continue
        said = [
            (episode, _last_message(completion_of[id(e)]))
            for e in group
            if (episode := e.episode) is not None and not episode.finished and episode.fault is None
        ]

        async def say_all(said: list[tuple[Episode, str | None]] = said) -> None:
            await asyncio.gather(*(episode.say(text) for episode, text in said if text is not None))

        spec.run(say_all())


def _last_message(completion: Completion) -> str | None:
    """The text with which the model ended its turn, None when it ended otherwise: with a call, or cut off."""
    if isinstance(completion, str):
        return completion
    if not completion or completion[-1]["role"] != "assistant" or completion[-1].get("tool_calls"):
        return None
    return text_of(completion[-1].get("content") or "")


def _by_spec(environments: Iterable[RolloutEnvironment]) -> list[tuple[Any, list[RolloutEnvironment]]]:
    groups: dict[int, list[RolloutEnvironment]] = {}
    for environment in environments:
        groups.setdefault(id(environment.spec), []).append(environment)
    return [(group[0].spec, group) for group in groups.values()]


def _groups(environments: Sequence[RolloutEnvironment]) -> list[list[int]]:
    """Places of neighbours that play the same task."""

    def key(place: int) -> Any:
        environment = environments[place]
        task = environment.episode.task if environment.episode is not None else None
        return (id(environment.spec), repr(task))

    return [list(group) for _, group in itertools.groupby(range(len(environments)), key)]


def _require_prompts_of_groups(environments: Sequence[RolloutEnvironment], log_metric: Any) -> None:
    """vLLM in server mode samples a group from its first prompt: what was sampled from another is lost.

    Raises ValueError where sessions of one task began with different prompts.
    """
    trainer = getattr(log_metric, "__self__", None)
    if not getattr(trainer, "use_vllm", False) or getattr(trainer, "vllm_mode", None) != "server":
        return
    for places in _groups(environments):
        group = [e for place in places if (e := environments[place].episode) is not None]
        prompt = common_prompt(group)
        if group and group[0].observation != prompt:
            for episode in group:
                episode.lose("no_prompt", "the first rollout of its group, whose prompt counts, had none")


def _offer_attachment(played: Sequence[RolloutEnvironment], log_metric: Any) -> None:
    """TRL tells reward functions nothing of the trainer, but gives them one of its methods."""
    trainer = getattr(log_metric, "__self__", None)
    if trainer is None or not any(environment.spec.attach for environment in played):
        return
    from .trainer import attach_quietly  # needs trl, which called us

    attach_quietly(trainer)
