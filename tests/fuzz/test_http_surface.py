"""The HTTP surface against its own description, with whatever ``schemathesis`` thinks of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies

from ..support.server_process import ENVIRONMENTS, ServerProcess, server

pytestmark = pytest.mark.process

SIDS = ("fuzz-1", "fuzz-2")
EXAMPLES = int(os.environ.get("FUZZED_EXAMPLES", "10"))
PARTS = 4  # of the operations, each with a time limit of its own


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    journal = str(tmp_path_factory.mktemp("journal") / "journal.db")
    limits: dict[str, Any] = {"idle_limit_s": 60, "max_sessions": 200}
    with server(
        f"{ENVIRONMENTS}:Scripted", f"{ENVIRONMENTS}:Plain", journal=journal, workers=2, **limits
    ) as found:
        for sid in SIDS:
            answer = httpx.post(f"{found.url}/create", json={"task_spec": {}}, headers={"X-Session-ID": sid})
            assert answer.status_code == 200
        yield found
        assert httpx.get(f"{found.url}/health").json() == {"status": "ok"}
        assert found.code is None
        assert not found.events("request_failed"), found.events("request_failed")


@pytest.fixture(scope="module")
def operations(fuzzed: ServerProcess) -> list[Any]:
    import schemathesis  # here, so that the processes that do not run this file do not pay for it

    schema = schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")
    found: list[Any] = list(schema.get_all_operations())
    return [each.ok() for each in found]


@pytest.mark.conformance("I6")
@pytest.mark.timeout(300)  # six seconds of computing, and a busy machine takes twenty times as long
@pytest.mark.parametrize("part", range(PARTS))
def test_every_answer_is_as_described(operations: list[Any], part: int) -> None:
    assert len(operations) > 15
    for operation in operations[part::PARTS]:
        if operation.path != "/console/api/live":  # it never ends
            fuzz(operation)


def fuzz(operation: Any) -> None:
    """Requests to one endpoint, in the form it describes and in forms it does not."""
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    judges = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategies.one_of([operation.as_strategy(mode) for mode in GenerationMode]))
    def play(case: Any) -> None:
        number = len(str((case.headers or {}).get("X-Session-ID", ""))) % 3
        if number < 2 and case.headers:  # two requests of three go to a session that is there
            case.headers["X-Session-ID"] = SIDS[number]
        case.call_and_validate(checks=judges)

    play()
