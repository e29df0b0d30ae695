"""Each script in ``examples`` runs as it is: two steps of a tiny model, on a real server and a CPU."""

from __future__ import annotations

import ast
import math
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from orsay.journal.write.wal import wait_for_living

from tests.interop.servers import serve

from ..support.model_server.processes import ServedModel, serve_model
from ..support.trainers import OFFLINE, ranks, skip_without_trl, spawning_trainers, trainers

skip_without_trl()

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = (
    "grpo",
    "several_environments",
    "custom_reward",
    "evaluation",
    "rollout_function",
    "async_grpo",
)
LIMIT_S = 160
pytestmark = [pytest.mark.process, pytest.mark.timeout(LIMIT_S + 40)]
# Options of TRL's own script for an OpenReward environment.
SETA_FLAGS = {
    "--model",
    "--target",
    "--split",
    "--num-tasks",
    "--learning-rate",
    "--per-device-train-batch-size",
    "--gradient-accumulation-steps",
    "--num-generations",
    "--max-completion-length",
    "--max-steps",
    "--max-tool-calling-iterations",
    "--vllm-mode",
    "--vllm-server-base-url",
    "--vllm-gpu-memory-utilization",
    "--output-dir",
    "--report-to",
}

Log = dict[str, Any]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "journal.db"


@pytest.fixture(scope="module")
def url(journal: Path) -> Iterator[str]:
    """A server of two bundled environments; the first one, guess, is what a client gets by default."""
    names = ("guess_env.env:GuessEnvironment", "echo_env.env:EchoEnvironment")
    variables = {"ORSAY_JOURNAL": str(journal)}
    with serve(*names, options=["--workers", "1"], env=variables) as server:
        yield server.url
    ends = server.events("session_ended")
    assert ends
    assert {end["reason"] for end in ends} == {"Session deleted"}, "a script left sessions open"


