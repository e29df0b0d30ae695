"""Classes written for the released packages keep the contract on our server as our own classes do."""

from __future__ import annotations

import pytest
from orsay.conformance import CHECKS, Target

from .servers import KIT, outcomes_of, serve
from .venvs import python_for

pytestmark = pytest.mark.process

LACKING = {
    "ors": {"P-8-terminal-tool", "P-3.2-score-group", "P-4-score-group-messages"},
    "openreward.environments": set[str](),
}


@pytest.mark.venv
@pytest.mark.conformance("C2")
@pytest.mark.parametrize(
    ("package", "version", "module", "runtime"),
    [
        ("openreward", "0.1.167", "openreward.environments", "local"),
        ("openreward", "0.1.167", "openreward.environments", "process"),
        ("ors-sdk", "0.1.0", "ors", "process"),
    ],
    ids=["openreward-local", "openreward-process", "ors-sdk-process"],
)
async def test_classes_of_another_package_are_hosted_unchanged(
    package: str, version: str, module: str, runtime: str
) -> None:
    python = python_for(package, version)
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    kit = {"ORSAY_KIT": module}
    # Beside ours, as if it were installed in the same environment.
    with serve(*KIT, runtime=runtime, options=["--workers", "1"], env=kit, paths=[packages]) as server:
        async with Target.open(server.url) as target:
            outcomes = await outcomes_of(target, [check for check in CHECKS if check.id != "S1-key-needed"])
    wrong = {o.check.id: o.reason for o in outcomes if o.status != "passed"}
    assert wrong.keys() == LACKING[module], wrong
