"""Warm-up before training: a model that follows the rules but seldom wins.

Reinforcement learning starts from a model's behaviour. A new model has none, so it first imitates scripted
episodes, played through the server, which look at the door and then mostly open it with a random word.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from doors_env.tasks import WORDS

from .transcripts import Message, Transcript

__all__ = ["imitate", "play", "play_many"]

RIGHT_SHARE = 0.25
_BATCH = 16
_LEARNING_RATE = 3e-3


def play(environment: Any, row: dict[str, Any], word: str | None) -> list[Message]:
    """Look, then open with ``word``, by default with the word that was seen; the whole conversation."""
    prompt = environment.reset(**row)
    seen = environment.look(door=row["door"])
    chosen = word or str(seen).split()[-1]
    answer = environment.open(code=chosen)
    return [
        {"role": "user", "content": prompt},
        _call("look", {"door": row["door"]}),
        {"role": "tool", "name": "look", "content": seen},
        _call("open", {"code": chosen}),
        {"role": "tool", "name": "open", "content": answer},
        {"role": "assistant", "content": "Done."},
    ]


def play_many(
    environment: Any, rows: Sequence[dict[str, Any]], episodes: int, seed: int
) -> Iterator[list[Message]]:
    """Scripted episodes over all tasks in turn, a share of them with the right word."""
    chance = random.Random(seed)
    for number in range(episodes):
        word = None if chance.random() < RIGHT_SHARE else chance.choice(WORDS)
        yield play(environment, rows[number % len(rows)], word)


def imitate(
    model: Any,
    transcripts: Sequence[Transcript],
    *,
    steps: int,
    seed: int,
    learning_rate: float = _LEARNING_RATE,
) -> Iterator[float]:
    """Train ``model`` to say what the transcripts say, and yield the loss of each step."""
    import torch  # an extra

    chance = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    model.train()
    for _ in range(steps):
        batch = chance.sample(transcripts, min(_BATCH, len(transcripts)))
        width = max(len(transcript.ids) for transcript in batch)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        labels = torch.full_like(ids, -100)
        mask = torch.zeros_like(ids)
        for row, transcript in enumerate(batch):
            length = len(transcript.ids)
            ids[row, :length] = torch.tensor(transcript.ids)
            mask[row, :length] = 1
            learned = torch.tensor(transcript.learned)
            labels[row, :length] = torch.where(learned, ids[row, :length], -100)
        ids, mask, labels = (tensor.to(model.device) for tensor in (ids, mask, labels))
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield float(loss.detach())
    model.eval()


def _call(name: str, arguments: dict[str, Any]) -> Message:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
    }
