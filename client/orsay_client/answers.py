"""Translation of HTTP answers into exceptions: the one module that reads status codes."""

from __future__ import annotations

from collections.abc import Callable

from orsay_protocol.details import detail_text
from orsay_protocol.headers import FAULT, ORSAY

from . import errors
from .redact import Redact
from .retry import is_starting, retry_after_s
from .transport import Answer

__all__ = ["detail_of", "error_for", "is_missing_route", "is_orsay", "refuses_input"]

_LONGEST_DETAIL = 4000
_INPUT = frozenset({400, 413, 422})


def is_orsay(answer: Answer) -> bool:
    """True if the server declares that it runs a call once per idempotency key."""
    return str(answer.headers.get(ORSAY, "")).strip() == "1"


def is_missing_route(answer: Answer) -> bool:
    """True if the server lacks this endpoint; False if the session or environment is unknown."""
    if answer.status in (405, 501):
        return True
    return answer.status == 404 and detail_of(answer) in ("Not Found", "")


def refuses_input(answer: Answer) -> bool:
    """True if the server refused the body as input and ran nothing: not JSON, nested too deep, too large, of
    a wrong type.
    """
    return answer.status in _INPUT and not answer.headers.get(FAULT, "").strip()


def error_for(answer: Answer, what: str, *, in_session: bool, redact: Redact) -> errors.OrsayClientError:
    """The exception for an answer that is no success. ``what`` names the request, as in "POST /create"."""
    detail = detail_of(answer, redact)
    message = redact(what) + (f": {detail}" if detail else f": the server answered {answer.status}")
    status, headers = answer.status, answer.headers
    fault_class = headers.get(FAULT, "").strip()
    if status in (401, 403):
        return errors.Unauthorized(message, status=status)
    if status == 410 or (status == 404 and in_session):
        if fault_class in ("", "session_gone"):
            return errors.SessionLost(message)
        known = errors.fault(fault_class, message)
        return known if isinstance(known, errors.SessionLost) else errors.SessionLost(message)
    if status == 429 or fault_class == "overloaded":
        return errors.Overloaded(message, retry_after_s=retry_after_s(headers))
    if status < 500 and status != 408 and fault_class in ("", "task_error"):
        return errors.BadRequest(message, status=status)
    if fault_class and fault_class != "internal":
        return errors.fault(fault_class, message)
    if is_starting(status, headers):
        return errors.TimeLimit(f"{message} (setup did not end while this client waited)")
    if status == 503:
        return errors.Overloaded(message, retry_after_s=retry_after_s(headers))
    return errors.ServerError(message, status=status)


def detail_of(answer: Answer, redact: Callable[[str], str] = str) -> str:
    """Error text of the server: ``detail`` of a JSON body, else the beginning of the body.

    ``redact`` removes secrets before a long text is cut.
    """
    if "json" not in answer.headers.get("content-type", ""):
        if "html" in answer.headers.get("content-type", ""):
            return ""
        return redact(answer.body.decode(errors="replace"))[:_LONGEST_DETAIL].strip()
    try:
        body = answer.json()
    except errors.ProtocolError:
        return ""
    return redact(detail_text(body))[:_LONGEST_DETAIL]
