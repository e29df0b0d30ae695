"""The pytest plugin, in projects of its users: a pytest of their own in another process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evaluation.conftest import EnvServer
from tests.evaluation.launching import evaluators
from tests.evaluation.test_evaluate import adds
from tests.interop.servers import ROOT
from tests.support.chat_endpoint import Endpoint

pytestmark = pytest.mark.process

LIMIT_S = 100
WITHOUT = " ".join(  # plugins that happen to be installed here, and are slow to load
    f"-p no:{name}"
    for name in ("asyncio", "anyio", "hypothesispytest", "schemathesis", "playwright", "typeguard")
)
HEAD = """
import pytest
from orsay_eval import Evaluation, assert_mean, assert_pass_at_k

SUMS = Evaluation("sums", tasks=4, k=2)

"""
SOLVER = """
def solve(turn):
    return "answer", {"value": turn.task["a"] + turn.task["b"]}

def half(turn):
    return "answer", {"value": turn.task["a"] + turn.task["b"] + turn.index % 2}
"""


def run(
    folder: Path, test: str, *arguments: str, fresh: bool = False, limit_s: float = LIMIT_S
) -> tuple[int, str]:
    """Exit code and output of pytest over a project with this test file.

    ``fresh``: in an interpreter that has imported nothing before.
    """
    (folder / "test_model.py").write_text(HEAD + test)
    (folder / "solver.py").write_text(SOLVER)
    ignored = "" if fresh else "\n    ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    (folder / "pytest.ini").write_text(
        f"[pytest]\naddopts = -p no:cacheprovider --strict-markers {WITHOUT}\n"
        f"filterwarnings =\n    error{ignored}\n"
    )
    command = ["-m", "pytest", "-v", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    if fresh:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    else:
        done = evaluators().run(command, cwd=folder, env=env, timeout=limit_s)
    return done.returncode, done.stdout + done.stderr


def options(env_server: EnvServer, policy: str = "solver.py:solve") -> tuple[str, ...]:
    return f"--orsay-url={env_server.url}", f"--orsay-policy={policy}"


def test_a_marked_test_runs_once_for_each_task(env_server: EnvServer, tmp_path: Path) -> None:
    test = """
@pytest.mark.orsay_tasks(SUMS)
def test_solves(orsay_task, orsay_episodes):
    assert [episode.attempt for episode in orsay_episodes] == [0, 1]
    assert {episode.index for episode in orsay_episodes} == {orsay_task.index}
    assert all(episode.success for episode in orsay_episodes)
"""
    code, shown = run(tmp_path, test, *options(env_server, "solver.py:half"))
    assert code == 1 and "2 failed, 2 passed" in shown
    for index, outcome in enumerate(("PASSED", "FAILED") * 2):
        assert f"test_solves[test:{index}] {outcome}" in shown
    assert "half on sums test, 4 tasks x 2: mean reward 0.500 [" in shown


def test_a_threshold_on_the_mean_is_a_case_of_its_own(env_server: EnvServer, tmp_path: Path) -> None:
    test = """
@pytest.mark.orsay_tasks(SUMS, at_least=0.75)
def test_plays(orsay_episodes):
    assert all(episode.fault is None for episode in orsay_episodes)
"""
    code, shown = run(tmp_path, test, *options(env_server))
    assert code == 0 and "5 passed" in shown
    assert shown.count("4 tasks x 2") == 1  # played once for all five
    code, shown = run(tmp_path, test, *options(env_server, "solver.py:half"))
    assert code == 1 and "4 passed" in shown
    assert "test_plays[mean-at-least-0.75] FAILED" in shown
    assert re.search(
        r"solver.py:half on sums, split test \(4 tasks, k=2\): mean reward 0.500 \(95% interval", shown
    )
    assert "wanted at least 0.75" in shown and "test:1 attempt 0: reward 0, finished after 1 turns" in shown


def test_only_the_tasks_that_were_selected_are_played(env_server: EnvServer, tmp_path: Path) -> None:
    test = """
@pytest.mark.orsay_tasks(SUMS, at_least=1)
def test_plays(orsay_episodes):
    pass
"""
    code, shown = run(tmp_path, test, *options(env_server), "-k", "test:2")
    assert code == 0 and "1 passed" in shown and "1 tasks x 2" in shown


def test_a_whole_evaluation_is_played_and_judged(env_server: EnvServer, tmp_path: Path) -> None:
    test = """
