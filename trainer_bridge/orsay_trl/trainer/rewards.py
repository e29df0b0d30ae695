"""Reward function for TRL that scores episodes; ``group_reward`` has the one that compares a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..play.content import text_of
from ..play.environment import LiveEnvironment
from ..play.episode import Episode, common_prompt
from . import metrics
from ._trl import label_sessions, trainer_of
from .environment import RolloutEnvironment
from .group_reward import Completion, GroupReward, candidate
from .groups import groups_of
from .processes import everywhere

__all__ = ["EnvironmentReward", "GroupReward", "candidate"]


class EnvironmentReward:
    """Reward function: the reward of each rollout's episode, None after a fault.

    If the environment has a terminal tool, it gets the model's last plain message first. With
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
            if env_reward is not None:  # a rollout function has scored already
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
        for live, group in _by_environment(played):
            label_sessions([live], state=trainer_state)
            live.faults.check_batch([e.episode for e in group if e.episode is not None])
        return rewards


def _grade_messages(environments: Sequence[RolloutEnvironment], completions: Sequence[Completion]) -> None:
    """Pass the last plain message of each unfinished episode to its terminal tool, concurrently."""
    completion_of = {id(e): completion for e, completion in zip(environments, completions, strict=True)}
    for live, group in _by_environment(environments):
        if live.tools.terminal is None:
            continue
        last = [
            (episode, _last_message(completion_of[id(e)]))
            for e in group
            if (episode := e.episode) is not None and not episode.finished and episode.fault is None
        ]

        async def say_all(last: list[tuple[Episode, str | None]] = last) -> None:
            await asyncio.gather(*(episode.say(text) for episode, text in last if text is not None))

        live.run(say_all())


def _last_message(completion: Completion) -> str | None:
    """The final text of the model's last turn, None if it ends with a call or is truncated."""
    if isinstance(completion, str):
        return completion
    if not completion or completion[-1]["role"] != "assistant" or completion[-1].get("tool_calls"):
        return None
    return text_of(completion[-1].get("content") or "")


def _by_environment(
    environments: Iterable[RolloutEnvironment],
) -> list[tuple[LiveEnvironment, list[RolloutEnvironment]]]:
    groups: dict[int, list[RolloutEnvironment]] = {}
    for environment in environments:
        groups.setdefault(id(environment.live), []).append(environment)
    return [(group[0].live, group) for group in groups.values()]


def _require_prompts_of_groups(environments: Sequence[RolloutEnvironment], log_metric: Any) -> None:
    """Require one prompt per group, since vLLM in server mode samples a group from its first prompt.

    Raises ValueError if sessions of one group have different prompts.
    """
    trainer = trainer_of(log_metric)
    if not getattr(trainer, "use_vllm", False) or getattr(trainer, "vllm_mode", None) != "server":
        return
    groups = groups_of(len(environments), trainer)
    here = {
        number: [e for position in positions if (e := environments[position].episode) is not None]
        for number, positions in groups.here().items()
    }
    began = {number: [(e.began, e.observation) for e in group] for number, group in here.items()}
    ranks = [began] if groups.are_whole else everywhere(began)
    for number, group in here.items():
        begun = [one for rank in ranks for one in rank.get(number, ())]
        if not group:
            continue
        prompt = common_prompt(begun, group[0].task)
        if begun[0][1] != prompt:
            for episode in group:
                episode.mark_lost(
                    "no_prompt", "the first rollout of its group, whose prompt counts, had none"
                )


def _offer_attachment(played: Sequence[RolloutEnvironment], log_metric: Any) -> None:
    trainer = trainer_of(log_metric)
    if trainer is None or not any(environment.live.options.attach for environment in played):
        return
    from .concurrent import attach_quietly  # needs trl, which called us

    attach_quietly(trainer)
