"""Rollouts of an ``EnvironmentSpec``: by tool calls, or by one free text for each step."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..trainer.metrics import log_episodes
from .loop import Rollout, StopReason, Talk, play_tools, text_only
from .text import EpisodeGame, merged, play_text
from .tokens import Message

if TYPE_CHECKING:
    from ..mixture import Mixture
    from ..play.episode import Episode
    from ..spec import EnvironmentSpec
    from .context import Desk
    from .rollout_func import Player
    from .text import ActionParser, PromptBuilder

__all__ = ["SpecArena", "TextSpecArena"]

_T = TypeVar("_T")


class SpecArena:
    """Plays the tasks that prompts name, by tool calls."""

    def __init__(self, spec: EnvironmentSpec | Mixture) -> None:
        self.spec = spec

    def players(self, prompts: Sequence[Any], trainer: Any) -> list[Player]:
        """Raises ValueError for a prompt that names no task."""
        found: list[Player] = []
        for prompt in prompts:
            task = _task_of(prompt)
            spec = self.spec.member(task)
            spec.serve_step(trainer.args, int(trainer.state.global_step), trainer.model)
            found.append(self._player(spec, spec.episode(task), prompt))
        return found

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """On the spec's own loop: its sessions are kept alive there."""
        return self.spec.members()[0].stage.play(work)

    def judge(self, rollouts: Sequence[Rollout], log_metric: Callable[[str, float], None]) -> None:
        """Log the episodes' numbers as the reward function of ``environment_factory`` does."""
        log_episodes([(rollout.spec, rollout.episode, rollout.reward) for rollout in rollouts], log_metric)
        for spec in self.spec.members():
            own = [rollout.episode for rollout in rollouts if rollout.spec is spec]
            if own:
                spec.faults.batch(own)

    def _player(self, spec: EnvironmentSpec, episode: Episode, prompt: Sequence[Message]) -> Player:
        return _ToolPlayer(spec, episode, prompt)


class TextSpecArena(SpecArena):
    """Plays them by one free text for each step."""

    def __init__(
        self, spec: EnvironmentSpec | Mixture, prompt_builder: PromptBuilder, action_parser: ActionParser
    ) -> None:
        super().__init__(spec)
        self.prompt_builder = prompt_builder
        self.action_parser = action_parser

    def _player(self, spec: EnvironmentSpec, episode: Episode, prompt: Sequence[Message]) -> Player:
        return _TextPlayer(spec, episode, prompt, self.prompt_builder, self.action_parser)


class _ToolPlayer:
    """One rollout by tool calls."""

    def __init__(self, spec: EnvironmentSpec, episode: Episode, prompt: Sequence[Message]) -> None:
        self.spec = spec
        self.episode = episode
        self.prompt = prompt

    async def play(self, desk: Desk) -> Rollout:
        """Raises what the sampler raises; RequestError or ProtocolError where the task itself is wrong."""
        episode = self.episode
        try:
            await self.spec.stage.open(episode)
            talk = self._talk(desk, "" if episode.fault is not None else text_only(episode.observation))
            reason: StopReason = "fault" if episode.fault is not None else await self._turns(talk, desk)
            episode.stop_reason = reason
            return self._rollout(talk, desk, reason)
        finally:
            await self.spec.stage.close([episode])

    def _talk(self, desk: Desk, observation: str) -> Talk:
        return Talk(
            desk.chat, desk.sampler, desk.limits, merged(self.prompt, observation), self.episode.tools
        )

    async def _turns(self, talk: Talk, desk: Desk) -> StopReason:
        return await play_tools(self.episode, talk, desk.parser)

    def _rollout(self, talk: Talk, desk: Desk, reason: StopReason) -> Rollout:
        episode, transcript = self.episode, talk.transcript
        reward = episode.reward
        if episode.fault is not None:  # also one that came with the reward
            episode.stop_reason = reason = "fault"
        if episode.fault is not None or not transcript.completion_ids:
            transcript = transcript.masked(desk.filler)
        return Rollout(
            id=episode.id,
            transcript=transcript,
            stop_reason=reason,
            reward=reward,
            fault=episode.fault,
            turns=talk.turns,
            unreadable_calls=talk.unreadable_calls,
            sampling_s=talk.sampling_s,
            environment_s=episode.seconds,
            episode=episode,
            spec=self.spec,
        )


class _TextPlayer(_ToolPlayer):
    """One rollout by free text."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        episode: Episode,
        prompt: Sequence[Message],
        prompt_builder: PromptBuilder,
        action_parser: ActionParser,
    ) -> None:
        super().__init__(spec, episode, prompt)
        self.prompt_builder = prompt_builder
        self.action_parser = action_parser

    def _talk(self, desk: Desk, observation: str) -> Talk:
        built = text_only(self.prompt_builder(observation, 1, []))
        return Talk(desk.chat, desk.sampler, desk.limits, merged(self.prompt, built))

    async def _turns(self, talk: Talk, desk: Desk) -> StopReason:
        game = EpisodeGame(self.episode)
        return await play_text(game, talk, desk.parser, self.prompt_builder, self.action_parser)


def _task_of(prompt: Any) -> dict[str, Any]:
    last = prompt[-1] if isinstance(prompt, Sequence) and not isinstance(prompt, str) and prompt else {}
    task = last.get("task") if isinstance(last, Mapping) else None
    if isinstance(task, str):
        task = json.loads(task)
    if not isinstance(task, Mapping):
        raise ValueError(
            "a prompt names no task, and TRL hands rollout functions no other columns: "
            "train on spec.rollout_dataset, or put the task into the last message, as "
            '{"role": "user", "content": "", "task": {"task_split": "train", "task_index": 0}}'
        )
    return dict(task)
