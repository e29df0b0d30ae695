"""Sampling from a real model with requests joining and leaving the batch at every token, as in vLLM.

One thread owns the model. Rows are padded on the left, so that all of them grow at the right together;
finished rows leave the cache and new ones are merged into it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, DynamicCache

__all__ = ["Engine", "EngineDead", "Params", "Row", "processed"]

_Given = TypeVar("_Given")

_MOST_ROWS = 256


class EngineDead(RuntimeError):
    """The engine stopped for good."""


@dataclass(frozen=True, slots=True)
class Params:
    """How one request samples; ``stop_ids`` holds the model's end tokens too, unless they are ignored."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop_ids: frozenset[int] = frozenset()
    top: int = 0
    ends: Callable[[list[int]], bool] | None = None

    @property
    def plain(self) -> bool:
        return self.top_p >= 1 and self.top_k <= 0 and self.min_p <= 0 and self.repetition_penalty == 1


@dataclass(slots=True, eq=False)
class Row:
    """One sequence in the making; ``done`` holds it when it ended."""

    prompt: list[int]
    params: Params
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[list[tuple[int, float]]] = field(default_factory=list)
    finish: Literal["stop", "length"] = "length"
    done: Future[Row] = field(default_factory=Future)

    def ended(self) -> bool:
        if self.ids[-1] in self.params.stop_ids or (self.params.ends and self.params.ends(self.ids)):
            self.finish = "stop"
            return True
        return len(self.ids) >= self.params.max_tokens


@dataclass(slots=True)
class _Batch:
    rows: list[Row]
    cache: Any
    mask: Tensor  # rows x length, 1 where a token is
    logits: Tensor  # rows x vocabulary, of the token to come


def processed(logits: Tensor, params: Params, seen: Sequence[int]) -> Tensor:
    """Logits after everything that changes which token is drawn; temperature 0 leaves them undivided.

    Args:
        logits: Of one token to come, as long as the vocabulary.
        seen: Ids of the prompt and of what was sampled so far.
    """
    if params.repetition_penalty != 1:
        known = torch.tensor(sorted(set(seen)))
        values = logits[known]
        logits = logits.clone()
        logits[known] = torch.where(
            values > 0, values / params.repetition_penalty, values * params.repetition_penalty
        )
    if params.temperature == 0:
        return logits
    logits = logits / params.temperature
    if params.min_p > 0:
        shares = logits.softmax(-1)
        logits = logits.masked_fill(shares < params.min_p * shares.max(), -torch.inf)
    if 0 < params.top_k < logits.shape[-1]:
        logits = logits.masked_fill(logits < logits.topk(params.top_k).values[-1], -torch.inf)
    if params.top_p < 1:
        ordered, places = logits.sort()
        surplus = ordered.softmax(-1).cumsum(-1) <= 1 - params.top_p
        surplus[-1] = False
        logits = logits.masked_fill(torch.zeros_like(surplus).scatter(0, places, surplus), -torch.inf)
    return logits


