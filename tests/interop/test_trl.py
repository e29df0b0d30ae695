"""TRL's released OpenRewardSpec derives a dataset, binds tools, plays and scores on our server."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .servers import BUNDLED, serve
from .venvs import TRL, python_for

pytestmark = [pytest.mark.venv, pytest.mark.conformance("C1")]


Report = dict[str, Any]

RIGHT, WRONG = [["hint", {}], ["echo", {"text": "$target"}]], [["echo", {"text": "nonsense"}]]
PLANS: tuple[dict[str, Any], ...] = (
    {"num_tasks": 4, "calls": [RIGHT, WRONG, [["hint", {}]], RIGHT]},
    {"num_tasks": 3, "calls": [[["guess", {"number": 50}], ["guess", {"number": "not a number"}]]]},
    {"num_tasks": 2, "calls": [[["calculator", {"expression": "6*7"}]]]},
)


@pytest.fixture(scope="module")
def reports() -> tuple[Report, ...]:
    """What TRL made of each bundled environment on a server of its own, and of guess among all three."""
    driver = Path(__file__).parent / "drivers" / "trl_spec.py"
    with ExitStack() as stack:
        urls = [stack.enter_context(serve(target, options=["--workers", "1"])).url for target in BUNDLED]
        plans = [{"url": url, "split": "train", **plan} for url, plan in zip(urls, PLANS, strict=True)]
        shared = stack.enter_context(serve(*BUNDLED, options=["--workers", "1"])).url
        plans.append({**plans[1], "url": shared, "env_name": "GuessEnvironment"})
        command = [str(python_for("trl", TRL)), str(driver), json.dumps(plans)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return tuple(json.loads(done.stdout.strip().splitlines()[-1]))


@pytest.mark.conformance("P-3.2-create-index", "P-3.2-task-tools", "P-3.3-default-environment")
def test_it_trains_on_echo(reports: tuple[Report, ...]) -> None:
    seen = reports[0]
    assert {"prompt", "task_index", "id", "target"} <= set(seen["columns"])
    assert [row["target"] for row in seen["rows"]] == ["hello", "world", "trl", "openreward"]
    assert sorted(seen["tools"]) == ["echo", "hint"]
    assert seen["tools"]["echo"]["signature"] == "(text: str) -> str"
    assert "The string to echo back." in seen["tools"]["echo"]["doc"]
    assert "'hello'" in seen["episodes"][0]["prompt"]
    assert [episode["finished"] for episode in seen["episodes"]] == [True, False, False, True]
    assert seen["scores"] == [1.0, 0.0, None, 1.0]


@pytest.mark.conformance("P-7-task-range")
def test_it_trains_on_guess_without_listing_its_tasks(reports: tuple[Report, ...]) -> None:
    seen = reports[1]
    assert len(seen["rows"]) == 3
    assert seen["tools"]["guess"]["signature"] == "(number: int) -> str"
    episode = seen["episodes"][0]
    assert episode["rewards"][0] is not None
    assert episode["rewards"][1] is None, "a refused call must not count as a reward"
    assert "Error" in episode["texts"][1]


def test_it_trains_on_arithmetic_with_a_calculator(reports: tuple[Report, ...]) -> None:
    seen = reports[2]
    assert sorted(seen["tools"]) == ["calculator"], "a terminal tool is not for models to call"
    assert seen["episodes"][0]["texts"][0].startswith("42")
    assert seen["scores"] == [None]


def test_env_name_chooses_among_the_environments_of_one_server(reports: tuple[Report, ...]) -> None:
    alone, among = reports[1], reports[3]
    assert among["rows"] == alone["rows"]
    assert among["tools"] == alone["tools"]
    assert among["episodes"][0]["texts"] == alone["episodes"][0]["texts"]
