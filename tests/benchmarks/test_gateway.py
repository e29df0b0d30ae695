import json
from pathlib import Path

import pytest
from orsay_bench.gateway import added, page, parser, remarks_on, table, verdict
from orsay_bench.gateway_loads import LAYOUTS
from orsay_bench.report import Run

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
ALONE, BEHIND = LAYOUTS[:2]


def runs(behind_ms: float) -> list[Run]:
    made = [Run("rate", ALONE.name, turn, {"p50_ms": ms}) for turn, ms in enumerate((0.7, 0.9, 0.8))]
    return [*made, Run("rate", BEHIND.name, 1, {"p50_ms": behind_ms, "other_cpu": 0.9})]


def test_what_a_gateway_adds_is_the_difference_of_medians() -> None:
    assert added(runs(1.3), BEHIND, "rate", "p50_ms") == pytest.approx(0.5)
    assert added(runs(1.3), BEHIND, "rate", "p99_ms") is None
    assert table(runs(1.3), (ALONE, BEHIND))[2] == ["added at the median, ms", "", "+0.50"]


def test_the_promise_is_judged() -> None:
    assert "reached" in verdict(runs(1.3)) and "NOT" not in verdict(runs(1.3))
    assert "NOT reached" in verdict(runs(1.9))
    assert verdict([]) == "nothing was measured of the gateway"


def test_the_server_behind_is_no_other_work() -> None:
    assert remarks_on(runs(1.3)) == []
    busy = Run("rate", ALONE.name, 1, {"p50_ms": 1.0, "other_cpu": 0.9})
    assert len(remarks_on([busy, *runs(1.3)])) == 1


def test_the_documentation_has_the_numbers_of_the_latest_run() -> None:
    found = json.loads((RESULTS / "gateway.json").read_text())
    text = page(found["table"], found["containers"], found["notes"])
    assert (RESULTS / "gateway.md").read_text() == text
    documented = (ROOT / "docs" / "performance.md").read_text()
    for part in text.split("\n\n")[:2]:
        assert part in documented


def test_a_run_measures_containers_by_default() -> None:
    options = parser().parse_args([])
    assert (options.image, options.no_containers, options.repeat) == ("orsay", False, 3)
