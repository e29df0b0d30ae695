import argparse
import json
from pathlib import Path

import pytest
from orsay_bench.report import Run
from orsay_bench.train import Book, contenders, episodes, headline, parser, plan
from orsay_bench.train_profile import divided, table
from orsay_bench.train_report import CLIENTS, CONTENDERS, cost_cells, costs, facts, line_cells, lines


def batch(name: str, rate: float, turn: int = 1) -> Run:
    result = {"rollouts_per_s": rate, "batch_s": 96 / rate, "cpu_s": 0.5, "server_cpu_s": 0.1}
    return Run("rollouts", name, turn, result)


def call(name: str, cost: float) -> Run:
    return Run("client", name, 1, {"cpu_us_per_call": cost, "per_s": 1000.0})


RUNS = [
    *(batch("trl", rate, turn) for turn, rate in enumerate((4.0, 9.0, 3.0))),
    *(batch("orsay-factory", rate, turn) for turn, rate in enumerate((40.0, 11.0, 50.0))),
    batch("orsay-rollout", 19.0),
    Run("rollouts", "orsay-attached", 1, {}, failed="errors: {'wrong rollouts': 3}"),
    call("openreward", 500),
    call("orsay", 400),
]


def test_contenders_are_compared_by_their_medians() -> None:
    found = {line.name: line for line in lines(RUNS)}
    assert (found["orsay-factory"].rollouts_per_s, found["orsay-factory"].runs) == (40, 3)
    assert found["orsay-factory"].ratio == 10
    assert (found["trl"].ratio, found["trl"].reached) == (1, None)


def test_each_way_to_train_has_a_target_of_its_own() -> None:
    found = {line.name: line.reached for line in lines(RUNS)}
    assert found == {"trl": None, "orsay-factory": True, "orsay-rollout": False}
    targets = {name: contender.target for name, contender in CONTENDERS.items()}
    assert (targets["orsay-factory"], targets["orsay-rollout"]) == (3, 5)


def test_without_the_baseline_nothing_is_judged() -> None:
    (line,) = lines([batch("orsay-rollout", 19)])
    assert (line.ratio, line.reached) == (None, None)
    assert line_cells([line], 96)[1][-2:] == [">= 5x", "no baseline"]


def test_the_table_shows_ratios_and_verdicts() -> None:
    head, *rest = line_cells(lines(RUNS), 96)
    assert head[2] == "batch of 96, s"
    assert rest[0][1:] == ["4 (1x)", "24", "0.5", "0.1", "", ""]
    assert rest[1][1:] == ["40 (10x)", "2.4", "0.5", "0.1", ">= 3x", "reached"]
    assert rest[2][-1] == "NOT reached"
    assert line_cells(lines(RUNS), 96, judged=False)[2][-1] == "not judged (quick)"


def test_a_call_is_compared_with_the_client_of_openreward() -> None:
    assert [cells[1:] for cells in cost_cells(costs(RUNS))[1:]] == [
        ["500 (1x)", "1,000"],
        ["400 (0.8x)", "1,000"],
    ]


def test_results_are_written_as_json_and_markdown(tmp_path: Path) -> None:
    book = Book(plan(parser().parse_args([])), tmp_path / "made" / "train", {"date": "today"})
    book.runs += RUNS
    book.write(complete=True)
    document = json.loads((tmp_path / "made" / "train.json").read_text())
    assert document["rollouts"] == facts(lines(RUNS))
    assert document["complete"] is True
    written = (tmp_path / "made" / "train.md").read_text()
    assert "| 40 (10x) | 2.4 | 0.5 | 0.1 | >= 3x | reached |" in written
    assert "- rollouts, orsay-attached, run 1: failed: errors: {'wrong rollouts': 3}" in written


def test_turns_of_all_contenders_are_next_to_each_other() -> None:
    chosen = plan(parser().parse_args(["--only", "trl,orsay-rollout", "--no-clients", "--repeat", "2"]))
    assert [(name, turn) for _, name, turn in chosen.order()] == [
        ("trl", 1),
        ("orsay-rollout", 1),
        ("trl", 2),
        ("orsay-rollout", 2),
    ]


def test_by_default_96_episodes_of_everybody_are_played() -> None:
    chosen = plan(parser().parse_args([]))
    assert (chosen.episodes, chosen.contenders, chosen.clients) == (96, tuple(CONTENDERS), tuple(CLIENTS))
    assert plan(parser().parse_args(["--only", "none"])).contenders == ()


def test_names_and_numbers_are_checked() -> None:
    assert contenders("none") == ()
    with pytest.raises(argparse.ArgumentTypeError, match="unknown: nobody"):
        contenders("nobody")
    for wrong in ("0", "12", "many"):
        with pytest.raises(argparse.ArgumentTypeError, match="multiple of 8"):
            episodes(wrong)


LOOP_THREAD = "thread (2): orsay-trl;LoopThread._serve (orsay_client/loop_thread.py:87)"
BATCH = (
    "thread (1): MainThread;GRPOTrainer._generate_and_score_completions (trl/trainer/grpo_trainer.py:2449)"
)
STACKS = [
    f"{LOOP_THREAD};ClientSession._request (aiohttp/client.py:1);sendmsg (socket.py:1) 4",
    f"{LOOP_THREAD};Handle._run (asyncio/events.py:80) 1",
    f"{LOOP_THREAD};EpollSelector.select (selectors.py:468) 90",
    f"{BATCH};apply_chat_template (transformers/tokenization.py:1);render (jinja2/environment.py:1) 3",
    f"{BATCH};pad (trl/trainer/utils.py:176) 2",
    f"{BATCH};LoopThread.run (orsay_client/loop_thread.py:35);Condition.wait (threading.py:320) 90",
    "thread (1): MainThread;exec_module (importlib/bootstrap.py:1) 90",
]


def test_time_of_a_batch_is_divided_and_waiting_does_not_count() -> None:
    shares = divided(STACKS)
    assert shares == {
        ("loop", "HTTP: aiohttp and sockets"): 0.4,
        ("trainer", "chat templates and tokenizer"): 0.3,
        ("trainer", "the rest of TRL"): 0.2,
        ("loop", "event loop"): 0.1,
    }
    assert table(shares, 0.5)[1] == ["HTTP: aiohttp and sockets", "loop", "40%", "200"]


def test_progress_shows_what_a_run_measured() -> None:
    assert headline(call("orsay", 400)) == "cpu_us_per_call 400"
    assert headline(Run("client", "orsay", 1, {}, failed="a\nb")) == "FAILED: b"
