"""Every error the server raises on purpose.

    OrsayError
    ├── LoadError              an environment class cannot be hosted; the text says why and what to do
    │   └── ImageMissing       the Docker engine has no such image and cannot get it
    ├── ToolDefinitionError    a method marked as a tool cannot be one; also a TypeError
    ├── ConfigError            a setting is wrong
    ├── JournalDown            the journal cannot be read or written now; the text says why and what to do
    ├── EngineError            the Docker engine refused, or does not answer
    │   ├── NotThere           the engine has no such container, image or network
    │   └── EngineRefused      what was asked for cannot be, as the engine says
    ├── SandboxError           the machinery of a sandbox failed
    │   └── SandboxGone        the sandbox has ended
    ├── SandboxRefused         a sandbox cannot be as its author asks
    ├── SpaceError             a Space cannot be made from the project, or the hub refused
    ├── Refused                the request cannot be served; nothing ran. Carries a code
    │   ├── InvalidSplit, InvalidIndex, ListingUnsupported, BadTask
    │   ├── UnknownEnvironment, UnknownSession, SessionGone, SessionConflict, KeyConflict
    │   ├── Unauthorized, Forbidden, BadRequest, TooLarge, Unsupported
    │   └── Overloaded, Starting, ShuttingDown, OpeningLost
    └── Faulted                author code or its worker failed. Carries a fault class

Only ``orsay.http.errors`` turns these into status codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from orsay_protocol.faults import FaultClass
from orsay_protocol.redact import NOTHING, Redactor

__all__ = [
    "REFUSALS",
    "BadRequest",
    "BadTask",
    "ConfigError",
    "EngineError",
    "EngineRefused",
    "Faulted",
    "Forbidden",
    "ImageMissing",
    "InvalidIndex",
    "InvalidSplit",
    "JournalDown",
    "KeyConflict",
    "ListingUnsupported",
    "LoadError",
    "NotThere",
    "OpeningLost",
    "OrsayError",
    "Overloaded",
    "Refused",
    "SandboxError",
    "SandboxGone",
    "SandboxRefused",
    "SessionConflict",
    "SessionGone",
    "ShuttingDown",
    "SpaceError",
    "Starting",
    "TooLarge",
    "ToolDefinitionError",
    "Unauthorized",
    "UnknownEnvironment",
    "UnknownSession",
    "Unsupported",
    "exception_text",
]


class OrsayError(Exception):
    """Base of all."""


class LoadError(OrsayError):
    """An environment class cannot be hosted."""


class ImageMissing(LoadError):
    """The Docker engine has no such image and could not pull it; the text has the remedy."""


class ToolDefinitionError(OrsayError, TypeError):
    """A method marked as a tool cannot be one; raised where its class is defined, or when it is hosted."""


class ConfigError(OrsayError):
    """A setting is wrong, or two settings contradict each other."""


class JournalDown(OrsayError):
    """The journal cannot be read or written now. ``hint`` says what to do; neither text holds a password."""

    def __init__(
        self, reason: str, hint: str = "", *, kind: Literal["away", "damaged", "lost", "mistake"] = "away"
    ) -> None:
        super().__init__(f"{reason}; {hint}" if hint else reason)
        self.reason = reason
        self.hint = hint
        self.kind = kind


class EngineError(OrsayError):
    """The Docker engine refused something, or does not answer."""


class NotThere(EngineError):
    """The Docker engine has no such container, image or network."""


class EngineRefused(EngineError):
    """The Docker engine says that what was asked for cannot be: a limit, a name, a mount."""


class SandboxError(OrsayError):
    """The machinery of a sandbox failed: neither a command in it nor one of its limits."""


class SandboxGone(SandboxError):
    """The sandbox has ended; the text has the reason."""


class SandboxRefused(OrsayError, ValueError):
    """A sandbox cannot be as its author asks; the text says what to change."""


class SpaceError(OrsayError):
    """A Space cannot be made from the project, or the hub refused it; the text has reason and remedy."""


class Refused(OrsayError):
    """The request cannot be served, and nothing ran. ``detail`` is for the client, ``code`` for programs."""

    code: ClassVar[str] = "refused"
    retry_after_s: float | None = None
    fault: FaultClass | None = None

    def __init__(self, detail: str) -> None:
        detail = _writable(detail)
        super().__init__(detail)
        self.detail = detail

    def redact(self, hide: Redactor) -> None:
        """Remove secrets from the message."""
        if hide:
            self.detail = hide.plain(self.detail)
            self.args = (self.detail,)


class BadRequest(Refused):
    """A header or parameter is missing or wrong."""

    code = "bad_request"


class InvalidSplit(Refused):
    """The environment has no split of that name."""

    code = "invalid_split"


class InvalidIndex(Refused):
    """The split has no task at that index."""

    code = "invalid_index"


class ListingUnsupported(Refused):
    """The environment counts and gets tasks but cannot list them."""

    code = "listing_unsupported"


class BadTask(Refused):
    """The task, or the toolset asked for with it, does not fit the environment or the server's settings."""

    code = "bad_task"


