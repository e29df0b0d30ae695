"""Short runs of the training benchmark: each contender plays, each client calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra 'trl'")
pytest.importorskip("openreward", reason="needs the package 'openreward'")

from orsay_bench import train_client, train_play
from orsay_bench.report import Run
from orsay_bench.servers import RunningServer
from orsay_bench.train import GROUP, SERVER, measure, parser, plan, run_of, surroundings
from orsay_bench.train_report import CLIENT, CLIENTS, CONTENDERS, ROLLOUTS

from tests.support.trainers import trainers

pytestmark = pytest.mark.process

QUICK = replace(plan(parser().parse_args(["--quick"])), seconds=0.3)
LIMIT_S = 250


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(SERVER, peers=Path(), logs=tmp_path_factory.mktemp("logs"), core=None) as running:
        running.wait_until("/ready")
        yield running


def found(run: Run) -> dict[str, Any]:
    assert not run.failed
    return dict(run.result)


def forked(server: RunningServer, figure: str, name: str) -> Run:
    """As ``measure``, in a process that has TRL imported already."""
    done = trainers().run(QUICK.command(figure, name, server), env=surroundings(), timeout=LIMIT_S)
    return run_of(figure, name, 1, done)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["trl", "orsay-factory", "orsay-rollout"])
def test_a_contender_plays_every_episode_to_its_end(server: RunningServer, name: str) -> None:
    result = found(forked(server, ROLLOUTS, name))
    assert (result["contender"], result["episodes"], result["error_count"]) == (name, 16, 0)
    assert result["batch_s"] > 4 * 0.05, "no batch can be faster than one episode's calls"


def test_calls_of_our_client_are_counted(server: RunningServer) -> None:
    assert_counted(found(measure(QUICK, CLIENT, "orsay-spec", 1, server, None)), "orsay-spec")


def test_calls_of_trls_client_are_counted(server: RunningServer) -> None:
    assert_counted(found(forked(server, CLIENT, "trl-spec")), "trl-spec")


def assert_counted(result: dict[str, Any], name: str) -> None:
    assert result["kind"] == name
    assert result["n"] >= 16
    assert result["cpu_us_per_call"] > 0


def test_a_run_that_fails_says_why(server: RunningServer) -> None:
    run = forked(server, CLIENT, "nobody")
    assert run.result == {}
    assert "invalid choice: 'nobody'" in run.failed


def test_everybody_who_is_named_can_play() -> None:
    assert set(train_play.CONTENDERS) == set(CONTENDERS)
    assert set(train_client.KINDS) == {name for name in CLIENTS if name.endswith("-spec")}
    assert train_play.GENERATIONS == GROUP
