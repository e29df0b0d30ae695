from dataclasses import replace

from orsay_bench.figures import FIGURES, Figure, Reading, Target
from orsay_bench.report import Run, cell, grid, markdown, notes, number, plain, rows, value_of

CALLS = Figure("calls", (Reading("per_cpu_s", "calls", target=Target("ratio", 14, 20), compared=True),))
LATENCY = Figure("latency", (Reading("p99_ms", "p99", "ms", Target("at_most", 5)),))
SERVERS = ["orsay", "openreward"]


def run(figure: str, server: str, **result: object) -> Run:
    return Run(figure, server, 1, result)


def three_each() -> list[Run]:
    ours = [run("calls", "orsay", per_cpu_s=x) for x in (21_000, 15_000, 16_000)]
    base = [run("calls", "openreward", per_cpu_s=x) for x in (1_000, 900, 1_100)]
    return [*ours, *base]


def test_a_row_holds_the_median_and_the_ratio_of_medians() -> None:
    (row,) = rows(three_each(), [CALLS], SERVERS, "openreward", ["orsay"])
    ours = row.values["orsay"]
    assert (ours.median, ours.lowest, ours.highest, ours.runs) == (16_000, 15_000, 21_000, 3)
    assert ours.ratio == 16
    assert ours.reached is True


def test_only_our_servers_are_held_to_a_target() -> None:
    (row,) = rows(three_each(), [CALLS], SERVERS, "openreward", ["orsay"])
    assert row.values["openreward"].reached is None


def test_a_ratio_without_a_baseline_is_neither_reached_nor_missed() -> None:
    (row,) = rows(three_each()[:3], [CALLS], ["orsay"], "openreward", ["orsay"])
    assert row.values["orsay"].ratio is None
    assert row.values["orsay"].reached is None


def test_a_limit_is_judged_without_a_baseline() -> None:
    reading = LATENCY.readings[0]
    assert value_of([4.9], None, reading, True).reached is True
    assert value_of([5.1, 5.2], None, reading, True).reached is False


def test_a_failed_run_counts_for_nothing_and_is_noted() -> None:
    failed = Run("calls", "orsay", 2, {}, failed="exited with 1")
    (row,) = rows([*three_each(), failed], [CALLS], SERVERS, "openreward", ["orsay"])
    assert row.values["orsay"].runs == 3
    assert notes([failed]) == ["calls, orsay, run 2: failed: exited with 1"]


def test_a_figure_nobody_ran_has_no_row() -> None:
    assert rows(three_each(), [LATENCY], SERVERS, "openreward", ["orsay"]) == []


def test_numbers_show_the_digits_that_matter() -> None:
    assert [number(x) for x in (21_432.4, 142, 71.66, 0.634, 4, 0)] == [
        "21,432",
        "142",
        "71.7",
        "0.63",
        "4",
        "0",
    ]


def test_an_unmeasured_cell_is_empty() -> None:
    assert cell(None) == ""


def test_the_grid_leaves_out_servers_without_a_value() -> None:
    table = rows(three_each(), [CALLS], [*SERVERS, "idle"], "openreward", ["orsay"])
    assert grid(table, [*SERVERS, "idle"], ["orsay"]) == [
        ["", "orsay", "openreward", "target", "reached?"],
        ["calls", "16,000 (16x)", "1,000 (1x)", ">= 14x (aim 20x)", "reached"],
    ]


def test_servers_of_ours_that_differ_are_named_in_the_verdict() -> None:
    runs = [run("latency", "a", p99_ms=4), run("latency", "b", p99_ms=6)]
    table = rows(runs, [LATENCY], ["a", "b"], "openreward", ["a", "b"])
    assert grid(table, ["a", "b"], ["a", "b"])[1][-1] == "a: reached, b: NOT reached"


def test_both_tables_hold_every_line() -> None:
    cells = grid(rows(three_each(), [CALLS], SERVERS, "openreward", ["orsay"]), SERVERS, ["orsay"])
    assert plain(cells).splitlines()[2].startswith("calls  16,000 (16x)")
    assert markdown(cells).splitlines() == [
        "|  | orsay | openreward | target | reached? |",
        "| --- | --: | --: | --- | --- |",
        "| calls | 16,000 (16x) | 1,000 (1x) | >= 14x (aim 20x) | reached |",
    ]


def test_a_busy_machine_and_a_generator_at_its_limit_are_noted() -> None:
    found = notes([run("calls", "orsay", other_cpu=0.9, generator_cpu=0.99, errors={}, error_count=0)])
    assert [note.split(": ", 1)[1] for note in found] == [
        "other work used 0.90 of a core meanwhile",
        "the generator was at its limit (0.99)",
    ]


def test_every_figure_has_a_reading_and_at_least_one_of_our_servers() -> None:
    for figure in FIGURES.values():
        assert figure.readings
        assert "orsay-process" in figure.servers


def test_a_title_has_the_sessions_that_were_really_used() -> None:
    figure = FIGURES["hold"]
    quick = replace(figure, arguments=(*figure.arguments, *figure.quick_arguments))
    assert figure.title_of(figure.readings[0]).startswith("16,000 sessions pinged")
    assert quick.title_of(quick.readings[0]).startswith("2,000 sessions pinged")


def test_a_quick_run_is_not_judged() -> None:
    table = rows(three_each(), [CALLS], SERVERS, "openreward", ["orsay"])
    assert grid(table, SERVERS, ["orsay"], judged=False)[1][-1] == "not judged (quick)"
