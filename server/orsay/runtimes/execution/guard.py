"""Execution of author code: on the event loop or a thread, with exceptions turned into faults."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from orsay_protocol.faults import FaultClass
from orsay_protocol.redact import NOTHING, Redactor

from ...errors import Faulted, Refused, SandboxError, exception_text
from .threads import Threads

__all__ = [
    "author_fault",
    "cause",
    "fault_of",
    "guard_author",
    "guard_now",
    "run_author",
    "run_here",
]


async def run_author(threads: Threads, function: Callable[..., Any], *args: Any) -> Any:
    """Await an async ``function``, run any other on a thread; its exceptions pass through."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    value = await threads.run(function, *args)
    return await value if inspect.isawaitable(value) else value


async def run_here(function: Callable[[], Awaitable[Any]]) -> Any:
    """Await the result of a plain function that only returns an awaitable; exceptions pass through."""
    return await function()


async def guard_author(
    fault: FaultClass, what: str, running: Awaitable[Any], *, hide: Redactor = NOTHING
) -> Any:
    """Await author code; any exception becomes Faulted of class ``fault``.

    ``hide`` removes the session's secrets from the fault's texts.
    """
    try:
        return await running
    except BaseException as exc:
        raise fault_of(fault, what, exc, hide)  # noqa: B904  # it has its cause


def fault_of(fault: FaultClass, what: str, exc: BaseException, hide: Redactor) -> BaseException:
    """The error to raise for ``exc``, which awaited author code raised: Faulted of class ``fault``.

    ``exc`` itself where this task is cancelled, or the error is Refused or Faulted already.
    """
    if isinstance(exc, asyncio.CancelledError):
        if _is_cancelled():
            return exc
        found = Faulted(fault, f"{what} raised CancelledError")
        found.__cause__ = None
        return found
    if isinstance(exc, Refused | Faulted):
        exc.redact(hide)
        return exc
    found = author_fault(fault, exc, hide, what)
    found.__cause__ = cause(exc, hide)
    return found


def guard_now(fault: FaultClass, what: str, run: Callable[[], Any], *, hide: Redactor) -> Any:
    """``guard_author`` for synchronous functions."""
    try:
        return run()
    except (Refused, Faulted) as exc:
        exc.redact(hide)
        raise
    except BaseException as exc:
        raise author_fault(fault, exc, hide, what) from cause(exc, hide)


def author_fault(fault: FaultClass, exc: BaseException, hide: Redactor, what: str) -> Faulted:
    """The fault for an exception of author code, with its traceback and without secrets.

    A sandbox that failed is not the author's mistake: ``worker_lost``, or ``overloaded`` on a full machine.
    """
    if isinstance(exc, SandboxError):
        fault = "worker_lost"
    found = Faulted(fault, exception_text(exc, hide))
    trace = hide.plain(f"{what} raised\n" + "".join(traceback.format_exception(exc)))
    found.trace = trace.encode(errors="backslashreplace").decode()
    exc.__traceback__ = None  # an exception object that is raised repeatedly would accumulate frames
    return found


def cause(exc: BaseException, hide: Redactor) -> BaseException | None:
    """The exception as ``__cause__`` of a fault; None if it may contain secrets, as a log shows it."""
    return None if hide else exc


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