@pytest.fixture(scope="module")
def model(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that ``smoke.py`` made for guess. Not to be written to."""
    folder = tmp_path_factory.mktemp("made") / "model"
    output("smoke", str(folder), "--url", url)
    return folder


@pytest.fixture(scope="module")
def served(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    """The stand-in for vLLM over a copy of that model."""
    folder = Path(shutil.copytree(model, tmp_path_factory.mktemp("served") / "model"))
    with serve_model(folder, name=str(folder)) as served:
        yield served


def output(script: str, *arguments: str, processes: int = 1) -> str:
    """What a script prints, of several processes the first; all must succeed."""
    command = [str(EXAMPLES / f"{script}.py"), *arguments]
    done = ranks(command, count=processes, timeout=LIMIT_S) if processes > 1 else [alone(command)]
    assert [each.returncode for each in done] == [0] * processes, [each.stderr[-4000:] for each in done]
    return done[0].stdout


def alone(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    server = spawning_trainers() if "async_grpo.py" in command[0] else trainers()
    return server.run(command, env={**os.environ, **OFFLINE}, timeout=LIMIT_S)


def logs(script: str, url: str, folder: Path, *options: str, processes: int = 1) -> list[Log]:
    """What the trainer printed step by step, as numbers."""
    given = ("--url", url, "--smoke", "--output-dir", str(folder / "out"), *options)
    shown = output(script, *given, processes=processes)
    found = [ast.literal_eval(line) for line in shown.splitlines() if line.startswith("{")]
    return [
        {key: float("nan") if value is None else float(value) for key, value in log.items()} for log in found
    ]


def steps(found: list[Log]) -> list[Log]:
    """Logs of training steps, without evaluations and the summary."""
    return [log for log in found if "loss" in log]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_what_it_needs_and_how_it_is_started(script: str) -> None:
    docstring = ast.get_docstring(ast.parse((EXAMPLES / f"{script}.py").read_text())) or ""
    assert "Needs `pip install 'orsay[trl,vllm]'" in docstring
    assert f"python examples/{script}.py --url http://127.0.0.1:8080" in docstring
    assert re.search(rf"{script}\.py .*--smoke", docstring)


def test_every_script_is_tried_here() -> None:
    found = {path.stem for path in EXAMPLES.glob("*.py") if "GRPOTrainer(" in path.read_text()}
    assert found == set(SCRIPTS)


def test_the_seta_script_has_no_option_that_ours_has_not() -> None:
    words = re.findall(r'"(--[a-z-]+)"', (EXAMPLES / "grpo.py").read_text())
    assert set(words) >= SETA_FLAGS


def test_grpo_with_two_processes(url: str, model: Path, tmp_path: Path) -> None:
    options = ("--target", url, "--env-name", "guessenvironment", "--model", str(model))
    found = logs("grpo", url, tmp_path, *options, processes=2)
    assert len(steps(found)) == 2
    for log in steps(found):
        assert log["env/calls/guess"] > 0
        assert log["env/faults"] == 0
        assert log["rewards/environment_reward/mean"] == pytest.approx(log["env/reward"])
    rollouts = found[-1]["train_samples_per_second"] * found[-1]["train_runtime"]
    assert rollouts == pytest.approx(2 * 2 * 4, rel=0.1)  # steps, processes, rollouts of each


def test_several_environments(url: str, tmp_path: Path) -> None:
    names = ["guessenvironment", "echoenvironment"]
    found = steps(
        logs("several_environments", url, tmp_path, "--environments", *names, "--weights", "1", "1")
    )
    played = {name for log in found for name in names if log.get(f"env/{name}/length", 0) > 0}
    assert played == set(names)
    assert not any("env/length" in log for log in found)


def test_custom_reward(url: str, model: Path, tmp_path: Path) -> None:
    for log in steps(logs("custom_reward", url, tmp_path, "--brevity", "0.5", "--model", str(model))):
        assert 0 < log["rewards/brevity/mean"] <= 1
        total = log["rewards/environment_reward/mean"] + 0.5 * log["rewards/brevity/mean"]
        assert log["reward"] == pytest.approx(total, rel=1e-3)


def test_evaluation(url: str, model: Path, tmp_path: Path) -> None:
    found = logs("evaluation", url, tmp_path, "--model", str(model))
    evaluations = [log for log in found if "eval_reward" in log]
    assert len(evaluations) == 3  # before the first step, and after each of two
    assert all(0 <= log["eval_env/success"] <= 1 and log["eval_env/length"] > 0 for log in evaluations)
    assert len(steps(found)) == 2


def test_rollout_function_with_the_trainers_own_model(url: str, model: Path, tmp_path: Path) -> None:
    found = steps(logs("rollout_function", url, tmp_path, "--model", str(model)))
    assert len(found) == 2
    for log in found:
        assert log["sampling/parity"] < 1e-3
        assert log["env/calls/guess"] > 0
        assert log["rollout/turns"] > 1


def test_rollout_function_with_a_server_that_takes_weights_from_its_folder(
    url: str, served: ServedModel, tmp_path: Path
) -> None:
    served.seen()
    found = steps(
        logs(
            "rollout_function",
            url,
            tmp_path,
            *("--model", str(served.folder)),
            *("--served-folder", str(served.folder), "--vllm-server-base-url", served.base_url),
        )
    )
    assert [log["sampling/parity"] < 1e-3 for log in found] == [True, True]
    assert served.seen()["requests"]["/collective_rpc"] == 2


def test_async_grpo(url: str, served: ServedModel, journal: Path, tmp_path: Path) -> None:
    """TRL's own trainer and worker process; only kernels of CUDA, NCCL and the seed are replaced."""
    served_by = ("--model", str(served.folder), "--vllm-server-base-url", served.base_url)
    found = logs("async_grpo", url, tmp_path, *served_by, "--output-dir", str(tmp_path / "while it computes"))
    trained = steps(found)
    assert len(trained) == 2
    for log in trained:
        assert math.isfinite(log["loss"])
        assert log["rewards/Environment_" + url.partition("//")[2].replace(".", "_").replace(":", "_")] >= 0
        assert log["tools/call_frequency"] > 0
    assert trained[0]["ratio"] == pytest.approx(1, abs=1e-3)  # the worker's logprobs are the trainer's
    # The process that plays has no trainer to ask; it was given the run, and claims no step.
    wait_for_living(journal)
    connection = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    try:
        query = "SELECT step, rollout FROM sessions WHERE run = 'while it computes'"
        rows = connection.execute(query).fetchall()
    finally:
        connection.close()
    assert len(rows) >= 2 * 2 and {step for step, _ in rows} == {None}
    assert len({rollout for _, rollout in rows}) == len(rows)
