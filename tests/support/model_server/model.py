"""The model behind the recorded answers: the tiny model, made to call a tool where a turn begins.

Untrained weights never spell a tool call. So the embedding of each token of one call is made long, and the
output layer leads from it to the token that follows: the same on every machine, with nothing to download.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from orsay_trl.testing import tiny_model as tiny

__all__ = ["CALL", "build", "fingerprint"]

CALL = '<tool_call>\n{"name": "look", "arguments": {"door": 7}}\n</tool_call><|im_end|>'
_TURN_STARTS = ("assistant\n", "\n\n")  # the last token of a prompt with and without room for thoughts
_LENGTH = 8.0
_PULL = 3.0


def build(folder: Path, *, seed: int = 0, texts: Iterable[str] = ()) -> Path:
    """Save the model and its tokenizer into ``folder``."""
    import torch

    tokenizer = tiny.tokenizer(texts)
    model: Any = tiny.model(tokenizer, seed)
    ids: list[int] = tokenizer(CALL)["input_ids"]
    assert len(set(ids)) == len(ids), "each token of the call has one successor only if it stands there once"
    starts = [tokenizer(text)["input_ids"] for text in _TURN_STARTS]
    with torch.no_grad():
        embedding, output = model.get_input_embeddings().weight, model.lm_head.weight
        for token in [*ids[:-1], *(start[-1] for start in starts)]:
            embedding[token] *= _LENGTH / embedding[token].norm()
        for before, after in [*pairwise(ids), *((start[-1], ids[0]) for start in starts)]:
            output[after] += _PULL * embedding[before] / _LENGTH
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def fingerprint(folder: Path) -> dict[str, Any]:
    """What builds with the same answers share: the vocabulary to the byte, the weights to six digits."""
    from safetensors.torch import load_file

    weights = load_file(folder / "model.safetensors")
    return {
        "tokenizer": hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest(),
        "template": hashlib.sha256((folder / "chat_template.jinja").read_bytes()).hexdigest(),
        "weights": {
            name: [float(f"{number:.6g}") for number in (tensor.double().sum(), tensor.double().abs().sum())]
            for name, tensor in sorted(weights.items())
        },
    }


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
