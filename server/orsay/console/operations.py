"""OpenAPI operations of the console's endpoints."""

from __future__ import annotations

from orsay_protocol.evaluation import EvaluationReport
from pydantic import BaseModel, RootModel

from ..http.operations import Operation
from ..journal.read.models import EvaluationItem, Page, RunSummary, Series, TaskCell, Trajectory
from ..journal.read.rollouts import LoggedRollout, RolloutPage
from .about import Environments, ServerEntry
from .live import Snapshot
from .queries import (
    EvaluationsQuery,
    ExportQuery,
    RolloutsQuery,
    RunsQuery,
    SeriesQuery,
    TasksQuery,
    TrajectoriesQuery,
)
from .recent import Ended, Faults
from .sandboxes import EndedSandbox

__all__ = ["OPERATIONS"]

_TAG = "console"
_PAST = (401, 409, 422, 503)


class RunList(RootModel[list[RunSummary]]):
    """The newest first."""


class TaskList(RootModel[list[TaskCell]]):
    """Tasks by environment, split and index."""


class EvaluationList(RootModel[list[EvaluationItem]]):
    """The newest first."""


class SavedEvaluation(EvaluationReport):
    """A report as the journal has it."""

    id: str
    owner: str


class EvaluationId(BaseModel):
    """Answer to a saved report: its id."""

    id: str


def _get(
    path: str,
    summary: str,
    answer: type[BaseModel] | None,
    *,
    errors: tuple[int, ...] = (401,),
    query: type[BaseModel] | None = None,
    stream: bool = False,
) -> Operation:
    return Operation(
        "get",
        f"/console/api/{path}",
        summary,
        answer,
        session=False,
        stream=stream,
        errors=errors,
        tag=_TAG,
        name="console_" + path.replace("/{id}", "_one").replace("/", "_"),
        query=query,
    )


OPERATIONS = (
    _get("server", "What this server is, and how its journal does.", ServerEntry),
    _get("environments", "What is hosted, with its load.", Environments),
    _get(
        "live",
        "Live view: an event `snapshot` each second, until the client disconnects.",
        Snapshot,
        errors=(401, 429, 503),
        stream=True,
    ),
    _get("faults", "The last faults.", Faults),
    Operation(
        "post",
        "/console/api/sessions/{sid}/end",
        "End a session that is alive; returns when it is torn down.",
        Ended,
        session=False,
        errors=(401, 404, 410, 503),
        tag=_TAG,
        name="console_end",
    ),
    Operation(
        "post",
        "/console/api/sandboxes/{id}/end",
        "End a sandbox; returns when it is gone.",
        EndedSandbox,
        session=False,
        errors=(401, 404),
        tag=_TAG,
        name="console_end_sandbox",
    ),
    _get("trajectories", "Recorded sessions, a page at a time.", Page, errors=_PAST, query=TrajectoriesQuery),
    _get("trajectories/{id}", "All of one recorded session.", Trajectory, errors=(*_PAST, 404)),
    _get(
        "rollouts",
        "Rollouts that clients logged, a page at a time.",
        RolloutPage,
        errors=_PAST,
        query=RolloutsQuery,
    ),
    _get("rollouts/{id}", "All of one logged rollout.", LoggedRollout, errors=(*_PAST, 404)),
    Operation(
        "get",
        "/console/api/export",
        "Recorded sessions as a file of JSON lines: conversations for training, or whole trajectories.",
        session=False,
        errors=_PAST,
        tag=_TAG,
        name="console_export",
        query=ExportQuery,
        media="application/x-ndjson",
    ),
    _get("runs", "Metrics of each run.", RunList, errors=_PAST, query=RunsQuery),
    _get("runs/series", "How one run went on.", Series, errors=_PAST, query=SeriesQuery),
    _get("tasks", "What was solved, task by task.", TaskList, errors=_PAST, query=TasksQuery),
    _get("evaluations", "Evaluations.", EvaluationList, errors=_PAST, query=EvaluationsQuery),
    _get("evaluations/{id}", "One evaluation, episode by episode.", SavedEvaluation, errors=(*_PAST, 404)),
    Operation(
        "post",
        "/console/api/evaluations",
        "Keep a report, in place of an earlier one of the same evaluation.",
        EvaluationId,
        body=EvaluationReport,
        session=False,
        errors=(401, 409, 413, 422, 503),
        tag=_TAG,
        name="console_save_evaluation",
    ),
)
