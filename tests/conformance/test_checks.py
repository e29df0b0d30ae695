"""The conformance suite on our own server: everything passes, on both runtimes."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
from orsay.conformance import CHECKS, Check, Outcome, Target, run_check

from ..interop.servers import KIT, ServerProcess, serve

pytestmark = pytest.mark.process

_NEEDS_A_KEY = {"S1-key-needed"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(server: ServerProcess) -> dict[str, Outcome]:
    """All checks, four at a time."""
    gate = asyncio.Semaphore(4)

    async def one(check: Check) -> Outcome:
        async with gate:
            return await run_check(check, target)

    async with Target.open(server.url) as target:
        found = await asyncio.gather(*(one(check) for check in CHECKS))
    return {outcome.check.id: outcome for outcome in found}


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=check.id, marks=pytest.mark.conformance(check.entry))
        for check in CHECKS
        if check.id not in _NEEDS_A_KEY
    ],
)
def test_our_server_keeps_the_contract(outcomes: dict[str, Outcome], check: Check) -> None:
    assert outcomes[check.id].status == "passed", outcomes[check.id].reason


@pytest.mark.conformance("S1")
async def test_our_server_keeps_the_contract_with_keys() -> None:
    with serve(*KIT, runtime="process", env={"ORSAY_API_KEYS": '["first-key", "second-key"]'}) as server:
        async with Target.open(server.url, api_key="second-key") as target:
            for check in CHECKS:
                if check.id == "P-2-empty-api-key":
                    continue
                outcome = await run_check(check, target)
                assert outcome.status == "passed", f"{check.id}: {outcome.reason}"
