"""Rollouts of an ``EnvironmentSpec``: by tool calls, or by one free text for each step."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from ..play.environment import Environments, LiveEnvironment
from ..play.episode import Episode
from ..trainer._trl import label_sessions
from ..trainer.metrics import log_episodes
from .context import RolloutContext, RolloutDriver
from .loop import Dialogue, Rollout, StopReason, play_tools, text_only
from .text import ActionParser, EpisodeGame, PromptBuilder, merged, play_text
from .tokens import Message

__all__ = ["SpecBackend", "TextSpecBackend"]

_T = TypeVar("_T")


class SpecBackend:
    """Plays the tasks that prompts name, by tool calls."""

    def __init__(self, spec: Environments) -> None:
        self.spec = spec

    def drivers(self, prompts: Sequence[Any], trainer: Any) -> list[RolloutDriver]:
        """Raises ValueError for a prompt that names no task."""
        found: list[RolloutDriver] = []
        for prompt in prompts:
            task = _task_of(prompt)
            live = self.spec.member(task)
            label_sessions([live], state=trainer.state, args=trainer.args, model=trainer.model)
            found.append(self._driver(live, live.episode(task), prompt))
        return found

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Result of ``work`` on the environment's own loop, where its sessions are kept alive."""
        return self.spec.members()[0].pool.play(work)

    def judge(self, rollouts: Sequence[Rollout], log_metric: Callable[[str, float], None]) -> None:
        """Log the metrics of the episodes, like the reward function of ``environment_factory``."""
        log_episodes([(rollout.live, rollout.episode, rollout.reward) for rollout in rollouts], log_metric)
        for live in self.spec.members():
            own = [rollout.episode for rollout in rollouts if rollout.live is live]
            if own:
                live.faults.check_batch(own)

    def _driver(self, live: LiveEnvironment, episode: Episode, prompt: Sequence[Message]) -> RolloutDriver:
        return _ToolDriver(live, episode, prompt)


class TextSpecBackend(SpecBackend):
    """Plays the tasks by one free text for each step."""

    def __init__(
        self, spec: Environments, prompt_builder: PromptBuilder, action_parser: ActionParser
    ) -> None:
        super().__init__(spec)
        self.prompt_builder = prompt_builder
        self.action_parser = action_parser

    def _driver(self, live: LiveEnvironment, episode: Episode, prompt: Sequence[Message]) -> RolloutDriver:
        return _TextDriver(live, episode, prompt, self.prompt_builder, self.action_parser)


class _ToolDriver:
    """One rollout by tool calls."""

    def __init__(self, live: LiveEnvironment, episode: Episode, prompt: Sequence[Message]) -> None:
        self.live = live
        self.episode = episode
        self.prompt = prompt

    async def play(self, context: RolloutContext) -> Rollout:
        """Raises what the sampler raises; RequestError or ProtocolError where the task itself is wrong."""
        episode = self.episode
        try:
            await self.live.pool.open(episode)
            dialogue = self._dialogue(
                context, "" if episode.fault is not None else text_only(episode.observation)
            )
            reason: StopReason = (
                "fault" if episode.fault is not None else await self._turns(dialogue, context)
            )
            episode.stop_reason = reason
            return self._rollout(dialogue, context, reason)
        finally:
            await self.live.pool.close([episode])

    def _dialogue(self, context: RolloutContext, observation: str) -> Dialogue:
        return Dialogue(
            context.chat,
            context.sampler,
            context.limits,
            merged(self.prompt, observation),
            self.episode.tools,
        )

    async def _turns(self, dialogue: Dialogue, context: RolloutContext) -> StopReason:
        return await play_tools(self.episode, dialogue, context.parser)

    def _rollout(self, dialogue: Dialogue, context: RolloutContext, reason: StopReason) -> Rollout:
        episode, transcript = self.episode, dialogue.transcript
        reward = episode.reward
        if episode.fault is not None:  # also a fault of the reward
            episode.stop_reason = reason = "fault"
        if episode.fault is not None or not transcript.completion_ids:
            transcript = transcript.masked(context.filler)
        return Rollout(
            id=episode.id,
            transcript=transcript,
            stop_reason=reason,
            reward=reward,
            fault=episode.fault,
            turns=dialogue.turns,
            unreadable_calls=dialogue.unreadable_calls,
            sampling_s=dialogue.sampling_s,
            environment_s=episode.seconds,
            episode=episode,
            live=self.live,
        )


class _TextDriver(_ToolDriver):
    """One rollout by free text."""

    def __init__(
        self,
        live: LiveEnvironment,
        episode: Episode,
        prompt: Sequence[Message],
        prompt_builder: PromptBuilder,
        action_parser: ActionParser,
    ) -> None:
        super().__init__(live, episode, prompt)
        self.prompt_builder = prompt_builder
        self.action_parser = action_parser

    def _dialogue(self, context: RolloutContext, observation: str) -> Dialogue:
        built = text_only(self.prompt_builder(observation, 1, []))
        return Dialogue(context.chat, context.sampler, context.limits, merged(self.prompt, built))

    async def _turns(self, dialogue: Dialogue, context: RolloutContext) -> StopReason:
        game = EpisodeGame(self.episode)
        return await play_text(game, dialogue, context.parser, self.prompt_builder, self.action_parser)


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
