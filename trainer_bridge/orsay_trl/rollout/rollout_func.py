"""``vllm_rollout_func``: a batch of rollouts for ``trl.GRPOTrainer(rollout_func=…)``, by token ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .context import Desk, DeskSettings
from .loop import Rollout
from .metrics import log_rollouts
from .parity import parity

if TYPE_CHECKING:
    from ..mixture import Mixture
    from ..spec import EnvironmentSpec
    from .sampling import Sampler
    from .sync import DiskSync
    from .text import ActionParser, PromptBuilder

__all__ = ["Arena", "Player", "RolloutFunction", "reward_func", "vllm_rollout_func"]

_log = logging.getLogger("orsay_trl")


class Player(Protocol):
    """One rollout that can be played; it raises what no rollout can recover from."""

    async def play(self, desk: Desk) -> Rollout: ...


class Arena(Protocol):
    """Where rollouts are played: an environment, and the event loop that belongs to it."""

    def players(self, prompts: Sequence[Any], trainer: Any) -> list[Player]:
        """One for each prompt, in their order; called on the trainer's thread."""
        ...

    def run(self, work: Coroutine[Any, Any, list[Rollout]]) -> list[Rollout]:
        """The result of ``work`` on the event loop."""
        ...

    def judge(self, rollouts: Sequence[Rollout], log_metric: Callable[[str, float], None]) -> None:
        """Log what is particular to the environment. Raises TooManyFaults."""
        ...


class RolloutFunction:
    """A ``rollout_func`` of ``trl.GRPOTrainer``; can be pickled, and the copy connects anew.

    Called with a batch's prompts, it plays all of them at the same time and returns, in the order of the
    prompts, ``prompt_ids``, ``completion_ids``, ``logprobs`` and ``env_mask``, and for reward functions
    ``env_reward``, ``stop_reason``, ``rollout_id``, ``fault``, ``turns`` and ``episode``.
    """

    def __init__(
        self, arena: Arena, settings: DeskSettings, *, concurrency: int | None, parity_rollouts: int
    ) -> None:
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, or None for no limit; got {concurrency}")
        if parity_rollouts < 0:
            raise ValueError(f"parity_rollouts must be 0 or more; got {parity_rollouts}")
        self.arena = arena
        self.settings = settings
        self.concurrency = concurrency
        self.parity_rollouts = parity_rollouts
        self._desk: Desk | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_desk": None}

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Raises SamplerError when nothing can be sampled, TooManyFaults, and TemplateError."""
        if self._desk is None or self._desk.trainer is not trainer:
            self.close()
            self._desk = self.settings.open(trainer)
            trainer.add_callback(_closing(self))
        desk = self._desk
        players = self.arena.players(prompts, trainer)
        with desk.sampling_batch():
            rollouts = self.arena.run(self._play(players, desk))
        log_rollouts(rollouts, trainer._log_metric)
        self.arena.judge(rollouts, trainer._log_metric)
        if self.parity_rollouts and not trainer.use_vllm:  # with vLLM, TRL logs the difference by itself
            found = parity(trainer, [rollout.transcript for rollout in rollouts[: self.parity_rollouts]])
            if found is not None:
                trainer._log_metric("sampling/parity", found)
        return _output(rollouts)

    def close(self) -> None:
        """Let go of the sampler's connections; the next call opens them again."""
        desk, self._desk = self._desk, None
        if desk is not None:
            self.arena.run(_closed(desk))

    async def _play(self, players: Sequence[Player], desk: Desk) -> list[Rollout]:
        slots = asyncio.Semaphore(self.concurrency or max(len(players), 1))

        async def one(player: Player) -> Rollout:
            async with slots:
                return await player.play(desk)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(player)) for player in players]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        return [task.result() for task in tasks]


