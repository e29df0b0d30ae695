"""Errors of the client, grouped by the side that has to act.

    OrsayClientError
    ├── ToolRefused          an answer: the environment examined the call and refused it
    ├── Fault                no answer exists: retry or mask the rollout, never score it as 0
    │   ├── ToolError        tool_error: the tool raised
    │   ├── BadReward        bad_reward: the tool gave a reward that is no number
    │   ├── SetupError       setup_error: the constructor or setup raised
    │   ├── PromptError      prompt_error: making the prompt raised
    │   ├── ScoreError       score_error: group scoring raised
    │   ├── TaskError        task_error: listing or building tasks raised
    │   ├── TimeLimit        time_limit: the call or the setup ran past its limit
    │   ├── ResultTooLarge   result_too_large: the result is over a size limit
    │   ├── CallCancelled    cancelled: the server gave the call up
    │   ├── SessionLost      session_gone: the server no longer has the session
    │   │   └── WorkerLost   worker_lost: the process that held the session died
    │   ├── Overloaded       overloaded: a limit of the server is reached
    │   ├── ServerStopping   shutdown: the server is stopping
    │   ├── UnknownTask      unknown_task_id: the server forgot the call that broke
    │   ├── ConnectionLost   connection_lost: no whole answer came through
    │   ├── Diverged         diverged: a fresh session answered differently from the lost one
    │   └── ServerError      internal: the server failed by itself
    ├── RequestError         the request is wrong: sending it again cannot help
    │   ├── BadRequest       400, 404, 409, 413, 422: the server refused the request, or it cannot be sent
    │   ├── Unauthorized     401, 403: the API key is missing or wrong
    │   └── Unsupported      the server does not offer this
    ├── ProtocolError        the server's answer is not ORS
    └── ClientClosed         the client or the session was closed before

Every class survives pickling, since errors cross process boundaries in training. No message or field ever
holds an API key or a secret.
"""

from __future__ import annotations

from typing import ClassVar

from orsay_protocol import RETRYABLE

__all__ = [
    "BadRequest",
    "BadReward",
    "CallCancelled",
    "ClientClosed",
    "ConnectionLost",
    "Diverged",
    "Fault",
    "OrsayClientError",
    "Overloaded",
    "PromptError",
    "ProtocolError",
    "RequestError",
    "ResultTooLarge",
    "ScoreError",
    "ServerError",
    "ServerStopping",
    "SessionLost",
    "SetupError",
    "TaskError",
    "TimeLimit",
    "ToolError",
    "ToolRefused",
    "Unauthorized",
    "UnknownTask",
    "Unsupported",
    "WorkerLost",
    "fault",
]

# Pickling calls the class with ``args`` and then restores the attributes: that is why every parameter past
# the message has a default.


class OrsayClientError(Exception):
    """Base of everything this package raises on purpose.

    ``trace`` is the trace id of the session, which the logs of all servers on the way contain; "" outside of
    a session. Tracebacks show it.
    """

    trace: str = ""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class ToolRefused(OrsayClientError):
    """The environment refused a call, and the tool did not run; show ``message`` to the model.

    ``reason`` is not_found, name_collision, input_validation or episode_finished. An input that no request
    can carry, or that the server does not even read (not JSON, nested too deep, too large), is one of
    input_validation too: other arguments may well be taken.
    """

    def __init__(self, message: str = "", *, reason: str = "not_found") -> None:
        super().__init__(message)
        self.reason = reason


