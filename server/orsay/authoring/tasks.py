"""Tasks of an environment: count, access by index, range and listing, at the least cost the class allows."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from orsay_protocol import Split

from ..errors import InvalidIndex, InvalidSplit, ListingUnsupported

__all__ = ["LISTING_LIMIT", "Run", "TaskSource", "run_author"]

Run: TypeAlias = Callable[..., Awaitable[Any]]

LISTING_LIMIT = 1_000_000
"""Computed tasks beyond this number are not listed: count them and get them by index."""


async def run_author(function: Callable[..., Any], *args: Any) -> Any:
    """Await an async function; run a sync one on a thread of the loop's default pool.

    For scripts and tests. A runtime passes its own function, whose threads are not shared between sessions.
    """
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    value = await asyncio.to_thread(function, *args)
    return await value if inspect.isawaitable(value) else value


class TaskSource:
    """The tasks of one class. ``run`` calls author code; a runtime may replace it before first use.

    A class with ``num_tasks`` and ``get_task`` is never listed for these. Otherwise its listing is cached for
    each split. Every method raises InvalidSplit; exceptions of author code pass through.
    """

    def __init__(
        self, cls: type, base: type, splits: Sequence[Split], *, name: str, run: Run = run_author
    ) -> None:
        self.run = run
        self._cls: Any = cls
        self._name = name
        self._splits = [split.name for split in splits]
        self._lists = overrides(cls, base, "list_tasks")
        self._counts = overrides(cls, base, "num_tasks")
        self._gets = overrides(cls, base, "get_task")
        self._ranges = overrides(cls, base, "get_task_range")
        declared = getattr(cls, "splits", None)
        self._declared: Mapping[str, Sequence[Any]] = (
            declared if isinstance(declared, Mapping) and not self._lists else {}
        )
        self._listings: dict[str, Sequence[Any]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def num_tasks(self, split: str) -> int:
        """Number of tasks of ``split``."""
        self._require(split)
        if self._counts:
            return int(await self.run(self._cls.num_tasks, split))
        return len(await self._all(split))

    def is_listed(self, split: str) -> bool:
        """``get_task`` of that split runs no author code and waits for nothing."""
        known = self._declared.get(split) or self._listings.get(split)
        return not self._gets and known is not None and _is_plain(known)

    async def get_task(self, split: str, index: int) -> Mapping[str, Any]:
        """The task at ``index``. Raises InvalidIndex.

        A negative index counts from the end, unless the class has its own ``get_task``, which interprets it.
        """
        self._require(split)
        if self._gets:
            try:
                return self._task(split, index, await self.run(self._cls.get_task, split, index))
            except IndexError as exc:
                raise InvalidIndex(f"Invalid index {index} for split {split!r}: {exc}") from exc
        tasks = await self._all(split)
        total = len(tasks)
        if not -total <= index < total:
            span = f"0 to {total - 1}" if total else "none"
            raise InvalidIndex(f"Invalid index {index}: split {split!r} has {total} tasks ({span})")
        at = index + total if index < 0 else index
        try:
            task = tasks[at] if _is_plain(tasks) else await self.run(tasks.__getitem__, at)
        except IndexError as exc:
            raise InvalidIndex(f"Invalid index {index} for split {split!r}: {exc}") from exc
        return self._task(split, index, task)

    async def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[Mapping[str, Any]]:
        """Tasks from ``start`` up to ``stop``, as a Python slice; both clamped. Raises InvalidIndex."""
        self._require(split)
        try:
            if self._ranges:
                found = list(await self.run(self._cls.get_task_range, split, start, stop))
                return [self._task(split, number, task) for number, task in enumerate(found)]
            if self._gets and self._counts:
                return await self._got_range(split, start, stop)
        except IndexError as exc:
            raise InvalidIndex(f"Invalid index range for split {split!r}: {exc}") from exc
        tasks = await self._all(split)
        span = range(*slice(start, stop).indices(len(tasks)))
        found = (
            [tasks[index] for index in span]
            if _is_plain(tasks)
            else await self.run(lambda: [tasks[index] for index in span])
        )
        return [self._task(split, index, task) for index, task in zip(span, found, strict=True)]

    async def list_tasks(self, split: str) -> list[Mapping[str, Any]]:
        """All tasks of ``split``. Raises ListingUnsupported."""
        self._require(split)
        tasks = await self._all(split)
        if len(tasks) > LISTING_LIMIT and not _is_plain(tasks):
            raise ListingUnsupported(
                f"Split {split!r} of {self._name!r} has {len(tasks)} tasks, which is too many to list; "
                "use num_tasks, task and task_range"
            )
        found = (
            list(tasks)
            if _is_plain(tasks)
            else await self.run(lambda: [tasks[at] for at in range(len(tasks))])
        )
        return [self._task(split, index, task) for index, task in enumerate(found)]

    async def _got_range(self, split: str, start: int | None, stop: int | None) -> list[Mapping[str, Any]]:
        span = range(*slice(start, stop).indices(await self.num_tasks(split)))
        get = self._cls.get_task
        if inspect.iscoroutinefunction(get):
            found = [await self.run(get, split, index) for index in span]
        else:
            found = await self.run(lambda: [get(split, index) for index in span])
            found = [await task if inspect.isawaitable(task) else task for task in found]
        return [self._task(split, index, task) for index, task in zip(span, found, strict=True)]

    async def _all(self, split: str) -> Sequence[Any]:
        """The declared sequence, or the cached listing."""
        if split in self._declared:
            return self._declared[split]
        known = self._listings.get(split)
        if known is not None:
            return known
        async with self._locks.setdefault(split, asyncio.Lock()):
            if split not in self._listings:
                try:
                    tasks = await self.run(self._cls.list_tasks, split)
                except NotImplementedError as exc:
                    raise ListingUnsupported(
                        f"Environment {self._name!r} does not list its tasks; "
                        "use num_tasks, task and task_range"
                    ) from exc
                self._listings[split] = tasks if _is_plain(tasks) else await self.run(list, tasks)
            return self._listings[split]

    def _require(self, split: str) -> None:
        if split not in self._splits:
            names = ", ".join(repr(name) for name in self._splits)
            raise InvalidSplit(f"Invalid split {split!r}: environment {self._name!r} has {names}")

    def _task(self, split: str, index: int, task: Any) -> Mapping[str, Any]:
        if isinstance(task, Mapping):
            return task
        raise TypeError(
            f"task {index} of split {split!r} of {self._name!r} is a {type(task).__name__}; "
            "a task must be a JSON object (a dict)"
        )


def overrides(cls: type, base: type, name: str) -> bool:
    """True if ``cls`` defines ``name`` itself or inherits it from a class other than ``base``."""
    own, inherited = (getattr(owner, name, None) for owner in (cls, base))
    return getattr(own, "__func__", own) is not getattr(inherited, "__func__", inherited)


def _is_plain(tasks: Any) -> bool:
    """True if access to the value runs no author code."""
    return type(tasks) is list or type(tasks) is tuple
