import pytest
from orsay_bench.journal import JOURNALS, KINDS, parser, share, table, verdict
from orsay_bench.report import Run

CALLS, EPISODES = KINDS[0], next(kind for kind in KINDS if kind.calls > 1)


def runs(more: float) -> list[Run]:
    """A machine that is twice as slow in one turn, and a journal that stands out in another."""
    made = []
    for turn, (us, added) in enumerate(((100, more), (200, more), (120, 2.0), (90, more - 0.05))):
        made.append(Run(CALLS.load.name, "off", turn, {"server_us_per_request": us}))
        made.append(Run(CALLS.load.name, "process", turn, {"server_us_per_request": us * (1 + added)}))
    made.append(Run(CALLS.load.name, "fsync", 9, {"server_us_per_request": 100}))  # nothing to compare with
    made.append(Run(EPISODES.load.name, "off", 1, {"server_us_per_request": 1_500.0, "p50_ms": 8.0}))
    return made


def test_what_a_journal_adds_is_compared_within_each_turn() -> None:
    assert share(runs(0.2), CALLS, "process") == pytest.approx(0.2)
    assert share(runs(0.2), CALLS, "fsync") is None
    assert table(runs(0.2), JOURNALS[:2], KINDS)[1][1:] == ["110", "180 (+20%)"]


def test_an_episode_is_reported_by_the_call_but_waits_as_a_whole() -> None:
    cells = {line[0]: line[1] for line in table(runs(0.2), JOURNALS[:1], KINDS)}
    assert cells[f"{EPISODES.title}: CPU, us per call"] == "150"
    assert cells[f"{EPISODES.title}: median, ms"] == "8"


def test_the_promise_is_judged() -> None:
    (reached,) = verdict(runs(0.2), JOURNALS, KINDS)
    (missed,) = verdict(runs(0.3), JOURNALS, KINDS)
    assert "+20.0% CPU per call (at most +25%: reached)" in reached
    assert "NOT reached" in missed


def test_every_journal_and_load_is_measured_by_default() -> None:
    options = parser().parse_args([])
    assert (options.only.split(","), options.loads, options.repeat) == (list(JOURNALS), "", 9)