def vllm_rollout_func(
    spec: EnvironmentSpec | Mixture,
    *,
    base_url: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    sampler: Sampler | None = None,
    max_turns: int = 32,
    max_tokens_per_turn: int | None = None,
    concurrency: int | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    sync: DiskSync | Literal[False] | None = None,
    parity_rollouts: int = 4,
    prompt_builder: PromptBuilder | None = None,
    action_parser: ActionParser | None = None,
) -> RolloutFunction:
    """The rollout function of an environment::

        trainer = GRPOTrainer(
            model=...,
            args=...,
            train_dataset=spec.rollout_dataset,
            rollout_func=vllm_rollout_func(spec),
            reward_funcs=reward_func,
        )

    The first of these samples: ``sampler``; the vLLM server at ``base_url``; with ``use_vllm=True`` the
    trainer's own vLLM, colocated or served; the model of the trainer.

    Args:
        spec: The environment, or several combined.
        base_url: A vLLM server, with ``sync`` where the trainer does not itself update its weights.
        model: Its name for the model; by default the first that it serves.
        api_key: Its key.
        sampler: Anything that samples, on the event loop of the spec; never closed here.
        max_turns: Turns of the model in one rollout.
        max_tokens_per_turn: Tokens in one turn; by default only the trainer's ``max_completion_length``, for
            all turns and answers together, and the context of the model are limits.
        concurrency: Rollouts played at the same time; by default all of a batch.
        chat_template_kwargs: For the chat template; by default those of the trainer.
        sync: Brings the trainer's weights to the server at ``base_url`` before a batch when the step has
            changed: a ``DiskSync``, or False where something else does it.
        parity_rollouts: Of how many rollouts in a batch ``sampling/parity`` is computed, by one more forward
            pass; 0 for none. With ``use_vllm=True`` TRL logs its own figure instead.
        prompt_builder: Makes the rollout one of plain text: the message to the model, from the observation,
            the number of the step (from 1) and the history. Together with ``action_parser``.
        action_parser: The action in the model's text; see ``orsay_trl.rollout.text``.

    Raises ValueError for arguments that contradict each other.
    """
    from .arenas import SpecArena, TextSpecArena

    if (prompt_builder is None) != (action_parser is None):
        raise ValueError("a text environment needs both prompt_builder and action_parser")
    arena: Arena = SpecArena(spec)
    if prompt_builder is not None and action_parser is not None:
        arena = TextSpecArena(spec, prompt_builder, action_parser)
    settings = DeskSettings(
        sampler=sampler,
        base_url=base_url,
        model=model,
        api_key=api_key,
        sync=sync,
        max_turns=max_turns,
        max_tokens_per_turn=max_tokens_per_turn,
        chat_template_kwargs=chat_template_kwargs,
        needs_calls=prompt_builder is None,
    )
    return RolloutFunction(arena, settings, concurrency=concurrency, parity_rollouts=parity_rollouts)


def reward_func(env_reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """Reward function beside a rollout function: what the environment gave; None after a fault."""
    return list(env_reward)


def _output(rollouts: Sequence[Rollout]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {
        "prompt_ids": [rollout.transcript.prompt_ids for rollout in rollouts],
        "completion_ids": [rollout.transcript.completion_ids for rollout in rollouts],
        "logprobs": [rollout.transcript.logprobs for rollout in rollouts],
        "env_mask": [rollout.transcript.mask for rollout in rollouts],
        "env_reward": [rollout.reward for rollout in rollouts],
        "stop_reason": [rollout.stop_reason for rollout in rollouts],
        "rollout_id": [rollout.id for rollout in rollouts],
        "fault": [rollout.fault for rollout in rollouts],
        "turns": [rollout.turns for rollout in rollouts],
        "episode": [rollout.episode for rollout in rollouts],
    }
    for name in sorted({name for rollout in rollouts for name in rollout.extra}):
        found[name] = [rollout.extra.get(name) for rollout in rollouts]
    return found


async def _closed(desk: Desk) -> list[Rollout]:
    await desk.aclose()
    return []


def _closing(function: RolloutFunction) -> Any:
    from transformers import TrainerCallback  # an optional dependency, here for certain: a trainer called

    class Closing(TrainerCallback):  # type: ignore[misc]  # transformers has no types for it
        """Ends the sampler's connections with the training."""

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            function.close()

    return Closing()
