"""Interface of a sampler: token ids in, token ids and their logprobs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["PromptTooLong", "Sample", "Sampler", "SamplerError", "Sampling"]


class SamplerError(RuntimeError):
    """Failure of sampling for every prompt: training should stop with this message."""


class PromptTooLong(SamplerError):
    """The prompt leaves no room for a single token; only this rollout is over."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One continuation of a prompt."""

    token_ids: list[int]
    """The sampled ids, verbatim: the token that ended the turn is included, if one did."""
    logprobs: list[float]
    """One per id, natural logarithm, of the distribution that the id was sampled from."""
    finish_reason: Literal["stop", "length"]
    """``stop``: the model ended its turn. ``length``: it reached ``max_tokens`` or the context limit."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters; the defaults draw from the model's own distribution.

    There is no seed on purpose: vLLM's CPU engine crashes with one.
    """

    temperature: float = 1.0
    """0 takes the likeliest token; logprobs are then those of the distribution at temperature 1."""
    top_p: float = 1.0
    """Draw from the likeliest tokens that together have at least this probability."""
    top_k: int | None = None
    """Draw from this many of the likeliest tokens; None or 0 for all."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the likeliest."""
    repetition_penalty: float = 1.0
    """Repetition penalty: above 1, tokens of the prompt and of earlier samples become less likely."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the turn, besides the model's own end tokens."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature must be 0 or more; got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1; got {self.top_p}")
        if self.top_k is not None and self.top_k < 0:
            raise ValueError(f"top_k must be at least 1, or None for all tokens; got {self.top_k}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be between 0 and 1; got {self.min_p}")
        if self.repetition_penalty <= 0:
            raise ValueError(f"repetition_penalty must be above 0; got {self.repetition_penalty}")


class Sampler(Protocol):
    """Samples one turn at a time; many calls may be in flight at once."""

    max_model_len: int | None
    """Context limit in tokens, prompt and continuation together; None where it is unknown."""

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Sample:
        """Continue ``prompt_ids`` by 1 to ``max_tokens`` tokens.

        Raises PromptTooLong and other kinds of SamplerError.
        """
        ...

    async def aclose(self) -> None:
        """Close connections; safe to call twice."""
        ...
