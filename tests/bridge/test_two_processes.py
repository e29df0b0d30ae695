"""Two processes train together and share groups: nothing is mixed, waits for ever, or stays open."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ..support.bridge_environments import WORDS
from ..support.bridge_server import EnvServer, serve_environments
from ..support.trainers import ranks as launched
from ..support.trainers import skip_without_trl

skip_without_trl()

LIMIT_S = 160
pytestmark = [pytest.mark.process, pytest.mark.timeout(LIMIT_S + 40)]
NOBODY, STEPS = "9", "9109"  # who loses all rollouts, step by step


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(tmp_path_factory.mktemp("server"), "Words") as env_server:
        yield env_server


@pytest.fixture(scope="module")
def run(
    env_server: EnvServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[subprocess.CompletedProcess[str]], list[dict[str, Any]]]:
    """A run in which now one loses all its rollouts, now the other; and then one more, which must fail."""
    folder = tmp_path_factory.mktemp("ranks")
    with serve_environments(tmp_path_factory.mktemp("second"), "Words") as second:
        arguments = ["-m", "tests.bridge.rank", env_server.url, second.url, str(folder), "--losing", STEPS]
        done = launched(arguments, timeout=LIMIT_S)
    found = [folder / f"rank-{rank}.json" for rank in range(2)]
    assert all(path.exists() for path in found), [each.stderr[-4000:] for each in done]
    return done, [json.loads(path.read_text()) for path in found]


@pytest.fixture(scope="module")
def ranks(run: tuple[list[subprocess.CompletedProcess[str]], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What each of the two saw of the first training."""
    return run[1]


def rows(ranks: Sequence[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    return [
        {**row, "rank": at} for at, rank in enumerate(ranks) for row in rank["rows"] if row["step"] == step
    ]


def test_both_finish_with_the_same_weights(ranks: list[dict[str, Any]]) -> None:
    assert [rank["processes"] for rank in ranks] == [2, 2]
    assert all(len(rank["counted"]) == len(STEPS) for rank in ranks)
    assert ranks[0]["weights"] == ranks[1]["weights"]


def test_each_rollout_plays_the_task_of_its_row(ranks: list[dict[str, Any]]) -> None:
    for row in (row for rank in ranks for row in rank["rows"]):
        assert row["played"] == row["task"]
        assert row["prompt"] == f"Say the word: {WORDS[row['task']]}."


def test_a_group_has_rollouts_of_both_and_one_task(ranks: list[dict[str, Any]]) -> None:
    for step in range(len(STEPS)):
        group = rows(ranks, step)
        assert len(group) == 4
        assert {row["rank"] for row in group} == {0, 1}
        assert len({row["task"] for row in group}) == 1


@pytest.mark.parametrize("step", [1, 2])
def test_only_the_rollouts_of_the_process_with_faults_are_masked(
    ranks: list[dict[str, Any]], step: int
) -> None:
    for row in rows(ranks, step):
        if row["rank"] == int(STEPS[step]):
            assert (row["fault"], row["reward"], row["tokens"]) == ("time_limit", None, 0)
        else:
            assert row["fault"] is None and row["tokens"] > 0


def test_advantages_are_those_of_the_rollouts_that_count(ranks: list[dict[str, Any]]) -> None:
    for step in range(len(STEPS)):
        counted = [row for row in rows(ranks, step) if row["fault"] is None]
        assert {row["reward"] for row in counted} == {0.0, 1.0}
        assert sum(row["advantage"] for row in counted) == pytest.approx(0, abs=1e-3)
        assert all((row["advantage"] > 0) == (row["reward"] == 1) for row in counted)


def test_both_count_the_same_tokens(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["counted"] == ranks[1]["counted"]
    for step in range(len(STEPS)):
        assert ranks[0]["counted"][step] == sum(row["tokens"] for row in rows(ranks, step))


def test_metrics_are_those_of_both(ranks: list[dict[str, Any]]) -> None:
    found = [entry for entry in ranks[0]["log"] if "env/faults" in entry]
    assert [entry["env/faults"] for entry in found] == [0.0, 0.5, 0.5, 0.0]
    assert [entry.get("env/faults/time_limit") for entry in found] == [None, 0.5, 0.5, None]
    assert [entry.get("env/calls/say") for entry in found] == [1.0] * 4
    assert [entry["env/success"] for entry in found] == [0.5] * 4
    assert [entry["env/reward"] for entry in found] == [0.5] * 4
    assert [entry["reward"] for entry in found] == [0.5] * 4


def test_all_sessions_are_closed(ranks: list[dict[str, Any]], env_server: EnvServer) -> None:
    assert len(env_server.diary.lines("setup")) >= 4 * len(STEPS)
    assert env_server.diary.open_sessions() == set()
    assert [rank["open"] for rank in ranks] == [0, 0]


def test_too_many_faults_of_one_end_both_with_the_reason(
    run: tuple[list[subprocess.CompletedProcess[str]], list[dict[str, Any]]],
) -> None:
    for done in run[0]:
        assert done.returncode != 0
        assert "should have ended" not in done.stderr
    words = r"TooManyFaults: (\d) of \1 rollouts were lost to faults \(\1 time_limit\)"
    assert re.search(words, run[0][1].stderr), run[0][1].stderr[-2000:]
