"""The conformance suite on our own server: everything passes, on both runtimes; one of them asks for keys."""

from __future__ import annotations

import json

import pytest
import pytest_asyncio
from orsay.conformance import CHECKS, Check, Outcome, Target

from ..interop.servers import KIT, outcomes_of, serve
from .conftest import RUNTIMES

pytestmark = pytest.mark.process

_KEYS = {"process": ["first-key", "second-key"]}
_OF_KEYS = {"P-2-empty-api-key": "local", "S1-key-needed": "process"}
"""Checks that need a server without keys or with them."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=RUNTIMES)
async def outcomes(request: pytest.FixtureRequest) -> dict[str, Outcome]:
    keys = _KEYS.get(request.param)
    variables = {"ORSAY_API_KEYS": json.dumps(keys)} if keys else {}
    with serve(*KIT, runtime=request.param, options=["--workers", "2"], env=variables) as server:
        async with Target.open(server.url, api_key=keys[-1] if keys else None) as target:
            checks = [check for check in CHECKS if _OF_KEYS.get(check.id, request.param) == request.param]
            found = await outcomes_of(target, checks, at_once=4)
    return {outcome.check.id: outcome for outcome in found}


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=check.id, marks=pytest.mark.conformance(check.entry))
        for check in CHECKS
        if check.id not in _OF_KEYS
    ],
)
def test_our_server_keeps_the_contract(outcomes: dict[str, Outcome], check: Check) -> None:
    assert outcomes[check.id].status == "passed", outcomes[check.id].reason


@pytest.mark.conformance("P-2-empty-api-key", "S1")
def test_our_server_takes_keys_where_it_has_some(outcomes: dict[str, Outcome]) -> None:
    (outcome,) = (outcome for name, outcome in outcomes.items() if name in _OF_KEYS)
    assert outcome.status == "passed", outcome.reason
