"""Reward function for TRL by which an environment compares the rollouts of a GRPO group."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from orsay_client import errors
from orsay_client.transport import encode_json
from orsay_protocol import GroupCandidate, Message, TextBlock, ToolCallBlock, ToolResultBlock
from orsay_protocol.texts import well_formed
from pydantic_core import from_json

from ..play.content import text_of
from ..play.episode import LARGEST_REWARD, Episode
from ._trl import trainer_of
from .environment import RolloutEnvironment
from .groups import Groups, groups_of, require_one_task
from .processes import everywhere

__all__ = ["Completion", "GroupReward", "candidate"]

_log = logging.getLogger("orsay_trl")
_LEVELS = 8  # of JSON around an input in the body of /score_group

Completion: TypeAlias = Sequence[Mapping[str, Any]] | str


@dataclass(frozen=True, slots=True)
class _Member:
    """One rollout of a group, as processes exchange it. No candidate: it was lost to a fault."""

    position: int
    """Among the rollouts of all processes."""
    task: str
    candidate: GroupCandidate | None


class GroupReward:
    """Reward function: the scores of the environment's ``score_group`` for each group of rollouts.

    A group is what the trainer compares: each ``num_generations`` rollouts in a row, in an evaluation
    ``num_generations_eval``. A rollout lost to a fault takes no part and gets None; so does a whole group
    whose scoring fails. A group in several processes is scored by the first one that has a usable session.

    The group size comes from TRL's GRPO trainer, found by ``log_metric``, else from ``num_generations``.
    Raises ValueError without either, and for a group with several tasks.
    """

    __name__ = "group_reward"

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Completion],
        environments: Sequence[RolloutEnvironment] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        num_generations: Any = None,
        **_: Any,
    ) -> list[float | None]:
        if environments is None:
            raise ValueError(
                "group_reward needs the environments, which this trainer does not hand to reward functions"
            )
        groups = groups_of(len(environments), trainer_of(log_metric), num_generations)
        mine = {
            number: [
                _member(groups.first + at, environments[at], prompts[at], completions[at]) for at in positions
            ]
            for number, positions in groups.here().items()
        }
        scores: dict[int, float | None] = {}
        for number, members in _with_others(mine, groups).items():
            require_one_task(number, [member.task for member in members])
            compared = {
                member.position: member.candidate for member in members if member.candidate is not None
            }
            if compared and groups.has(min(compared)):
                own = [environments[groups.local(position)] for position in compared if groups.has(position)]
                found = own[0].live.run(_score([_episode(e) for e in own], list(compared.values())))
                scores |= dict(zip(compared, found, strict=True))
        if not groups.are_whole:
            scores = {position: score for theirs in everywhere(scores) for position, score in theirs.items()}
        return [scores.get(groups.first + at) for at in range(groups.count)]


def _with_others(mine: dict[int, list[_Member]], groups: Groups) -> dict[int, list[_Member]]:
    """The groups of this process, each with its rollouts in others."""
    if groups.are_whole:
        return mine
    cut = {number: members for number, members in mine.items() if len(members) < groups.size}
    ranks = everywhere(cut)
    joined = {number: [member for rank in ranks for member in rank.get(number, ())] for number in cut}
    return mine | joined


def _member(position: int, environment: RolloutEnvironment, prompt: Any, completion: Completion) -> _Member:
    episode = environment.episode
    if episode is None:
        return _Member(position, "no task", None)
    task = f"{environment.live.class_name} {episode.task!r}"
    kept = episode.fault is None
    return _Member(position, task, candidate(prompt, completion, episode) if kept else None)


def _episode(environment: RolloutEnvironment) -> Episode:
    assert environment.episode is not None  # or it would be no candidate
    return environment.episode


async def _score(episodes: Sequence[Episode], candidates: list[GroupCandidate]) -> list[float | None]:
    """Scores of a group, by its first session that can score; None for each where none can."""
    for episode in episodes:
        try:
            scores = [score.reward for score in await episode.score_group(candidates)]
        except (errors.Fault, errors.ToolRefused, errors.ClientClosed) as exc:
            _log.warning("rollout %s could not score its group: %s", episode.id, exc)
            continue
        if not all(abs(score) <= LARGEST_REWARD for score in scores):  # False for NaN
            _log.warning("the scores of a group are not used, they go beyond %g: %s", LARGEST_REWARD, scores)
            break
        return list(scores)
    return [None] * len(candidates)


def candidate(prompt: Any, completion: Completion, episode: Episode) -> GroupCandidate:
    """A rollout as messages of the standard: chat messages of OpenAI's form in, blocks out."""
    chat: list[Mapping[str, Any]] = []
    for role, part in (("user", prompt), ("assistant", completion)):
        chat += [{"role": role, "content": part}] if isinstance(part, str) else list(part)
    messages: list[Message] = []
    calls: list[str] = []
    for turn in chat:
        text = well_formed(text_of(turn.get("content") or ""))
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
            name = well_formed(function["name"])
            blocks.append(ToolCallBlock(id=call_id, name=name, input=_input(function.get("arguments"))))
        messages.append(Message(role=turn["role"], blocks=blocks))
    return GroupCandidate(messages=messages, metadata={"rollout": episode.id, "reward": episode.reward})


def _input(arguments: Any) -> dict[str, Any]:
    """Arguments for a message; empty for invalid ones."""
    try:
        found = json.loads(arguments) if isinstance(arguments, str) else arguments
        from_json(b"[" * _LEVELS + encode_json(found) + b"]" * _LEVELS)  # nesting as in the request body
    except (ValueError, RecursionError, errors.BadRequest):
        return {}
    return found if isinstance(found, dict) else {}