class Fault(OrsayClientError):
    """A failure in place of an answer of the environment.

    ``fault_class`` is the class on the wire, ``id`` the fault's id in the server's log ("" if the server sent
    none), ``retryable`` is true if a fresh session may well succeed.
    """

    wire_class: ClassVar[str] = "internal"
    fresh_session_may_help: ClassVar[bool | None] = None

    def __init__(
        self,
        message: str = "",
        *,
        fault_class: str | None = None,
        id: str = "",
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.fault_class = fault_class or self.wire_class
        self.id = id
        if retryable is None:
            retryable = self.fresh_session_may_help
        self.retryable = self.fault_class in RETRYABLE if retryable is None else retryable


class ToolError(Fault):
    """The tool raised, or returned something that is no result."""

    wire_class = "tool_error"


class BadReward(Fault):
    """The tool gave a reward that is NaN or infinite."""

    wire_class = "bad_reward"


class SetupError(Fault):
    """The environment's constructor or setup raised."""

    wire_class = "setup_error"


class PromptError(Fault):
    """The environment failed to make its prompt or messages."""

    wire_class = "prompt_error"


class ScoreError(Fault):
    """Group scoring raised; the session goes on."""

    wire_class = "score_error"


class TaskError(Fault):
    """The environment failed to list or build its tasks."""

    wire_class = "task_error"


class TimeLimit(Fault):
    """The call or the setup ran past its time limit."""

    wire_class = "time_limit"


class ResultTooLarge(Fault):
    """The result is over the size limit of the server or of this client."""

    wire_class = "result_too_large"


class CallCancelled(Fault):
    """The server cancelled the call, for example because its session was deleted."""

    wire_class = "cancelled"


class SessionLost(Fault):
    """The server no longer has the session; the message gives the server's reason."""

    wire_class = "session_gone"
    fresh_session_may_help = True


class WorkerLost(SessionLost):
    """The process that held the session died, and the session with it."""

    wire_class = "worker_lost"


class Overloaded(Fault):
    """A limit of the server is reached, and still is after all retries.

    ``retry_after_s`` is the server's last Retry-After, or None.
    """

    wire_class = "overloaded"

    def __init__(
        self,
        message: str = "",
        *,
        fault_class: str | None = None,
        id: str = "",
        retryable: bool | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, fault_class=fault_class, id=id, retryable=retryable)
        self.retry_after_s = retry_after_s


class ServerStopping(Fault):
    """The server is shutting down."""

    wire_class = "shutdown"


class UnknownTask(Fault):
    """The connection broke, and meanwhile the server forgot the call: it ran, its result is lost."""

    wire_class = "unknown_task_id"
    fresh_session_may_help = True


class ConnectionLost(Fault):
    """The connection broke before the whole answer had arrived.

    With ``may_have_run`` the request reached the server or may have: repeating it by hand could run a
    tool twice.
    """

    wire_class = "connection_lost"
    fresh_session_may_help = True

    def __init__(
        self,
        message: str = "",
        *,
        fault_class: str | None = None,
        id: str = "",
        retryable: bool | None = None,
        may_have_run: bool = False,
    ) -> None:
        super().__init__(message, fault_class=fault_class, id=id, retryable=retryable)
        self.may_have_run = may_have_run


class Diverged(Fault):
    """A fresh session answered the same calls differently from the lost one."""

    wire_class = "diverged"
    fresh_session_may_help = False


class ServerError(Fault):
    """The server answered 5xx without a fault class."""

    wire_class = "internal"

    def __init__(
        self,
        message: str = "",
        *,
        fault_class: str | None = None,
        id: str = "",
        retryable: bool | None = None,
        status: int = 500,
    ) -> None:
        super().__init__(message, fault_class=fault_class, id=id, retryable=retryable)
        self.status = status


class RequestError(OrsayClientError):
    """The request cannot succeed unchanged; ``status`` is None if it was never sent."""

    def __init__(self, message: str = "", *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class BadRequest(RequestError):
    """The server refused the request: an unknown environment, split or index, or a wrong type.

    Also a body that cannot be encoded as JSON; ``status`` is None then.
    """


class Unauthorized(RequestError):
    """The API key is missing, wrong, or not the one that made the session."""


class Unsupported(RequestError):
    """The server or the environment does not support the request."""


class ProtocolError(OrsayClientError):
    """The server's answer is not ORS: check the URL."""


class ClientClosed(OrsayClientError):
    """The client or the session is not open."""


_BY_CLASS: dict[str, type[Fault]] = {
    cls.wire_class: cls
    for cls in (
        ToolError,
        BadReward,
        SetupError,
        PromptError,
        ScoreError,
        TaskError,
        TimeLimit,
        ResultTooLarge,
        CallCancelled,
        SessionLost,
        WorkerLost,
        Overloaded,
        ServerStopping,
        UnknownTask,
        ServerError,
    )
}


def fault(fault_class: str, message: str, *, id: str = "", retryable: bool | None = None) -> Fault:
    """The exception for a fault class on the wire; plain Fault for an unknown class."""
    return _BY_CLASS.get(fault_class, Fault)(message, fault_class=fault_class, id=id, retryable=retryable)
