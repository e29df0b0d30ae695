"""How the console's endpoints are described in the OpenAPI document."""

from __future__ import annotations

from ..http.operations import Operation
from .about import Environments, ServerEntry
from .live import Snapshot
from .recent import Ended, Faults

__all__ = ["OPERATIONS"]

_TAG = "console"


def _get(
    path: str, summary: str, answer: type | None, *, errors: tuple[int, ...] = (401,), stream: bool = False
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
    )


OPERATIONS = (
    _get("server", "What this server is, and how its journal does.", ServerEntry),
    _get("environments", "What is hosted, with its load.", Environments),
    _get(
        "live",
        "What goes on now: an event `snapshot` each second, until the client goes.",
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
        errors=(401, 404, 410),
        tag=_TAG,
        name="console_end",
    ),
)
