"""The contract suite on our own server: everything passes, on both runtimes."""

from __future__ import annotations

import pytest
from orsay.conformance import CHECKS, Check, Target, run_check

from ..interop.servers import KIT, serve

pytestmark = pytest.mark.process

_NEEDS_A_KEY = {"S1-key-needed"}


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=check.id, marks=pytest.mark.contract(check.entry))
        for check in CHECKS
        if check.id not in _NEEDS_A_KEY
    ],
)
async def test_our_server_keeps_the_contract(target: Target, check: Check) -> None:
    outcome = await run_check(check, target)
    assert outcome.status == "passed", outcome.reason


@pytest.mark.contract("S1")
@pytest.mark.parametrize("runtime", ["local", "process"])
async def test_our_server_keeps_the_contract_with_keys(runtime: str) -> None:
    with serve(*KIT, runtime=runtime, env={"ORSAY_API_KEYS": '["first-key", "second-key"]'}) as server:
        async with Target.open(server.url, api_key="second-key") as target:
            for check in CHECKS:
                if check.id == "P-2-empty-api-key":
                    continue
                outcome = await run_check(check, target)
                assert outcome.status == "passed", f"{check.id}: {outcome.reason}"
