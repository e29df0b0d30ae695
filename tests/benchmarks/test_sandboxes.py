import pytest
from orsay_bench.report import Run
from orsay_bench.sandbox_loads import Size, percentile
from orsay_bench.sandbox_subjects import Failed, _end_of
from orsay_bench.sandboxes import COLD, COMMANDS, NAIVE, WARM, table


def test_figures_are_multiples_of_dockers_own() -> None:
    runs = [
        Run("first", name, 1, {"first_ms": ms})
        for name, ms in ((COMMANDS, 200.0), (COLD, 220.0), (WARM, 8.0))
    ]
    runs += [Run("first", NAIVE, 1, {}, failed="no answer"), Run("left", WARM, 1, {"left": 0})]
    head, first, left = table(runs, Size())
    assert head == ["", COMMANDS, NAIVE, COLD, WARM, "target"]
    assert first[1:5] == ["200", "", "220 (1.1x)", "8 (0.04x)"]
    assert left[1:5] == ["", "", "", "0"]


def test_percentiles_are_by_rank() -> None:
    assert (percentile([3.0, 1.0, 2.0], 0.5), percentile([3.0, 1.0, 2.0], 0.95)) == (2.0, 3.0)


def test_an_answer_is_the_end_of_its_stream() -> None:
    lines = ("event: task_id", "data: x", "", ": ping", "", "event: chunk", 'data: {"a"', "", "event: end")
    text = "\r\n".join((*lines, "data: : 1}", "", "")).encode()
    assert _end_of(text) == {"a": 1}
    with pytest.raises(Failed, match="no room"):
        _end_of(b"event: error\r\ndata: no room\r\n\r\n")
