"""Translate a create request into ``OpenSession``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orsay_protocol.headers import BadSecrets, decode_secrets
from orsay_protocol.redact import Redactor
from orsay_protocol.requests import CreateSession
from orsay_protocol.trace import new_trace, read_traceparent

from ..errors import BadRequest, BadTask
from ..runtimes.base import EnvironmentInfo, OpenSession
from .request import Request

__all__ = ["open_request", "run_of", "secrets_of", "traceparent_of"]

_LONGEST_RUN = 512  # characters of a label that the log keeps
_LONGEST_READ = 8_192  # characters of a label that are searched for secrets


def secrets_of(request: Request) -> dict[str, str] | None:
    """Secrets from X-Secrets; None without the header. Raises BadRequest."""
    header = request.header(b"x-secrets")
    if header is None:
        return None
    try:
        return decode_secrets(header)
    except BadSecrets as exc:
        raise BadRequest(str(exc)) from None


def run_of(request: Request, hide: Redactor) -> str | None:
    """Labels of the session from X-Orsay-Run, cut to a bounded length; None without the header."""
    header = request.header(b"x-orsay-run")
    if not header:
        return None
    header = header[:_LONGEST_READ]
    clean = hide.json(header) if header.startswith("{") else hide.plain(header)
    return clean[:_LONGEST_RUN]


def traceparent_of(request: Request) -> str | None:
    """The client's trace headers, unchanged."""
    return request.header(b"traceparent")


def open_request(
    info: EnvironmentInfo,
    body: CreateSession,
    secrets: dict[str, str],
    *,
    index_only: bool,
    run: str | None = None,
    traceparent: str | None = None,
) -> OpenSession:
    """Translate a create request into ``OpenSession``. With ``index_only``, a task_spec must name split and
    index (S6). Raises BadTask.

    The session belongs to the trace of ``traceparent``, to a new one where that is missing or not valid.
    """
    spec = None if body.task_spec is None else dict(body.task_spec)
    split, index = body.split, body.index
    if index_only and spec is not None:
        reference = _as_reference(spec)
        if reference is None:
            raise BadTask("this server takes tasks by split and index only, no task_spec")
        spec, (split, index) = None, reference
    parent = read_traceparent(traceparent)
    return OpenSession(
        key=info.key,
        task_spec=spec,
        split=split,
        index=index,
        toolset_name=body.toolset_name,
        secrets=secrets,
        run=run,
        trace=new_trace() if parent is None else parent.trace,
        traceparent=None if parent is None else str(parent),
    )


def _as_reference(spec: Mapping[str, Any]) -> tuple[str, int] | None:
    split, index = spec.get("split"), spec.get("index")
    if set(spec) == {"split", "index"} and isinstance(split, str) and isinstance(index, int):
        return split, index
    return None
