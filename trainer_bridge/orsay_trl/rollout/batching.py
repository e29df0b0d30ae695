"""Dynamic batching of single requests, for engines that need batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

__all__ = ["Batcher"]

_Request = TypeVar("_Request")
_Result = TypeVar("_Result")


class Batcher(Generic[_Request, _Result]):
    """Passes waiting requests to ``work`` on a thread, and collects new ones meanwhile.

    Args:
        work: Answers a batch, in its order, at most ``limit`` at a time; runs on ``executor``.
        executor: Of one thread, so that batches do not overlap.
        limit: Requests in one batch.
        linger_s: Time without a new request after which a batch starts: rollouts of one batch return at
            nearly the same time.
    """

    def __init__(
        self,
        work: Callable[[Sequence[_Request]], Sequence[_Result]],
        executor: Executor,
        *,
        limit: int,
        linger_s: float = 0.005,
    ) -> None:
        self._work = work
        self._executor = executor
        self._limit = limit
        self._linger_s = linger_s
        self._waiting: list[tuple[_Request, asyncio.Future[_Result]]] = []
        self._drain: asyncio.Task[None] | None = None

    async def submit(self, request: _Request) -> _Result:
        """The answer to one request. Raises what ``work`` raised for its batch."""
        answer: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._drain is None or self._drain.done():
            self._drain = asyncio.create_task(self._answer_all())
        return await answer

    async def aclose(self) -> None:
        """Finish the running batch and accept no more requests; safe to call twice."""
        drain, self._drain = self._drain, None
        for _, answer in self._waiting:
            answer.cancel()
        self._waiting.clear()
        if drain is not None:
            await asyncio.wait([drain])

    async def _answer_all(self) -> None:
        while await self._collected():
            batch, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
            batch = [(request, answer) for request, answer in batch if not answer.done()]
            if not batch:
                continue
            try:
                results = await asyncio.get_running_loop().run_in_executor(
                    self._executor, self._work, [request for request, _ in batch]
                )
            except Exception as exc:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(exc)
                continue
            for (_, answer), result in zip(batch, results, strict=True):
                if not answer.done():
                    answer.set_result(result)

    async def _collected(self) -> bool:
        """Wait until no more requests come; False when there is none."""
        count = 0
        while count < len(self._waiting) < self._limit:
            count = len(self._waiting)
            await asyncio.sleep(self._linger_s)
        return bool(self._waiting)
