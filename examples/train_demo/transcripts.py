"""Scripted episodes as token ids, put together as a trainer will put together the model's own.

The model's turns and the text between them are encoded separately, so that no token spans two parts, as in
sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Message", "Transcript", "encode", "render"]

Message = Mapping[str, Any]

_OPENING = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
_END = "<|im_end|>"


@dataclass(frozen=True, slots=True)
class Transcript:
    """One episode: two lists of the same length."""

    ids: list[int]
    learned: list[bool]
    """True for the tokens that the model should learn to say; not for the empty think block before them."""


def render(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
    """The episode as text, by the template that TRL trains Qwen3 with."""
    from trl.chat_template_utils import get_training_chat_template  # comes with the extra 'trl'

    text: str = tokenizer.apply_chat_template(
        list(messages),
        tools=list(tools),
        chat_template=get_training_chat_template(tokenizer),
        tokenize=False,
        enable_thinking=False,
    )
    return text


def encode(tokenizer: Any, text: str) -> Transcript:
    """The tokens of an episode that ``render`` made, up to the end of the model's last turn."""
    before, *turns = text.split(_OPENING)
    ids: list[int] = tokenizer.encode(before + _OPENING)
    learned = [False] * len(ids)
    for number, turn in enumerate(turns, 1):
        said, _, after = turn.partition(_END)
        spoken = tokenizer.encode(said + _END)
        between = tokenizer.encode(after + _OPENING) if number < len(turns) else []
        ids += [*spoken, *between]
        learned += [True] * len(spoken) + [False] * len(between)
    return Transcript(ids, learned)