class UnknownEnvironment(Refused):
    """The server hosts no environment of that name."""

    code = "unknown_environment"


class UnknownSession(Refused):
    """The session never existed, ended long ago, or belongs to another key."""

    code = "unknown_session"


class SessionGone(Refused):
    """The session ended: deleted, expired, or its worker was lost."""

    code = "session_gone"
    fault: FaultClass | None = "session_gone"


class SessionConflict(Refused):
    """A session of that id exists and was made from another body."""

    code = "session_conflict"


class KeyConflict(Refused):
    """The Idempotency-Key belongs to another request of the session."""

    code = "key_conflict"


class Unauthorized(Refused):
    """The API key is missing or wrong."""

    code = "unauthorized"


class Forbidden(Refused):
    """The origin of a web page, or the host name in its URL, is not allowed."""

    code = "forbidden"


class TooLarge(Refused):
    """The request body is over the limit."""

    code = "too_large"


class Unsupported(Refused):
    """The environment does not offer this."""

    code = "unsupported"


class Overloaded(Refused):
    """A limit is reached; the same request may succeed later."""

    code = "overloaded"
    retry_after_s = 2.0
    fault: FaultClass | None = "overloaded"


class Starting(Refused):
    """Setup still runs, or the worker still starts; nothing ran."""

    code = "starting"
    retry_after_s = 2.0


class OpeningLost(Refused):
    """The worker died while it opened the session; the same request may be sent again."""

    code = "opening_lost"
    retry_after_s = 1.0
    fault: FaultClass | None = "worker_lost"


class ShuttingDown(Refused):
    """The server takes no new work."""

    code = "shutting_down"
    retry_after_s = 5.0
    fault: FaultClass | None = "shutdown"


REFUSALS: Mapping[str, type[Refused]] = {each.code: each for each in Refused.__subclasses__()}
"""The classes by their codes."""


class Faulted(OrsayError):
    """Author code or the worker that ran it failed.

    ``message`` may contain the exception's text and is subject to the server's error-detail policy;
    ``fault_id`` is its id in the log, perhaps assigned by an upstream server; ``trace`` is the traceback, for
    the log only. ``reported``: it is in the log.
    """

    def __init__(self, fault: FaultClass, message: str, fault_id: str = "") -> None:
        message = _writable(message)
        super().__init__(message)
        self.fault = fault
        self.message = message
        self.fault_id = fault_id
        self.trace = ""
        self.reported = False

    def redact(self, hide: Redactor) -> None:
        """Remove secrets from the message and the traceback."""
        if hide:
            self.message = hide.plain(self.message)
            self.trace = self.trace and hide.plain(self.trace)
            self.args = (self.message,)


_LONGEST_TEXT = 20_000


def _writable(text: str) -> str:
    """Text without lone surrogates: author code raises these errors too."""
    return text.encode(errors="backslashreplace").decode()


def exception_text(error: BaseException, hide: Redactor = NOTHING) -> str:
    """``Type: message`` without lone surrogates, also for an exception whose ``__str__`` raises.

    Secrets are removed before a long text is cut.
    """
    try:
        text = str(error)
    except BaseException as exc:  # author code: anything may happen in its __str__
        text = f"(its text cannot be shown: {type(exc).__name__})"
    text = hide.plain(text)
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"
    return f"{type(error).__name__}: {text}".encode(errors="backslashreplace").decode()
