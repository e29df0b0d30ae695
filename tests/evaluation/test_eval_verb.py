"""``orsay eval`` as a person runs it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from orsay.cli import main
from orsay.cli.eval_progress import ProgressBar
from orsay_eval import Evaluation, evaluate, load_report
from rich.console import Console

from tests.evaluation.conftest import EnvServer
from tests.evaluation.launching import evaluators
from tests.evaluation.test_evaluate import adds, solve
from tests.interop.servers import ROOT
from tests.support.chat_endpoint import Endpoint, error

pytestmark = pytest.mark.process

LIMIT_S = 100
SOLVER = """
def solve(turn):
    return "answer", {"value": turn.task["a"] + turn.task["b"]}

def guess(turn):
    return "answer", {"value": 0}

def wait(turn):
    return "wait", {}
"""


@pytest.fixture
def solver(tmp_path: Path) -> Path:
    path = tmp_path / "solver.py"
    path.write_text(SOLVER)
    return path


def surroundings(variables: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "150", **variables}


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The verb in an interpreter that has imported nothing before."""
    return subprocess.Popen(
        [sys.executable, "-m", "orsay", "eval", *arguments],
        cwd=folder,
        env=surroundings({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    command = ["-m", "orsay", "eval", *arguments]
    done = evaluators().run(command, cwd=folder, env=surroundings(variables), timeout=LIMIT_S)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module", autouse=True)
def unreachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[tuple[int, str, str]]]:
    """Evaluation on a server that is not there: it asks again for ten seconds, while other tests run."""
    folder = tmp_path_factory.mktemp("unreachable")
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run, folder, "http://127.0.0.1:9", "--policy", "random")


def test_a_model_is_evaluated_from_the_command_line(
    env_server: EnvServer, endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.script = adds
    code, shown, errors = run(
        tmp_path,
        env_server.url,
        *("--env", "sums", "-n", "10", "-k", "2", "--model", "m", "--base-url", endpoint.base_url),
        *("--api-key-variable", "SOME_KEY", "--temperature", "0.5", "--extra-body", '{"top_k": 3}'),
        SOME_KEY="key-of-the-model",
    )
    assert code == 0, errors
    assert "mean reward" in shown and "1.000  [" in shown and "pass@2" in shown
    assert "20: 10 tasks, 2 attempts each" in shown and "200 in, 80 of them cached; 100 out" in shown
    assert "20/20  mean 1.000" in errors and "/min" in errors
    assert endpoint.requests[0]["top_k"] == 3 and set(endpoint.keys) == {"Bearer key-of-the-model"}
    (path,) = (tmp_path / "evaluations").glob("*.json")
    report = load_report(path)
    assert report.summary.scored == 20 and report.run == path.stem and path.stem.startswith("sums-test-m-")
    assert f"report: {path.relative_to(tmp_path)}" in shown
    assert "key-of-the-model" not in path.read_text() + shown + errors


@pytest.mark.parametrize("policy", ["random", "solver.py:solve", "solver:solve"])
def test_a_policy_plays_in_place_of_a_model(env_server: EnvServer, solver: Path, policy: str) -> None:
    code, shown, errors = run(
        solver.parent,
        env_server.url,
        "--policy",
        policy,
        "--tasks",
        "0-3,5",
        "--output",
        "o.json",
        "--max-turns",
        "5",
    )
    assert code == 0, errors
    report = load_report(solver.parent / "o.json")
    assert [episode.index for episode in report.episodes] == [0, 1, 2, 3, 5] and report.model == policy
    assert f"{policy} on sums, split test" in shown


def test_ctrl_c_keeps_what_was_played_and_resume_goes_on(env_server: EnvServer, solver: Path) -> None:
    folder = solver.parent
    options = (env_server.url, "--env", "slow", "--policy", "solver.py:wait", "--output", "one.json")
    process = start(folder, *options)
    lines = folder / "one.episodes.jsonl"
    try:
        deadline = time.monotonic() + LIMIT_S
        while not lines.exists() or lines.read_text().count('"episode"') < 2:
            assert time.monotonic() < deadline and process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert (
        "2 of 8 episodes are in one.json; the same command with --output one.json --resume continues it"
        in errors
    )
    assert "Traceback" not in errors
    assert load_report(folder / "one.json").summary.scored == 2
    (env_server.diary / "open").touch()
    code, shown, errors = run(folder, *options, "--resume")
    assert code == 0, errors
    assert "continuing: 2 of 8 episodes were played before" in errors
    assert load_report(folder / "one.json").summary.scored == 8 and "8: 8 tasks" in shown


def test_comparing_shows_whether_a_difference_is_noise(env_server: EnvServer, solver: Path) -> None:
    folder = solver.parent
    for name in ("solve", "guess"):
        code, _, errors = run(
            folder, env_server.url, "--policy", f"solver.py:{name}", "--output", f"{name}.json"
        )
        assert code == 0, errors
    code, shown, _ = run(folder, "--compare", "guess.json", "solve.json", "--not-worse")
    assert code == 0
    assert "B is better than A by +0.9167" in shown and "more than noise (p = " in shown
    assert "B is better at 11 tasks" in shown and "12 tasks in both" in shown
    code, shown, _ = run(folder, "--compare", "solve.json", "guess.json", "--not-worse")
    assert code == 1 and "B is worse than A by -0.9167" in shown
    code, shown, _ = run(folder, "--compare", "solve.json", "solve.json")
    assert code == 0 and "may well be noise (p = 1)" in shown


def test_a_mean_reward_below_the_least_fails(env_server: EnvServer, solver: Path) -> None:
    options = (env_server.url, "--policy", "solver.py:guess", "--output", "o.json", "--min-reward", "0.5")
    code, shown, errors = run(solver.parent, *options)
    assert code == 1
    assert "the mean reward 0.08333 is below 0.5" in errors and "mean reward" in shown


def test_what_the_endpoint_refuses_is_reported_with_what_to_do(
    env_server: EnvServer, endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.script = lambda body: error(400, '"auto" tool choice requires --enable-auto-tool-choice')
    code, _, errors = run(tmp_path, env_server.url, "--model", "m", "--base-url", endpoint.base_url)
    assert code == 1
    assert "start vLLM with --enable-auto-tool-choice" in errors and "Traceback" not in errors
    assert not list((tmp_path / "evaluations").glob("*"))


def test_too_many_faults_end_it_and_say_how_to_go_on(env_server: EnvServer, tmp_path: Path) -> None:
    code, shown, errors = run(
        tmp_path, env_server.url, "--env", "odd", "--policy", "random", "--output", "o.json"
    )
    assert code == 1
    assert "lost test:" in errors and "Go on with --output o.json --resume" in errors
    assert "tool_error" in shown and "nothing was scored" in shown


def test_a_server_that_is_not_there_is_reported(unreachable: Future[tuple[int, str, str]]) -> None:
    code, _, errors = unreachable.result(LIMIT_S)
    assert code == 1
    assert "cannot reach http://127.0.0.1:9" in errors and "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "errors"),
    [
        ((), "name the server"),
        (("http://127.0.0.1:9",), "name the player"),
        (("http://127.0.0.1:9", "--model", "m", "--policy", "random"), "name the player"),
        (("http://127.0.0.1:9", "--model", "m"), "the variable OPENAI_API_KEY is not set"),
        (
            ("http://127.0.0.1:9", "--model", "m", "--api-key-variable", "NOBODY_SET_THIS"),
            "the variable NOBODY_SET_THIS is not set",
        ),
        (("http://127.0.0.1:9", "--policy", "random", "-n", "2", "--tasks", "1"), "-n or --tasks"),
        (("http://127.0.0.1:9", "--policy", "random", "--tasks", "x"), "'x' is no task"),
        (("http://127.0.0.1:9", "--policy", "random", "-n", "0"), "tasks must be at least 1"),
        (("http://127.0.0.1:9", "--policy", "random", "--reward", "best"), "no reward policy 'best'"),
        (("http://127.0.0.1:9", "--policy", "random", "--unscored", "x"), "--unscored takes a number"),
        (("http://127.0.0.1:9", "--policy", "random", "--resume"), "--resume continues a report"),
        (("http://127.0.0.1:9", "--policy", "random", "--step", "1"), "--step belongs to a run"),
        (("http://127.0.0.1:9", "--policy", "random", "--secret", "NOBODY_SET_THIS"), "is not set"),
        (("http://127.0.0.1:9", "--policy", "random", "--not-worse"), "belongs to --compare"),
        (("http://127.0.0.1:9", "--policy", "nowhere"), "a policy is random, module:function"),
        (("http://127.0.0.1:9", "--policy", "nowhere:solve"), "there is no module 'nowhere'"),
        (("http://127.0.0.1:9", "--policy", "nowhere.py:solve"), "there is no file nowhere.py"),
        (("http://127.0.0.1:9", "--policy", "json:solve"), "json has no 'solve'"),
        (("http://127.0.0.1:9", "--model", "m", "--base-url", "x", "--extra-body", "[1]"), "JSON object"),
        (("http://127.0.0.1:9", "--model", "m", "--base-url", "x", "--system", "@nowhere"), "cannot read"),
        (("http://127.0.0.1:9", "--compare", "a", "b"), "no server"),
        (("not-a-url", "--policy", "random"), "a server URL looks like"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_command_line_is_reported(
    arguments: tuple[str, ...],
    errors: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert main(["eval", *arguments]) == 2
    assert errors in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_is_none_cannot_be_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[]")
    assert main(["eval", "--compare", str(path), str(path)]) == 1
    assert "is no report of an evaluation" in capsys.readouterr().err


def test_in_a_terminal_a_bar_shows_the_mean_and_the_rate(env_server: EnvServer) -> None:
    screen = io.StringIO()
    with ProgressBar(Console(file=screen, force_terminal=True, width=150)) as bar:
        evaluate(
            Evaluation("sums"),
            env_server.url,
            solve,
            journal=False,
            on_progress=bar.progress,
            on_note=bar.note,
        )
    assert "12/12" in screen.getvalue() and "mean 1.000" in screen.getvalue() and "/min" in screen.getvalue()


def test_what_an_environment_sends_does_not_steer_the_terminal(env_server: EnvServer) -> None:
    screen = io.StringIO()
    ProgressBar(Console(file=screen)).note("lost to \x1b[2J a fault")
    assert screen.getvalue() == "lost to \\u001b[2J a fault\n"


def test_a_secret_of_a_variable_reaches_the_environment_and_nothing_else(
    env_server: EnvServer, tmp_path: Path
) -> None:
    code, shown, errors = run(
        tmp_path,
        env_server.url,
        *("--env", "sums", "-n", "1", "--policy", "random", "--secret", "JUDGE_KEY", "--output", "o.json"),
        JUDGE_KEY="very-secret-indeed",
    )
    assert code == 0, errors
    everything = shown + errors + "".join(path.read_text() for path in tmp_path.iterdir())
    assert "very-secret-indeed" not in everything
    assert json.loads((tmp_path / "o.json").read_text())["summary"]["scored"] == 1
