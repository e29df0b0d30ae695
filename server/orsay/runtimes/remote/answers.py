"""Translation of an upstream's error answers into our errors.

Orsay servers send the error class in headers; for others it is derived from status and text. ``hide`` removes
secrets from texts before they are cut, since not every server does.
"""

from __future__ import annotations

from typing import Any, cast

from orsay_protocol.details import detail_text
from orsay_protocol.faults import FAULT_CLASSES, Fault, FaultClass
from orsay_protocol.headers import BACKEND_STATE, CODE, FAULT, FAULT_ID
from orsay_protocol.redact import NOTHING, Redactor
from pydantic import ValidationError

from ...errors import (
    REFUSALS,
    BadRequest,
    Faulted,
    Forbidden,
    InvalidIndex,
    InvalidSplit,
    Overloaded,
    Refused,
    ShuttingDown,
    Starting,
    TooLarge,
    UnknownEnvironment,
    Unsupported,
)
from .http import Answer

__all__ = [
    "detail_of",
    "error_of",
    "fault_of",
    "gone_reason",
    "is_from_between",
    "is_missing_route",
    "is_starting",
]

_LONGEST_DETAIL = 20_000
_LONGEST_TEXT = 2000
_LONGEST_RETRY_S = 60.0


def error_of(
    answer: Answer,
    upstream: str,
    hide: Redactor,
    *,
    fault: FaultClass = "internal",
    refusal: type[Refused] = BadRequest,
) -> Faulted | Refused:
    """Our error for an error ``answer``.

    For answers without the class: ``fault`` is the meaning of status 500 at this endpoint, ``refusal`` that
    of other 4xx. ``upstream`` names the server in our own messages.
    """
    detail = detail_of(answer, hide)
    code = answer.headers.get(CODE, "")
    if answer.status in (401, 403):
        what = "this one" if code == Forbidden.code else "the API key of this one"
        return Faulted("internal", f"{upstream} refused {what}: {detail}")
    known = REFUSALS.get(code)
    if known is not None:
        return _refused(known, detail, answer)
    named = answer.headers.get(FAULT, "")
    if named in FAULT_CLASSES:
        return _named(named, detail, answer.headers.get(FAULT_ID), upstream)
    if is_starting(answer):
        return _refused(Starting, detail, answer)
    if answer.status == 500:
        return Faulted(fault, detail or f"{upstream} failed")
    if answer.status >= 500 or answer.status < 400:
        return Faulted("internal", f"{upstream} answered {answer.status}: {detail}")
    return _refused(_kind(answer.status, detail, refusal), detail, answer)


def _kind(status: int, detail: str, otherwise: type[Refused]) -> type[Refused]:
    if status == 429:
        return Overloaded
    if status == 413:
        return TooLarge
    if status == 404:
        return UnknownEnvironment if "nvironment" in detail else Unsupported
    if detail == "Invalid split":
        return InvalidSplit
    if detail.startswith("Invalid index"):
        return InvalidIndex
    return otherwise


def _refused(kind: type[Refused], detail: str, answer: Answer) -> Refused:
    error = kind(detail or f"refused with status {answer.status}")
    asked = answer.headers.get("Retry-After", "")
    if asked.isdigit() and kind in (Overloaded, Starting, ShuttingDown):
        error.retry_after_s = min(float(asked), _LONGEST_RETRY_S)
    return error


def fault_of(data: Any, upstream: str, hide: Redactor) -> Faulted | None:
    """The fault in an Orsay server's JSON, given as text or as an object."""
    try:
        wire = Fault.model_validate_json(data) if isinstance(data, bytes) else Fault.model_validate(data)
    except ValidationError:
        return None
    known = wire.fault_class if wire.fault_class in FAULT_CLASSES else "internal"
    return _named(known, hide.plain(wire.message)[:_LONGEST_DETAIL], wire.id, upstream)


def _named(known: str, message: str, number: str | None, upstream: str) -> Faulted:
    """A valid fault id, which links the two logs; other text is dropped, as the id is logged and sent."""
    good = number is not None and len(number) <= 64 and number.isascii() and number.isalnum()
    fault = Faulted(cast("FaultClass", known), message, number if good and number is not None else "")
    if fault.fault_id:
        fault.trace = f"the log of {upstream} has more under the id {fault.fault_id}"
    return fault


def gone_reason(answer: Answer, hide: Redactor) -> tuple[FaultClass, str] | None:
    """Class and reason from an answer that the session is gone; None for other answers."""
    detail, named = detail_of(answer, hide), answer.headers.get(FAULT, "")
    if answer.status == 410 and named in ("", "session_gone", "worker_lost"):
        return ("worker_lost" if named == "worker_lost" else "session_gone"), detail or "the session is gone"
    code = answer.headers.get(CODE, "")
    if answer.status == 404 and (code == "unknown_session" or detail == "Active environment not found"):
        return "worker_lost", "the server that held the session does not have it any more"
    return None


def is_starting(answer: Answer) -> bool:
    """True if nothing ran because setup, or the server itself, still starts."""
    return answer.status == 503 and answer.headers.get(BACKEND_STATE, "").strip().lower() == "starting"


def is_from_between(answer: Answer) -> bool:
    """True if a proxy answered in place of the server, which may have received the request nevertheless."""
    headers = answer.headers
    by_server = headers.get(CODE) or headers.get(FAULT) or is_starting(answer)
    return answer.status in (502, 503, 504) and not by_server


def is_missing_route(answer: Answer) -> bool:
    """True if the server lacks this endpoint; False if the session or environment is unknown."""
    if answer.headers.get(CODE):
        return False
    return answer.status in (405, 501) or (answer.status == 404 and detail_of(answer) in ("Not Found", ""))


def detail_of(answer: Answer, hide: Redactor = NOTHING) -> str:
    """Error text: ``detail`` of a JSON body, else the beginning of the body."""
    kind = answer.headers.get("content-type", "")
    if "html" in kind:
        return ""
    if "json" not in kind:
        return hide.plain(answer.body.decode(errors="replace"))[:_LONGEST_TEXT].strip()
    return hide.plain(detail_text(answer.json()))[:_LONGEST_DETAIL]
