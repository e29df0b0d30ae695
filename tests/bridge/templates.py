"""The chat templates that TRL carries, each on the tiny byte-level tokenizer with that template's marks."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from orsay_trl.rollout.tokens import ChatFormat
from orsay_trl.testing import tiny_model as tiny

__all__ = ["BOTH", "NO_TOOLS", "TRAINING", "Chat", "chat", "plain_tokenizer"]

_MARKS = re.compile(
    r"<\|[^|>\s]{1,40}\|>|<｜[^｜>]{1,40}｜>|<\|\w+>|<\w+\|>|\[gMASK\]|<sop>"
    r"|<(?:start_of_turn|end_of_turn|end_of_utterance|image|fake_token_around_image)>"
)
_ENDS = (
    "<|im_end|>",
    "<|call|>",
    "<|return|>",
    "<|observation|>",
    "<|user|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<|end|>",
    "<|END_OF_TURN_TOKEN|>",
    "<｜end▁of▁sentence｜>",
)
"""What the published models list as end tokens in their generation configs."""

_CARRIED = sorted(
    file.name.removesuffix(".jinja")
    for file in files("trl").joinpath("chat_templates").iterdir()
    if file.name.endswith(".jinja")
)

TRAINING = [name for name in _CARRIED if f"{name}_training" not in _CARRIED]
"""The templates that TRL trains with: its training version, or the published one where that will do."""

NO_TOOLS = {
    "cohere_training": "refuses tool messages",
    "cohere2_training": "leaves out tool messages",
    "deepseek_r1_distill_training": "leaves out calls beside a text",
    "gemma_training": "refuses tool messages",
    "gemma3_training": "refuses tool messages",
    "idefics3_training": "reads only parts, and no tool messages",
    "lfm2_training": "leaves out the calls",
    "llama3_training": "leaves out the calls",
    "llava_next_training": "reads only parts, and no tool messages",
    "phi3_training": "leaves out tool messages",
    "phi3_5_training": "leaves out tool messages",
    "qwen2_5_vl_training": "leaves out the calls",
    "smolvlm_training": "reads only parts, and no tool messages",
}
"""Templates without tool calls, and why: they carry text turns only."""

BOTH = [name for name in TRAINING if name not in NO_TOOLS]
"""Templates that carry tool calls."""


@dataclass(frozen=True)
class Chat:
    """A template on its tokenizer."""

    tokenizer: Any
    form: ChatFormat

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids))


@cache
def _learned() -> Any:
    return tiny.tokenizer()


def plain_tokenizer() -> Any:
    """What ``tiny.tokenizer()`` makes, learned once: that takes ten times as long as a copy."""
    return copy.deepcopy(_learned())


@cache
def chat(name: str, *, merges: bool = True) -> Chat:
    """The template of that name. Without ``merges`` each token is one byte, or a mark.

    The tiny tokenizer's merges know no words and may reach over the end of what a template wrote before a
    turn, which those of a published tokenizer do not.
    """
    template = files("trl").joinpath("chat_templates", f"{name}.jinja").read_text(encoding="utf-8")
    tokenizer: Any = plain_tokenizer() if merges else tiny.tokenizer(["a"])
    marks = sorted(set(_MARKS.findall(template)))
    known = {*tiny.MARKS, tiny.PAD, tiny.TURN, tiny.END}
    tokenizer.add_tokens([mark for mark in marks if mark not in known], special_tokens=True)
    tokenizer.bos_token = tiny.PAD
    ends = [mark for mark in _ENDS if mark in marks]
    if "<|im_end|>" not in marks and ends:
        tokenizer.eos_token = ends[0]
    tokenizer.chat_template = template
    return Chat(
        tokenizer, ChatFormat(tokenizer, stop_ids=tokenizer.convert_tokens_to_ids(ends), template=template)
    )
