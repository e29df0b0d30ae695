"""TRL's rollout worker for AsyncGRPO, in its own process, with our pickled environments and a vLLM stand-in.

The whole trainer is run by ``test_examples.py``.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

from orsay_trl import EnvironmentSpec

from tests.interop.servers import serve

from ..support.model_server.processes import ServedModel
from ..support.trainers import OFFLINE, spawning_trainers

LOTTERY = Path(__file__).with_name("lottery.py")
LIMIT_S = 200
pytestmark = [pytest.mark.process, pytest.mark.timeout(LIMIT_S + 40)]
GENERATIONS = 4

Sample = dict[str, Any]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tickets = tmp_path_factory.mktemp("lottery") / "tickets"
    targets = (f"{LOTTERY}:Draw", f"{LOTTERY}:Lottery")
    with serve(*targets, options=["--workers", "1"], env={"LOTTERY_TICKETS": str(tickets)}) as server:
        yield server.url
    ends = server.events("session_ended")
    assert {end["reason"] for end in ends} == {"Session deleted"}, "a worker left sessions open"


@pytest.fixture(scope="module")
def runs(url: str, model_server: ServedModel) -> list[dict[str, Any]]:
    """What two workers did; every third session of one environment hung, which the second may not bear."""
    done = spawning_trainers().run(
        ["-m", "tests.bridge.worker_run", url, str(model_server.folder), "tiny", model_server.base_url],
        env={**os.environ, **OFFLINE},
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def groups(runs: list[dict[str, Any]]) -> list[list[Sample]]:
    """The whole groups of the first."""
    assert runs[0]["error"] is None
    by_group: dict[int, list[Sample]] = defaultdict(list)
    for sample in runs[0]["samples"]:
        by_group[sample["group"]].append(sample)
    return [group for group in by_group.values() if len(group) == GENERATIONS]


def reward(sample: Sample) -> float | None:
    """None where TRL has NaN: no reward was given."""
    value: float = sample["metrics"]["reward"]
    return None if value != value else value


def found(sample: Sample) -> float | None:
    """The reward that the environment named in its answer."""
    results = [message["content"] for message in sample["completion"] if message["role"] == "tool"]
    number = re.search(r"You found (\d+)", results[0]) if results else None
    return int(number[1]) / 10 if number else None


def test_rewards_arrive_through_get_reward(groups: list[list[Sample]]) -> None:
    scored = [sample for group in groups for sample in group if found(sample) is not None]
    assert len(scored) >= 8
    assert [reward(sample) for sample in scored] == pytest.approx([found(sample) for sample in scored])
    assert all(sample["tokens"] > 0 for sample in scored)


def test_the_model_sees_the_environments_prompt_and_both_environments_are_played(
    groups: list[list[Sample]],
) -> None:
    assert all(
        re.fullmatch(r"Look at a door of the \w+ hall.", s["prompt"]) for group in groups for s in group
    )
    columns = {key for group in groups for sample in group for key in sample["metrics"]}
    assert {"rewards/Environment_draw", "rewards/Environment_lottery"} <= columns


def test_a_rollout_that_was_lost_has_no_reward_and_no_advantage(groups: list[list[Sample]]) -> None:
    lost = [s for group in groups for s in group if "environment failed" in str(s["completion"])]
    assert lost
    assert [reward(sample) for sample in lost] == [None] * len(lost)
    assert [sample["advantage"] for sample in lost] == [0.0] * len(lost)


def test_what_was_lost_takes_no_part_in_its_group(groups: list[list[Sample]]) -> None:
    for group in groups:
        rewards = [value for sample in group if (value := reward(sample)) is not None]
        mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
        for sample in group:
            if (value := reward(sample)) is not None:
                assert sample["advantage"] == pytest.approx((value - mean) / (spread + 1e-8), abs=1e-4)


def test_too_many_faults_reach_the_trainer(runs: list[dict[str, Any]]) -> None:
    assert "TooManyFaults" in runs[1]["error"]
    assert "time_limit), more than the share of 0.05 that max_fault_share allows" in runs[1]["error"]


def test_a_factory_is_pickled_small_and_without_its_connection(url: str) -> None:
    spec = EnvironmentSpec(url, env_name="draw", secrets={"key": "value"})
    environment = spec.environment_factory()
    environment.reset(task_split="train", task_index=0)
    try:
        data = pickle.dumps(spec.environment_factory)
        assert len(data) < 4096
        copy = pickle.loads(data)().live
        assert copy is not spec
        assert copy.pool is not spec.pool
        assert copy.tools.names == spec.tools.names
        copy.close()
    finally:
        spec.close()
