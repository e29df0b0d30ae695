"""The live half of an ``EnvironmentSpec``: connection, tools and open episodes of one environment."""

from __future__ import annotations

import asyncio
import json
import os
import time
import weakref
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

from .discovery import discover
from .episode import Episode, Rules, Tools, common_prompt
from .fault_budget import FaultBudget
from .pool import EpisodePool
from .source import TaskRef
from .target import Target

__all__ = ["Environments", "LiveEnvironment", "PlayOptions"]

_T = TypeVar("_T")
_LIVE = ("faults", "tools")


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """Arguments of ``EnvironmentSpec`` that are needed while episodes are played and scored.

    ``probes`` are the tasks of sessions whose own tools are listed.
    """

    split: str = "train"
    probes: tuple[int, ...] = ()
    terminal: Literal["message", "tool"] = "message"
    rules: Rules = field(default_factory=Rules)
    success: float = 1.0
    get_reward: bool = True
    max_fault_share: float = 0.5
    concurrency: int = 128
    run: str | None = None
    attach: bool = True


class LiveEnvironment:
    """Environment state of one process; several specs of a mixture share an event loop.

    The connection is made on first use, once in each process. A pickled copy has none, and connects again.
    """

    def __init__(self, target: Target, options: PlayOptions) -> None:
        self.target = target
        self.options = options
        self.metrics_prefix = "env/"
        self.day = time.strftime("%Y-%m-%d")  # of an unnamed run: the same in all processes
        self._run: str | None = None
        self._leader: LiveEnvironment | None = None
        self._pool: EpisodePool | None = None

    def __repr__(self) -> str:
        return f"<LiveEnvironment {self.target.address}>"

    def __getstate__(self) -> dict[str, Any]:
        kept = {key: value for key, value in self.__dict__.items() if key not in _LIVE}
        return {**kept, "_pool": None}

    @property
    def class_name(self) -> str:
        """Name of the class that TRL shows for this environment."""
        return self.target.class_name

    @cached_property
    def tools(self) -> Tools:
        """The environment's tools, requested once."""
        options = self.options
        return self.run(
            discover(
                self.pool.source, options.split, options.probes, terminal_as_tool=options.terminal == "tool"
            )
        )

    @property
    def pool(self) -> EpisodePool:
        """Connection and open episodes of this process, created on first use."""
        if self._pool is None or self._pool.pid != os.getpid():
            beside = self._leader.pool if self._leader is not None else None
            pool = EpisodePool(self.target.connect, concurrency=self.options.concurrency, beside=beside)
            weakref.finalize(self, pool.abandon).atexit = False  # at exit the pool closes itself
            self._pool = pool
        return self._pool

    @cached_property
    def faults(self) -> FaultBudget:
        """Budget of lost episodes; over it, training stops."""
        return FaultBudget(self.options.max_fault_share)

    # Membership of a run

    def follow(self, leader: LiveEnvironment) -> None:
        """Share the event loop of ``leader``; for a mixture, before the first episode."""
        self._leader = leader

    def label_step(self, step: int) -> None:
        """Label new sessions with this step of the trainer."""
        self.pool.step = step

    def label_run(self, run: str) -> None:
        """Label new sessions with this run, unless the options name another."""
        self._run = run

    # Episodes

    def episode(self, row: Mapping[str, Any]) -> Episode:
        """Unopened episode for a row of the dataset; its coroutines run on ``pool``."""
        spec = row.get("task_spec")
        task = TaskRef(
            split=str(row.get("task_split") or self.options.split),
            index=int(row.get("task_index") or 0),
            spec=json.loads(spec) if isinstance(spec, str) else spec,
        )
        labels: dict[str, str | int] = {}
        if (step := self.pool.step) is not None:
            labels["step"] = step
        if run := self.options.run or self._run:
            labels["run"] = run
        return Episode(self.pool.source, task, self.tools, self.options.rules, row=row, labels=labels)

    def prepare(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        one_prompt_per_task: bool = False,
        groups: Sequence[int] | None = None,
    ) -> list[Episode]:
        """Open the episodes of these rows concurrently; ``begin`` then returns each.

        With ``one_prompt_per_task`` an episode without a prompt, after a fault, gets that of its group, and
        different prompts in a group raise ValueError: a trainer that samples a group from one prompt would
        pair completions with wrong prompts. ``groups`` has the group number of each row; by default the rows
        of a task are a group.
        """
        wanted = [(_key(row), self.episode(row)) for row in rows]
        opened = self.pool.prepare(wanted)
        if one_prompt_per_task:
            found: dict[Any, list[Episode]] = {}
            for number, (key, episode) in enumerate(wanted):
                found.setdefault(key if groups is None else groups[number], []).append(episode)
            for group in found.values():
                prompt = common_prompt([(e.began, e.observation) for e in group], group[0].task)
                for episode in group:
                    episode.show(prompt)
        return opened

    def begin(self, row: Mapping[str, Any]) -> Episode:
        """Open episode for a row: a prepared one, or a new one."""
        episode = self.pool.take(_key(row))
        if episode is None:
            episode = self.episode(row)
            self.run(self.pool.open(episode))
        return episode

    def release(self, episodes: Iterable[Episode]) -> None:
        """End the sessions of these episodes in the background."""
        self.pool.start(self.pool.close(list(episodes)))

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Result of ``work`` on the loop of ``pool``."""
        return self.pool.run(work)

    def wait(self, future: Future[_T]) -> _T:
        """Wait for work started on ``pool``; the waiting time is counted."""
        return self.run(_result(future))

    def close(self) -> None:
        """End all sessions and the connection; the next use connects anew."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shut()


class Environments(Protocol):
    """The environments of a run: ``EnvironmentSpec`` has one, ``Mixture`` several."""

    def members(self) -> Sequence[LiveEnvironment]:
        """All environments."""
        ...

    def member(self, row: Mapping[str, Any]) -> LiveEnvironment:
        """The environment of a row."""
        ...


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    spec = row.get("task_spec")
    return (
        row.get("task_split"),
        row.get("task_index"),
        spec if spec is None or isinstance(spec, str) else json.dumps(spec, sort_keys=True),
    )


async def _result(future: Future[_T]) -> _T:
    return await asyncio.wrap_future(future)
