"""A running evaluation: planned attempts, played episodes, and the report."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from orsay_client import AsyncClient, AsyncEnvironment, OrsayClientError
from orsay_protocol.evaluation import EvaluatedEpisode, EvaluationReport
from pydantic_core import from_json, to_json

from .definition import Evaluation
from .errors import EvaluationError
from .kept import Kept, lines_beside
from .moves import Policy
from .play import Attempt, AttemptContext, Played, play
from .progress import Progress
from .summary import summarize

__all__ = ["TooManyLost", "Work"]

_LEAST_LOST = 16  # episodes lost in a row before the evaluation gives up
_FETCHES = 32


class TooManyLost(Exception):
    """Many episodes in a row were lost to faults."""


class Work:
    """A running evaluation."""

    def __init__(
        self,
        evaluation: Evaluation,
        policy: Policy,
        concurrency: int,
        on_progress: Callable[[Progress], None] | None,
        on_note: Callable[[str], None] | None,
        output: Path | None,
    ) -> None:
        self._evaluation, self._policy, self._concurrency = evaluation, policy, concurrency
        self._on_progress, self._on_note, self._output = on_progress, on_note, output
        self._kept = Kept(lines_beside(output)) if output else None
        self._played: dict[Attempt, Played] = {}
        self._plan: list[Attempt] = []
        self._context: AttemptContext | None = None
        self._resumed = 0
        self._began = 0.0
        self._lost_in_a_row: deque[str] = deque(maxlen=max(_LEAST_LOST, concurrency))
        self._complete = False
        self._scored = self._lost = self._successes = self._tokens = 0
        self._reward_sum = 0.0

    async def prepare(
        self,
        client: AsyncClient,
        *,
        name: str | None,
        run: str | None,
        step: int | None,
        resume: bool,
        secrets: Mapping[str, str] | None,
    ) -> None:
        """Read the tasks from the server, and the episodes that are done from the file."""
        evaluation = self._evaluation
        self._environment = evaluation.environment or next(iter(await client.environments()), "")
        environment = client.environment(self._environment or None)
        count = await environment.tasks(evaluation.split).count()
        try:
            indices = evaluation.indices(count)
        except ValueError as exc:
            raise EvaluationError(str(exc)) from exc
        if not indices:
            raise EvaluationError(f"split {evaluation.split!r} of {self._environment!r} has no tasks")
        if isinstance(evaluation.tasks, int) and len(indices) < evaluation.tasks:
            self._note(f"split {evaluation.split!r} has {len(indices)} tasks, not {evaluation.tasks}")
        self._indices = indices
        self._plan = [Attempt(index, number) for number in range(evaluation.k) for index in indices]
        self._started_at = time.time()
        self._run = run or name or self._own_name()
        self._name = name or self._run
        self._step = step
        specs = await _specs(environment, evaluation.split, indices) if self._policy.wants_spec else None
        header = self._header()
        if self._kept is not None:
            self._resume(self._kept, header, resume)
        labels: dict[str, str | int] = {"run": self._run}
        if step is not None:
            labels["step"] = step
        self._context = AttemptContext(environment, evaluation, self._policy, labels, secrets, specs)

    async def play_all(self) -> None:
        """Play the remaining attempts. Raises the first error that would affect every attempt."""
        todo = deque(attempt for attempt in self._plan if attempt not in self._played)
        self._began = time.perf_counter()
        self._report_progress(None)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrency, len(todo))):
                    group.create_task(self._worker(todo))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from several
        self._complete = True

    async def _worker(self, todo: deque[Attempt]) -> None:
        assert self._context is not None
        while todo:
            self._take(await play(self._context, todo.popleft()))

    def _take(self, played: Played) -> None:
        self._add(played)
        if self._kept is not None:
            self._kept.add(played)
        episode = played.episode
        self._report_progress(episode)
        if episode.fault is None:
            self._lost_in_a_row.clear()
            return
        self._lost_in_a_row.append(episode.fault)
        if len(self._lost_in_a_row) == self._lost_in_a_row.maxlen:
            raise TooManyLost(
                f"the last {len(self._lost_in_a_row)} episodes were all lost to faults, the last one to "
                f"{episode.fault}: {episode.fault_message}"
            )

    def _add(self, played: Played) -> None:
        episode = played.episode
        self._played[Attempt(episode.index, episode.attempt)] = played
        if episode.reward is not None:
            self._scored += 1
            self._reward_sum += episode.reward
        self._lost += episode.fault is not None
        self._successes += bool(episode.success)
        self._tokens += episode.tokens.input + episode.tokens.output

    def _header(self) -> dict[str, Any]:
        """Settings of the measurement as JSON. Raises EvaluationError if the report could not be written."""
        evaluation = self._evaluation
        measured = {
            "environment": self._environment,
            "split": evaluation.split,
            "model": self._policy.name,
            **evaluation.settings(),
            "policy": self._policy.settings(),
        }
        names = {"name": self._name, "run": self._run, "started_at": self._started_at}
        try:
            header: dict[str, Any] = from_json(to_json({"format": 1, "measured": measured, **names}))
        except ValueError as exc:  # half of a surrogate pair, an object of Python's own, too deep
            raise EvaluationError(f"names and settings must be JSON, to be written down: {exc}") from exc
        return header

    def _resume(self, kept: Kept, header: Mapping[str, Any], resume: bool) -> None:
        kept.begin(header, resume=resume)
        self._name = str(kept.header.get("name") or self._name)
        self._run = str(kept.header.get("run") or self._run)
        self._started_at = float(kept.header.get("started_at") or self._started_at)
        for attempt in self._plan:
            played = kept.played.get(attempt)
            if played is not None and played.episode.fault is None:
                self._add(played)
        self._resumed = len(self._played)

    def _report_progress(self, last: EvaluatedEpisode | None) -> None:
        if self._on_progress is not None:
            seconds = time.perf_counter() - self._began
            self._on_progress(
                Progress(
                    planned=len(self._plan),
                    done=len(self._played),
                    resumed=self._resumed,
                    scored=self._scored,
                    lost=self._lost,
                    reward_sum=self._reward_sum,
                    successes=self._successes,
                    tokens=self._tokens,
                    seconds=seconds,
                    last=last,
                )
            )

    def _note(self, text: str) -> None:
        if self._on_note is not None:
            self._on_note(text)

    def finish(self) -> EvaluationReport:
        """Make and write the report, and close the log of episodes."""
        seconds = time.perf_counter() - self._began if self._began else 0.0
        kept = self._kept
        if kept is not None:
            kept.part(seconds)
            seconds = kept.seconds
            kept.close()
            if not kept.played:
                kept.path.unlink()  # nothing was played: allow a fresh start
        evaluation = self._evaluation
        wanted = [
            self._played[attempt] for attempt in sorted(self._plan, key=_order) if attempt in self._played
        ]
        episodes = [played.episode for played in wanted]
        report = EvaluationReport(
            name=self._name,
            run=self._run,
            environment=self._environment,
            split=evaluation.split,
            model=self._policy.name,
            settings={
                **evaluation.settings(),
                "policy": self._policy.settings(),
                "retries": evaluation.retries,
                "sample": evaluation.sample,
                "concurrency": self._concurrency,
                "step": self._step,
                "orsay": _version(),
            },
            started_at=self._started_at,
            ended_at=time.time() if self._complete else None,
            summary=summarize(
                episodes,
                n_tasks=len(self._indices),
                k=evaluation.k,
                success=evaluation.success,
                latencies=[seconds for played in wanted for seconds in played.latencies],
                wall_seconds=seconds,
            ),
            episodes=episodes,
        )
        if self._output is not None and episodes:
            _write(self._output, report)
        return report

    def _own_name(self) -> str:
        parts = (self._environment, self._evaluation.split, self._policy.name)
        slug = "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-") for part in parts)
        return f"{slug}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(self._started_at))}"


def _order(attempt: Attempt) -> tuple[int, int]:
    return attempt.index, attempt.number


def _write(path: Path, report: EvaluationReport) -> None:
    """Write the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)


def _version() -> str:
    try:
        return version("orsay")
    except PackageNotFoundError:
        return ""


async def _specs(
    environment: AsyncEnvironment, split: str, indices: Sequence[int]
) -> dict[int, Mapping[str, Any]]:
    """The tasks' specs; empty if the server does not disclose them."""
    tasks = environment.tasks(split)
    limit = asyncio.Semaphore(_FETCHES)

    async def fetch(index: int) -> tuple[int, Mapping[str, Any]]:
        async with limit:
            return index, (await tasks.get(index)).spec

    try:
        if list(indices) == list(range(indices[0], indices[0] + len(indices))):
            found = await tasks.range(indices[0], indices[-1] + 1)
            return {index: task.spec for index, task in zip(indices, found, strict=False)}
        return dict(await asyncio.gather(*map(fetch, indices)))
    except OrsayClientError:
        return {}
