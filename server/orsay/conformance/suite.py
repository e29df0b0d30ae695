"""Registry and runner of all checks, with a time limit for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from types import ModuleType

import httpx

from .check import Check, Outcome, Status
from .checks import (
    apart,
    attach,
    calls,
    discovery,
    promises,
    refusals,
    results,
    sessions,
    state,
    streams,
    tasks,
)
from .failures import Failed, NotSupported
from .target import Target

__all__ = ["CHECKS", "checks_named", "run_check", "run_suite"]

_CHECK_LIMIT_S = 120.0


def _checks_of(module: ModuleType) -> list[Check]:
    return [value for value in vars(module).values() if isinstance(value, Check)]


CHECKS: tuple[Check, ...] = tuple(
    check
    for module in (
        discovery,
        tasks,
        sessions,
        calls,
        state,
        attach,
        streams,
        refusals,
        results,
        apart,
        promises,
    )
    for check in _checks_of(module)
)
"""Modules of checks, in the order of a session: discovery, session, calls, streams, refusals, our promises.
"""


def checks_named(wanted: Sequence[str]) -> list[Check]:
    """Checks whose id starts with one of ``wanted``; all if empty. Raises KeyError for an unknown name."""
    for name in wanted:
        if not any(check.id.startswith(name) for check in CHECKS):
            raise KeyError(name)
    return [check for check in CHECKS if not wanted or any(check.id.startswith(name) for name in wanted)]


async def run_check(check: Check, target: Target) -> Outcome:
    """Run one check to an outcome; any exception counts as a failure of the server."""
    started = time.monotonic()
    status: Status = "failed"
    reason = ""
    try:
        async with asyncio.timeout(_CHECK_LIMIT_S):
            await check.run(target)
        status = "passed"
    except NotSupported as exc:
        status, reason = "not supported", str(exc)
    except Failed as exc:
        reason = str(exc)
    except TimeoutError:
        reason = f"no answer within {_CHECK_LIMIT_S:.0f} s"
    except (httpx.HTTPError, OSError, EOFError) as exc:
        reason = f"{type(exc).__name__}: {exc}"
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as exc:
        # An answer of unexpected shape.
        reason = f"the answer has an unexpected shape: {type(exc).__name__}: {exc}"
    return Outcome(check, status, reason, time.monotonic() - started)


async def run_suite(target: Target, checks: Sequence[Check] = CHECKS) -> AsyncIterator[Outcome]:
    """Run ``checks`` sequentially, so that they put no load on a slow server."""
    for check in checks:
        yield await run_check(check, target)
