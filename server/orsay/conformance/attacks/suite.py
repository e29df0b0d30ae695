"""Registry and runner of all attacks, with a time limit for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from types import ModuleType

import httpx

from ..failures import Failed, NotSupported
from . import confinement, grading, keys, lurking, neighbours, network, reading, resources
from .attack import Attack, Broken, Lost, Result, Status, Weak
from .bench import Bench

__all__ = ["ATTACKS", "attacks_named", "run_attacks"]

_ATTACK_LIMIT_S = 300.0


def _attacks_of(module: ModuleType) -> list[Attack]:
    return [value for value in vars(module).values() if isinstance(value, Attack)]


ATTACKS: tuple[Attack, ...] = tuple(
    found
    for module in (reading, grading, lurking, confinement, network, keys, neighbours, resources)
    for found in _attacks_of(module)
)
"""All of them; those that strain the machine come last."""


def attacks_named(wanted: Sequence[str]) -> list[Attack]:
    """Attacks whose id or group starts with one of ``wanted``; all if empty. Raises KeyError for another."""

    def named(attack: Attack, name: str) -> bool:
        return attack.id.startswith(name) or attack.group == name

    for name in wanted:
        if not any(named(attack, name) for attack in ATTACKS):
            raise KeyError(name)
    return [attack for attack in ATTACKS if not wanted or any(named(attack, name) for name in wanted)]


async def run_attacks(bench: Bench, attacks: Sequence[Attack] = ATTACKS) -> AsyncIterator[Result]:
    """Play them one after the other."""
    for attack in attacks:
        yield await _run(attack, bench)


async def _run(attack: Attack, bench: Bench) -> Result:
    started = time.monotonic()
    status: Status = "passed"
    try:
        async with asyncio.timeout(_ATTACK_LIMIT_S):
            happened = await attack.run(bench)
    except NotSupported as exc:
        status, happened = "not tried", str(exc)
    except Weak as exc:
        status, happened = "warning", str(exc)
    except (Broken, Failed) as exc:
        status, happened = "failed", str(exc)
    except Lost as exc:
        status, happened = "warning", f"the attack could not be played to its end: {exc}"
    except TimeoutError:
        status, happened = "failed", f"it had not ended after {_ATTACK_LIMIT_S:g} s"
    except httpx.HTTPError as exc:
        status, happened = "failed", f"the server did not answer: {type(exc).__name__}: {exc}"
    return Result(attack, status, happened, time.monotonic() - started)
