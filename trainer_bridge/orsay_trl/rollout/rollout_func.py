"""``vllm_rollout_func``: a batch of rollouts for ``trl.GRPOTrainer(rollout_func=…)``, by token ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..play.environment import Environments
from ..trainer._trl import metric_logger
from .backends import SpecBackend, TextSpecBackend
from .context import RolloutBackend, RolloutContext, RolloutDriver, RolloutSettings
from .loop import Rollout
from .metrics import log_rollouts
from .parity import parity

if TYPE_CHECKING:
    from .sampling import Sampler
    from .sync import DiskSync
    from .text import ActionParser, PromptBuilder

__all__ = ["RolloutFunction", "reward_func", "vllm_rollout_func"]

_log = logging.getLogger("orsay_trl")


class RolloutFunction:
    """A ``rollout_func`` of ``trl.GRPOTrainer``; can be pickled, and the copy connects again.

    Called with a batch's prompts, it plays all of them at the same time and returns, in the order of the
    prompts, ``prompt_ids``, ``completion_ids``, ``logprobs`` and ``env_mask``, and for reward functions
    ``env_reward``, ``stop_reason``, ``rollout_id``, ``fault``, ``turns`` and ``episode``.
    """

    def __init__(
        self,
        backend: RolloutBackend,
        settings: RolloutSettings,
        *,
        concurrency: int | None,
        parity_rollouts: int,
    ) -> None:
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, or None for no limit; got {concurrency}")
        if parity_rollouts < 0:
            raise ValueError(f"parity_rollouts must be 0 or more; got {parity_rollouts}")
        self.backend = backend
        self.settings = settings
        self.concurrency = concurrency
        self.parity_rollouts = parity_rollouts
        self._context: RolloutContext | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_context": None}

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Play a batch. Raises SamplerError if nothing can be sampled, TooManyFaults, and TemplateError."""
        if self._context is None or self._context.trainer is not trainer:
            self.close()
            self._context = self.settings.open(trainer)
            trainer.add_callback(_closing(self))
        context = self._context
        drivers = self.backend.drivers(prompts, trainer)
        with context.sampling_batch():
            rollouts = self.backend.run(self._play(drivers, context))
        log_metric = metric_logger(trainer)
        log_rollouts(rollouts, log_metric)
        self.backend.judge(rollouts, log_metric)
        if self.parity_rollouts and not trainer.use_vllm:  # with vLLM, TRL logs the difference by itself
            found = parity(trainer, [rollout.transcript for rollout in rollouts[: self.parity_rollouts]])
            if found is not None:
                log_metric("sampling/parity", found)
        return _output(rollouts)

    def close(self) -> None:
        """Close the sampler's connections; the next call opens them again."""
        context, self._context = self._context, None
        if context is not None:
            self.backend.run(_closed(context))

    async def _play(self, drivers: Sequence[RolloutDriver], context: RolloutContext) -> list[Rollout]:
        slots = asyncio.Semaphore(self.concurrency or max(len(drivers), 1))

        async def one(driver: RolloutDriver) -> Rollout:
            async with slots:
                return await driver.play(context)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(driver)) for driver in drivers]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        return [task.result() for task in tasks]


def vllm_rollout_func(
    spec: Environments,
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
        spec: An ``EnvironmentSpec``, or several combined.
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
            pass; 0 for none. With ``use_vllm=True`` TRL logs its own metric instead.
        prompt_builder: Makes the rollout one of plain text: the message to the model, from the observation,
            the number of the step (from 1) and the history. Together with ``action_parser``.
        action_parser: The action in the model's text; see ``orsay_trl.rollout.text``.

    Raises ValueError for arguments that contradict each other.
    """
    if (prompt_builder is None) != (action_parser is None):
        raise ValueError("a text environment needs both prompt_builder and action_parser")
    backend: RolloutBackend = SpecBackend(spec)
    if prompt_builder is not None and action_parser is not None:
        backend = TextSpecBackend(spec, prompt_builder, action_parser)
    settings = RolloutSettings(
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
    return RolloutFunction(backend, settings, concurrency=concurrency, parity_rollouts=parity_rollouts)


def reward_func(env_reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """Reward function for use with a rollout function: the environment's reward; None after a fault."""
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


async def _closed(context: RolloutContext) -> list[Rollout]:
    await context.aclose()
    return []


def _closing(function: RolloutFunction) -> Any:
    from transformers import TrainerCallback  # an optional dependency, here for certain: a trainer called

    class Closing(TrainerCallback):  # type: ignore[misc]  # transformers has no types for it
        """Callback that closes the sampler's connections when training ends."""

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            function.close()

    return Closing()
