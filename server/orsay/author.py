"""Running author code: on the right thread, and with whatever it raises turned into a fault."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from orsay_protocol.faults import FaultClass

from .errors import Faulted, Refused, exception_text
from .threads import Threads

__all__ = ["author_fault", "guard_author", "guard_now", "run_author", "without_secrets"]


async def run_author(threads: Threads, function: Callable[..., Any], *args: Any) -> Any:
    """Run ``function``, an async one here and any other on a thread; raises what it raises."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    value = await threads.run(function, *args)
    return await value if inspect.isawaitable(value) else value


async def guard_author(
    fault: FaultClass, what: str, running: Awaitable[Any], *, hide: tuple[str, ...] = ()
) -> Any:
    """Await author code; whatever it raises becomes Faulted of class ``fault``.

    ``hide`` holds secret values that the fault's texts must not repeat.
    """
    try:
        return await running
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        raise Faulted(fault, f"{what} raised CancelledError") from None
    except (Refused, Faulted):
        raise
    except BaseException as exc:
        raise author_fault(fault, exc, hide, what) from exc


def guard_now(fault: FaultClass, what: str, run: Callable[[], Any], *, hide: tuple[str, ...]) -> Any:
    """``guard_author`` for what never waits."""
    try:
        return run()
    except (Refused, Faulted):
        raise
    except BaseException as exc:
        raise author_fault(fault, exc, hide, what) from exc


def author_fault(fault: FaultClass, exc: BaseException, hide: tuple[str, ...], what: str) -> Faulted:
    """The fault for an exception of author code, with its trace, and without the values in ``hide``."""
    found = Faulted(fault, without_secrets(hide, exception_text(exc)))
    found.trace = without_secrets(hide, f"{what} raised\n" + "".join(traceback.format_exception(exc)))
    exc.__traceback__ = None  # an exception that is raised again and again would collect all its frames
    return found


def without_secrets(hide: tuple[str, ...], text: str) -> str:
    """``text`` with the values in ``hide`` blotted out, and fit for UTF-8."""
    for secret in hide:
        text = text.replace(secret, "[secret]")
    return text.encode(errors="backslashreplace").decode()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
