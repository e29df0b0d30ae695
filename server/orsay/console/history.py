"""Endpoints that read the journal, and the one that adds an evaluation to it.

Queries and JSON encoding run on a thread of the journal.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from orsay_protocol.evaluation import EvaluationReport
from pydantic import BaseModel
from pydantic_core import to_json
from sqlalchemy import Connection, select

from ..errors import BadRequest, JournalDown
from ..faults import FaultLog
from ..journal.ids import new_id
from ..journal.read import query
from ..journal.read.filters import Filter
from ..journal.read.rollouts import RolloutFilter, rollout, rollout_page
from ..journal.records import EvaluationSaved
from ..journal.schema import evaluations
from ..journal.search.indexer import CatchUp
from ..journal.write.writer import Writer
from .download import send_export
from .policy import DetailPolicy
from .queries import (
    EvaluationsQuery,
    ExportQuery,
    FilterQuery,
    RolloutsQuery,
    RunsQuery,
    SeriesQuery,
    TasksQuery,
    TrajectoriesQuery,
)
from .request import BadQuery, JournalRequest

__all__ = ["History"]

Answer: TypeAlias = Callable[[JournalRequest], Awaitable[bytes | None]]
_ONE = re.compile(r"/(trajectories|rollouts|evaluations)/([0-9]+)")
_LARGEST_ID = 2**63 - 1
_COLUMNS = ("name", "run", "environment", "split", "model")


class History:
    """Endpoint ``answer`` for all paths below, which dispatches by path."""

    def __init__(self, writer: Writer, faults: FaultLog, *, max_body_bytes: int) -> None:
        self._writer = writer
        self._catch_up = CatchUp(writer)
        self._policy = DetailPolicy(faults)
        self._max_body = max_body_bytes
        self._table: dict[tuple[str, str], Answer] = {
            ("GET", "/trajectories"): self._trajectories,
            ("GET", "/rollouts"): self._rollouts,
            ("GET", "/runs"): self._runs,
            ("GET", "/runs/series"): self._series,
            ("GET", "/tasks"): self._tasks,
            ("GET", "/evaluations"): self._evaluations,
            ("POST", "/evaluations"): self._save_evaluation,
        }

    async def close(self) -> None:
        """Stop indexing; called before the journal is closed."""
        await self._catch_up.close()

    async def answer(self, path: str, request: JournalRequest) -> None:
        """Answer a request for one of these paths below ``/console/api``. Raises what ``Request.body``
        raises, and ValidationError for a body that does not fit.
        """
        try:
            if path == "/export":
                await self._export(request)
                return
            found = await self._find(path, request.http.method)(request)
        except BadQuery as bad:
            await request.answer(bad.body, status=422)
        except JournalDown as down:
            await request.refuse(503, "journal_down", str(down), more=((b"retry-after", b"5"),))
        else:
            if found is None:
                detail = f"the journal has nothing at {path}, or not for this key; it may have been removed"
                await request.refuse(404, "unknown_id", detail)
            else:
                await request.answer(found)

    def _find(self, path: str, method: str) -> Answer:
        match = _ONE.fullmatch(path)
        if match is None:
            return self._table[method, path]
        kinds = {
            "trajectories": self._trajectory,
            "rollouts": self._rollout,
            "evaluations": self._evaluation,
        }
        return partial(kinds[match[1]], int(match[2]))

    # sessions

    async def _trajectories(self, request: JournalRequest) -> bytes:
        wanted = request.query(TrajectoriesQuery)
        which = filter_of(wanted, request.owner)

        def read(connection: Connection) -> tuple[bytes, int]:
            page = query.trajectories(connection, which, wanted.limit, wanted.before)
            return _json(self._policy.page(page)), page.unindexed

        found, unindexed = await self._writer.read(read)
        if unindexed:
            self._catch_up.go_on()
        return found

    async def _trajectory(self, id: int, request: JournalRequest) -> bytes | None:
        def read(connection: Connection) -> bytes | None:
            found = query.trajectory(connection, id, owner=request.owner)
            return None if found is None else _json(self._policy.trajectory(found))

        return None if id > _LARGEST_ID else await self._writer.read(read)

    async def _export(self, request: JournalRequest) -> None:
        wanted = request.query(ExportQuery)
        which = replace(filter_of(wanted, request.owner), trials=wanted.trials)
        await send_export(self._writer, self._policy, wanted, which, request)

    # rollouts that clients logged

    async def _rollouts(self, request: JournalRequest) -> bytes:
        wanted = request.query(RolloutsQuery)
        conditions = wanted.model_dump(exclude={"limit", "before"})
        which = RolloutFilter(**conditions, owner=request.owner)
        return await self._writer.read(lambda c: _json(rollout_page(c, which, wanted.limit, wanted.before)))

    async def _rollout(self, id: int, request: JournalRequest) -> bytes | None:
        def read(connection: Connection) -> bytes | None:
            found = rollout(connection, id, owner=request.owner)
            return None if found is None else _json(found)

        return None if id > _LARGEST_ID else await self._writer.read(read)

    # metrics

    async def _runs(self, request: JournalRequest) -> bytes:
        wanted = request.query(RunsQuery).model_dump()
        return await self._writer.read(lambda c: to_json(query.runs(c, **wanted, owner=request.owner)))

    async def _series(self, request: JournalRequest) -> bytes:
        wanted = request.query(SeriesQuery).model_dump()
        return await self._writer.read(lambda c: _json(query.series(c, **wanted, owner=request.owner)))

    async def _tasks(self, request: JournalRequest) -> bytes:
        wanted = request.query(TasksQuery).model_dump()
        return await self._writer.read(lambda c: to_json(query.task_map(c, **wanted, owner=request.owner)))

    # evaluations

    async def _evaluations(self, request: JournalRequest) -> bytes:
        wanted = request.query(EvaluationsQuery).model_dump()
        return await self._writer.read(lambda c: to_json(query.evaluations(c, **wanted, owner=request.owner)))

    async def _evaluation(self, id: int, request: JournalRequest) -> bytes | None:
        def read(connection: Connection) -> bytes | None:
            found = query.evaluation(connection, id, owner=request.owner)
            return None if found is None else to_json(found)

        return None if id > _LARGEST_ID else await self._writer.read(read)

    async def _save_evaluation(self, request: JournalRequest) -> bytes:
        """Save a report, replacing an earlier one of the same evaluation, such as before a resume."""
        body = await request.http.body(self._max_body)
        report = await asyncio.to_thread(EvaluationReport.model_validate_json, body)
        for name in _COLUMNS:
            if "\0" in getattr(report, name):
                raise BadRequest(f"{name!r} of the report holds a NUL, which a database does not take")
        owner = request.owner or ""
        earlier = await self._writer.read(partial(_same_evaluation, report=report, owner=owner))
        row = await asyncio.to_thread(_row, new_id() if earlier is None else earlier, report, owner)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._writer.add(row, lambda committed: None if done.done() else done.set_result(committed))
        if not await done:
            raise JournalDown(f"the journal did not take the evaluation: {self._writer.health.reason}")
        return to_json({"id": str(row.id)})


def filter_of(wanted: FilterQuery, owner: str | None) -> Filter:
    """Filter for the journal from the query, restricted to the sessions of ``owner``."""
    return Filter(**wanted.model_dump(include=set(FilterQuery.model_fields)), owner=owner)


def _json(found: BaseModel) -> bytes:
    return found.model_dump_json().encode()


def _same_evaluation(connection: Connection, *, report: EvaluationReport, owner: str) -> int | None:
    table = evaluations.c
    same = (
        table.run == report.run,
        table.owner == owner,
        table.name == report.name,
        table.started_at == report.started_at,
    )
    found: int | None = connection.scalar(select(table.id).where(*same).limit(1))
    return found


def _row(id: int, report: EvaluationReport, owner: str) -> EvaluationSaved:
    fields: dict[str, Any] = report.model_dump(include={*_COLUMNS, "started_at", "ended_at"})
    summary = json.dumps(report.summary.model_dump(mode="json"))
    return EvaluationSaved(id=id, **fields, owner=owner, summary=summary, report=_json(report))
