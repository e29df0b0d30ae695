"""Running author code: on the right thread, and with whatever it raises turned into a fault."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from orsay_protocol.faults import FaultClass
from orsay_protocol.redact import NOTHING, Redactor

from ...errors import Faulted, Refused, exception_text
from .threads import Threads

__all__ = ["author_fault", "cause", "guard_author", "guard_now", "run_author", "run_here"]


async def run_author(threads: Threads, function: Callable[..., Any], *args: Any) -> Any:
    """Run ``function``, an async one here and any other on a thread; raises what it raises."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    value = await threads.run(function, *args)
    return await value if inspect.isawaitable(value) else value


async def run_here(function: Callable[[], Awaitable[Any]]) -> Any:
    """Run a plain function that returns an awaitable and does nothing else; raises what that raises."""
    return await function()


async def guard_author(
    fault: FaultClass, what: str, running: Awaitable[Any], *, hide: Redactor = NOTHING
) -> Any:
    """Await author code; whatever it raises becomes Faulted of class ``fault``.

    ``hide`` takes the session's secrets out of the fault's texts.
    """
    try:
        return await running
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        raise Faulted(fault, f"{what} raised CancelledError") from None
    except (Refused, Faulted) as exc:
        exc.redact(hide)
        raise
    except BaseException as exc:
        raise author_fault(fault, exc, hide, what) from cause(exc, hide)


def guard_now(fault: FaultClass, what: str, run: Callable[[], Any], *, hide: Redactor) -> Any:
    """``guard_author`` for what never waits."""
    try:
        return run()
    except (Refused, Faulted) as exc:
        exc.redact(hide)
        raise
    except BaseException as exc:
        raise author_fault(fault, exc, hide, what) from cause(exc, hide)


def author_fault(fault: FaultClass, exc: BaseException, hide: Redactor, what: str) -> Faulted:
    """The fault for an exception of author code, with its trace, and without secrets."""
    found = Faulted(fault, exception_text(exc, hide))
    trace = hide.plain(f"{what} raised\n" + "".join(traceback.format_exception(exc)))
    found.trace = trace.encode(errors="backslashreplace").decode()
    exc.__traceback__ = None  # an exception that is raised again and again would collect all its frames
    return found


def cause(exc: BaseException, hide: Redactor) -> BaseException | None:
    """The exception, unless it may hold secrets: a log of the fault would show it too."""
    return None if hide else exc


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
