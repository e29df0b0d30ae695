"""Context of a batch of rollouts: chat format, sampler with current weights, limits; and its interfaces."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from .loop import Limits, Rollout
from .parse import TurnParser
from .sampling import Sampler, Sampling
from .tokens import ChatFormat, TemplateError, tokenizer_of

if TYPE_CHECKING:
    from .sync import DiskSync

__all__ = ["RolloutBackend", "RolloutContext", "RolloutDriver", "RolloutSettings", "trainer_sampling"]


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """Settings of a ``RolloutContext``; ``vllm_rollout_func`` documents each.

    ``fallback_url`` counts where the trainer has no vLLM of its own. ``sampling`` replaces fields of the
    trainer's sampling settings.
    """

    sampler: Sampler | None = None
    base_url: str | None = None
    fallback_url: str | None = None
    model: str | None = None
    api_key: str | None = None
    sync: DiskSync | Literal[False] | None = None
    max_turns: int = 32
    max_tokens_per_turn: int | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    needs_calls: bool = True
    sampling: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.sampler is not None and self.base_url is not None:
            raise ValueError("give a sampler or the base_url of a vLLM server, not both")
        if self.max_turns < 1 or (self.max_tokens_per_turn is not None and self.max_tokens_per_turn < 1):
            raise ValueError("max_turns and max_tokens_per_turn must be at least 1")

    def open(self, trainer: Any) -> RolloutContext:
        """Context for one trainer; called on its thread.

        Raises TemplateError if tool calls cannot be parsed, and ValueError if nothing would update
        the server's weights.
        """
        kwargs = (
            self.chat_template_kwargs
            if self.chat_template_kwargs is not None
            else trainer.chat_template_kwargs
        )
        chat = ChatFormat(
            trainer.processing_class, stop_ids=trainer.eos_token_ids, template_kwargs=dict(kwargs or {})
        )
        parser = TurnParser(trainer.processing_class)
        if self.needs_calls and not parser.can_call:
            raise TemplateError(
                "tool calls cannot be read from this chat template: TRL does not know its format, and the "
                "tokenizer has no response_template (transformers describes them under response parsing)"
            )
        config = trainer.model.config.get_text_config()
        limits = Limits(
            turns=self.max_turns,
            turn_tokens=self.max_tokens_per_turn,
            completion=trainer.max_completion_length,
            context=getattr(config, "max_position_embeddings", None),
        )
        return RolloutContext(trainer, chat, parser, limits, self._choose(trainer), self)

    def _choose(self, trainer: Any) -> Sampler:
        sampling = trainer_sampling(trainer, self.sampling)
        if self.sampler is not None:
            return self.sampler
        from .vllm import VLLMSampler

        url = self.base_url or (None if trainer.use_vllm else self.fallback_url)
        if url is not None:
            if not trainer.use_vllm and self.sync is None:
                raise ValueError(
                    f"nothing brings the weights to {url} as training goes on: pass "
                    "sync=DiskSync(folder, base_url), or sync=False where something else does it"
                )
            return VLLMSampler(url, self.model, sampling, self.api_key)
        if trainer.use_vllm and trainer.vllm_mode == "colocate":
            from .colocate import ColocatedSampler

            return ColocatedSampler(trainer.vllm_generation, sampling)
        if trainer.use_vllm:
            return VLLMSampler(_served_by(trainer), self.model, sampling, self.api_key)
        from .transformers import TransformersSampler

        model = trainer.accelerator.unwrap_model(trainer.model)
        return TransformersSampler(model, trainer.processing_class, sampling)


@dataclass(slots=True)
class RolloutContext:
    """Objects that a rollout needs besides its environment."""

    trainer: Any
    chat: ChatFormat
    parser: TurnParser
    limits: Limits
    sampler: Sampler
    settings: RolloutSettings

    @contextmanager
    def sampling_batch(self) -> Iterator[None]:
        """Context of one batch, on the trainer's thread: current weights, and an awake engine."""
        if self.settings.sync and not self.trainer.use_vllm:  # TRL itself sends weights to its own vLLM
            self.settings.sync.sync(self.trainer)
        with self._prepared():
            yield

    def _prepared(self) -> AbstractContextManager[Any]:
        from .transformers import TransformersSampler

        awake = getattr(self.sampler, "awake", None)
        if awake is not None:
            return cast(AbstractContextManager[Any], awake())
        if self.settings.sampler is None and isinstance(self.sampler, TransformersSampler):
            from trl.models.utils import unwrap_model_for_generation

            return cast(
                AbstractContextManager[Any],
                unwrap_model_for_generation(
                    self.trainer.model_wrapped,
                    self.trainer.accelerator,
                    gather_deepspeed3_params=self.trainer.args.ds3_gather_for_generation,
                    gradient_checkpointing_kwargs=self.trainer.args.gradient_checkpointing_kwargs,
                ),
            )
        return nullcontext()

    @property
    def filler(self) -> int:
        """Token that replaces an empty completion."""
        tokenizer = tokenizer_of(self.trainer.processing_class)
        found = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        return int(found)

    async def aclose(self) -> None:
        """Close the sampler, if this object owns it."""
        if self.settings.sampler is None:
            await self.sampler.aclose()


class RolloutDriver(Protocol):
    """Driver of one rollout; raises only errors that stop training."""

    async def play(self, context: RolloutContext) -> Rollout: ...


class RolloutBackend(Protocol):
    """Environment in which rollouts are played, and the event loop that belongs to it."""

    def drivers(self, prompts: Sequence[Any], trainer: Any) -> list[RolloutDriver]:
        """One driver for each prompt, in order; called on the trainer's thread."""
        ...

    def run(self, work: Coroutine[Any, Any, list[Rollout]]) -> list[Rollout]:
        """The result of ``work`` on the event loop."""
        ...

    def judge(self, rollouts: Sequence[Rollout], log_metric: Callable[[str, float], None]) -> None:
        """Log environment metrics. Raises TooManyFaults."""
        ...


def trainer_sampling(trainer: Any, changes: Mapping[str, Any] | None = None) -> Sampling:
    """The trainer's sampling settings, which its loss assumes, with ``changes``."""
    found: dict[str, Any] = {
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "top_k": trainer.top_k or None,
        "min_p": trainer.min_p or 0.0,
        "repetition_penalty": trainer.repetition_penalty,
        "stop_token_ids": tuple(trainer.eos_token_ids),
    }
    return Sampling(**{**found, **(changes or {})})


def _served_by(trainer: Any) -> str:
    generation = trainer.vllm_generation
    if generation.server_base_url:
        return str(generation.server_base_url)
    host = "127.0.0.1" if generation.server_host == "0.0.0.0" else generation.server_host
    return f"http://{host}:{generation.server_port}"