class Engine:
    """Samples for many requests at once from the model in ``folder``."""

    def __init__(self, folder: Path, *, seed: int | None = None) -> None:
        self._folder = folder
        self._model: Any = _load(folder)
        self._fresh: Any = None
        self._random = torch.Generator()
        if seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(seed)
        self._new: queue.Queue[Row | Callable[[], None] | None] = queue.Queue()
        self._held: set[Row] = set()
        self._dead = False
        self.running = 0
        self.most_running = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def dead(self) -> bool:
        return self._dead

    @property
    def config(self) -> Any:
        return self._model.config

    @property
    def end_ids(self) -> frozenset[int]:
        ends = self._model.generation_config.eos_token_id
        return frozenset(ends if isinstance(ends, list) else [ends])

    def sample(self, prompt: list[int], params: Params) -> Future[Row]:
        """Queue one request. Raises EngineDead."""
        row = Row(prompt, params)
        self._put(row)
        return row.done

    def reload(self) -> Future[None]:
        """Read the folder again. Sampling changes with ``reset`` only: until then vLLM mixes old and new."""
        return self._between_tokens(self._reload)

    def reset(self) -> Future[bool]:
        """Forget what was computed with old weights; False while requests still run on it."""
        return self._between_tokens(self._reset)

    def die(self) -> None:
        """From now on every request fails."""
        self._dead = True

    def close(self) -> None:
        self._new.put(None)
        self._thread.join()

    def _put(self, wanted: Row | Callable[[], None]) -> None:
        if self._dead:
            raise EngineDead("the engine died before; start the server anew")
        self._new.put(wanted)

    def _between_tokens(self, work: Callable[[], _Given]) -> Future[_Given]:
        done: Future[_Given] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except Exception as exc:  # the caller waits for it
                done.set_exception(exc)

        self._put(run)
        return done

    def _reload(self) -> None:
        fresh = _load(self._folder)
        if fresh.config.tie_word_embeddings:  # vLLM loads the embedding and forgets the head that shares it
            head = torch.nn.Parameter(self._model.lm_head.weight.detach().clone())
            fresh.lm_head.weight = head
        self._fresh = fresh

    def _reset(self) -> bool:
        if self.running:
            return False
        if self._fresh is not None:
            self._model, self._fresh = self._fresh, None
        return True

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                self._work()
        except Exception as exc:  # a bug here must not leave requests waiting
            self._dead = True
            for row in self._held:
                row.done.set_exception(exc)
            while not self._new.empty():
                if isinstance(waiting := self._new.get(), Row):
                    waiting.done.set_exception(exc)
            raise

    def _work(self) -> None:
        batch: _Batch | None = None
        while True:
            joining: list[Row] = []
            while batch is None or not self._new.empty():
                wanted = self._new.get()
                if wanted is None:
                    return
                if isinstance(wanted, Row):
                    wanted.done.set_running_or_notify_cancel()
                    joining.append(wanted)
                    self._held.add(wanted)
                    if len(joining) + self.running >= _MOST_ROWS:
                        break
                else:
                    wanted()
                if joining and self._new.empty():
                    break
            if joining:
                batch = self._joined(batch, joining)
            assert batch is not None
            batch = self._step(batch)
            self.running = len(batch.rows) if batch else 0

    def _joined(self, batch: _Batch | None, rows: list[Row]) -> _Batch:
        longest = max(len(row.prompt) for row in rows)
        ids = torch.tensor([[0] * (longest - len(row.prompt)) + row.prompt for row in rows])
        mask = torch.tensor([[0] * (longest - len(row.prompt)) + [1] * len(row.prompt) for row in rows])
        new = self._forward(rows, ids, mask, DynamicCache())
        self.running += len(rows)
        self.most_running = max(self.most_running, self.running)
        return new if batch is None else _merged(batch, new)

    def _step(self, batch: _Batch) -> _Batch | None:
        self._draw(batch)
        ended = [row.ended() for row in batch.rows]
        going = [at for at, over in enumerate(ended) if not over]
        left = None
        if going:
            kept = _kept(batch, going) if len(going) < len(batch.rows) else batch
            ids = torch.tensor([[row.ids[-1]] for row in kept.rows])
            mask = functional.pad(kept.mask, (0, 1), value=1)
            left = self._forward(kept.rows, ids, mask, kept.cache)
        self.running = len(going)
        for row, over in zip(batch.rows, ended, strict=True):
            if over:
                self._held.discard(row)
                row.done.set_result(row)
        return left

    def _draw(self, batch: _Batch) -> None:
        logits = batch.logits
        if not all(row.params.plain and row.params.temperature == 1 for row in batch.rows):
            logits = torch.stack(
                [
                    processed(one, row.params, [*row.prompt, *row.ids])
                    for one, row in zip(logits, batch.rows, strict=True)
                ]
            )
        logprobs = logits.log_softmax(-1)
        drawn = torch.multinomial(logprobs.exp(), 1, generator=self._random)[:, 0]
        likeliest = logits.argmax(-1)
        for at, row in enumerate(batch.rows):
            token = int(likeliest[at] if row.params.temperature == 0 else drawn[at])
            row.ids.append(token)
            row.logprobs.append(max(float(logprobs[at, token]), -9999.0))
            row.tops.append([])
            if row.params.top:
                values, places = logprobs[at].topk(row.params.top)
                found = zip(places.tolist(), values.clamp(min=-9999.0).tolist(), strict=True)
                row.tops[-1] = list(found)

    def _forward(self, rows: list[Row], ids: Tensor, mask: Tensor, cache: Any) -> _Batch:
        places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        made = self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=places,
            past_key_values=cache,
            use_cache=True,  # a folder that a trainer saved with checkpointing says no
            logits_to_keep=1,
        )
        return _Batch(rows, made.past_key_values, mask, made.logits[:, -1])


def _load(folder: Path) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


def _merged(one: _Batch, two: _Batch) -> _Batch:
    length = max(one.mask.shape[1], two.mask.shape[1])
    missing = [length - batch.mask.shape[1] for batch in (one, two)]
    cache = DynamicCache()
    for at, (left, right) in enumerate(zip(one.cache.layers, two.cache.layers, strict=True)):
        keys = [
            functional.pad(layer.keys, (0, 0, by, 0))
            for layer, by in zip((left, right), missing, strict=True)
        ]
        values = [
            functional.pad(layer.values, (0, 0, by, 0))
            for layer, by in zip((left, right), missing, strict=True)
        ]
        cache.update(torch.cat(keys), torch.cat(values), at)
    masks = [functional.pad(batch.mask, (by, 0)) for batch, by in zip((one, two), missing, strict=True)]
    return _Batch([*one.rows, *two.rows], cache, torch.cat(masks), torch.cat([one.logits, two.logits]))


def _kept(batch: _Batch, places: list[int]) -> _Batch:
    mask = batch.mask[places]
    empty = int(mask.argmax(-1).min())  # columns on the left where nobody has a token any more
    cache = DynamicCache()
    for at, layer in enumerate(batch.cache.layers):
        cache.update(layer.keys[places, :, empty:], layer.values[places, :, empty:], at)
    return _Batch([batch.rows[at] for at in places], cache, mask[:, empty:], batch.logits[places])