def test_model(orsay_evaluate):
    report = orsay_evaluate(SUMS, concurrency=4)
    assert_mean(report, 0.5)
    assert_pass_at_k(report, 2, 0.5)
    with pytest.raises(AssertionError, match="wanted at least 0.5 at the lower end"):
        assert_mean(report, 0.5, surely=True)
    with pytest.raises(AssertionError, match="pass@2 0.500"):
        assert_pass_at_k(report, 2, 0.6)
    with pytest.raises(ValueError, match="there were 2"):
        assert_pass_at_k(report, 3, 0.6)
"""
    code, shown = run(tmp_path, test, *options(env_server, "solver.py:half"), "--orsay-output=reports")
    assert code == 0, shown
    (path,) = (tmp_path / "reports").glob("*.json")
    assert re.fullmatch(r"test_model-\d{8}-\d{6}-0\.json", path.name)


def test_faults_fail_a_threshold_and_say_that_they_are_none_of_the_model(
    env_server: EnvServer, tmp_path: Path
) -> None:
    test = """
def test_model(orsay_evaluate):
    report = orsay_evaluate(Evaluation("faulty", tasks=[1, 2]))
    assert_mean(report, 0.0, max_lost=0.5)
    assert_mean(report, 0.0)
"""
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n"
        "@pytest.fixture(scope='session')\n"
        "def orsay_policy():\n"
        "    return lambda turn: ('step', {})\n"
    )
    code, shown = run(tmp_path, test, f"--orsay-url={env_server.url}")
    assert code == 1
    assert "1 of 2 episodes were lost to faults (1 tool_error), which says nothing of the model" in shown


def test_a_model_plays_by_options_of_the_ini_file(
    env_server: EnvServer, endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.script = adds
    test = """
@pytest.mark.orsay_tasks(SUMS)
def test_solves(orsay_episodes):
    assert all(episode.success for episode in orsay_episodes)
"""
    ini = (
        "-o",
        f"orsay_url={env_server.url}",
        "-o",
        "orsay_model=m",
        "-o",
        f"orsay_base_url={endpoint.base_url}",
    )
    code, shown = run(tmp_path, test, *ini)
    assert code == 0 and "4 passed" in shown
    assert len(endpoint.requests) == 8


@pytest.mark.timeout(400)  # three interpreters from the beginning: 7 s of CPU
def test_processes_of_xdist_play_what_they_run(env_server: EnvServer, tmp_path: Path) -> None:
    test = """
@pytest.mark.orsay_tasks(SUMS)
def test_solves(orsay_episodes):
    assert len(orsay_episodes) == 2 and all(episode.success for episode in orsay_episodes)
"""
    code, shown = run(tmp_path, test, *options(env_server), "-n", "2", limit_s=350)
    assert code == 0 and "4 passed" in shown


@pytest.mark.parametrize(
    ("test", "arguments", "reported"),
    [
        ("@pytest.mark.orsay_tasks(SUMS)\ndef test_one(orsay_episodes): pass\n", (), "name the server"),
        (
            "@pytest.mark.orsay_tasks(SUMS)\ndef test_one(orsay_episodes): pass\n",
            ("--orsay-url=http://127.0.0.1:9",),
            "name the player",
        ),
        ("@pytest.mark.orsay_tasks(3)\ndef test_one(): pass\n", (), "takes an orsay_eval.Evaluation, not 3"),
        ("def test_one(orsay_episodes): pass\n", (), "mark the test"),
        ("@pytest.mark.orsay_tasks(Evaluation())\ndef test_one(): pass\n", (), "name the tasks instead"),
    ],
    ids=["no server", "no policy", "no evaluation", "no mark", "no tasks"],
)
def test_what_is_missing_is_reported(
    test: str, arguments: tuple[str, ...], reported: str, tmp_path: Path
) -> None:
    code, shown = run(tmp_path, test, *arguments)
    assert code != 0 and reported in shown


def test_a_project_that_does_not_use_it_pays_nothing(tmp_path: Path) -> None:
    test = """
def test_one():
    import sys
    assert "orsay_eval.plugin" in sys.modules
    ours = {name for name in sys.modules if name.startswith(("orsay", "openai", "httpx", "pydantic"))}
    assert ours == {"orsay_eval", "orsay_eval.plugin"}
"""
    (tmp_path / "test_alone.py").write_text(test)
    code, shown = run(tmp_path, "", "test_alone.py", fresh=True)
    assert code == 0 and "1 passed" in shown, shown
    assert "orsay evaluations" not in shown
