"""The requests that the stand-in reads: vLLM's names, defaults and limits; unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from .answers import Refusal

__all__ = ["ChatRequest", "CompletionRequest", "DetokenizeRequest", "SamplingFields", "TokenizeRequest"]

Id = Annotated[int, Field(ge=0)]


class SamplingFields(BaseModel):
    """What both kinds of completion share."""

    model: str | None = None
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    seed: int | None = None
    stream: bool = False
    skip_special_tokens: bool = True
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False

    def check(self) -> None:
        """Raise Refusal for values out of range."""
        if self.n < 1:
            raise Refusal(f"n must be at least 1, got {self.n}.")
        if self.temperature < 0:
            raise Refusal(
                f"temperature must be non-negative, got {self.temperature}.",
                parameter="temperature",
                value=self.temperature,
            )
        if self.temperature == 0 and self.n > 1:
            raise Refusal(f"n must be 1 when using greedy sampling, got {self.n}.")
        if not 0 < self.top_p <= 1:
            raise Refusal(f"top_p must be in (0, 1], got {self.top_p}.", parameter="top_p", value=self.top_p)
        if self.top_k < -1:
            raise Refusal(f"top_k must be 0 (disable), or at least 1, got {self.top_k}.")
        if not 0 <= self.min_p <= 1:
            raise Refusal(f"min_p must be in [0, 1], got {self.min_p}.")
        if self.repetition_penalty <= 0:
            raise Refusal(f"repetition_penalty must be greater than zero, got {self.repetition_penalty}.")


class CompletionRequest(SamplingFields):
    """``POST /v1/completions``."""

    prompt: list[Id] | list[list[Id]] | str | list[str] | None = None
    max_tokens: int | None = 16
    logprobs: int | None = None


class ChatRequest(SamplingFields):
    """``POST /v1/chat/completions``."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeRequest(BaseModel):
    """``POST /tokenize``: a text, or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    return_token_strs: bool = False
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(BaseModel):
    """``POST /detokenize``."""

    model: str | None = None
    tokens: list[Id]
