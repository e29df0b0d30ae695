"""The page on evaluation: its examples run, and its tables are complete."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

import orsay_eval
import pytest
from orsay_client.errors import Diverged
from orsay_eval import plugin
from orsay_protocol.evaluation import EvaluatedEpisode, EvaluationReport, EvaluationSummary

from tests.evaluation.launching import evaluators
from tests.evaluation.test_plugin import WITHOUT
from tests.interop.servers import serve
from tests.support.chat_endpoint import Answer, Endpoint, call
from tests.support.documentation import EXAMPLES, ROOT, cells

pytestmark = pytest.mark.process

FOLDER = EXAMPLES / "evaluation"
LIMIT_S = 100


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(str(EXAMPLES / "environments" / "reverse.py"), options=["--workers", "1"]) as server:
        yield server.url


def run(folder: Path, *command: str) -> str:
    env = {**os.environ, "PYTHONPATH": f"{FOLDER}{os.pathsep}{ROOT}", "HF_HUB_OFFLINE": "1"}
    done = evaluators().run(command, cwd=folder, env=env, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def spells(body: dict[str, object]) -> Answer:
    word = re.findall(r"'(\w+)'", str(body["messages"]))
    return call(("submit", {"text": next(found for found in word if found in ("stone", "river"))[::-1]}))


def test_a_model_is_measured(url: str, endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.script = spells  # type: ignore[assignment]  # a mapping is a dict here
    code = (FOLDER / "measure.py").read_text()
    for shown, here in (("http://127.0.0.1:8080", url), ("http://127.0.0.1:8000/v1", endpoint.base_url)):
        assert shown in code
        code = code.replace(shown, here)
    shown = run(tmp_path, "-c", code)
    assert "mean reward 1.00, 95% interval 0." in shown and "{1: 1.0, 2: 1.0, 4: 1.0}" in shown
    assert (tmp_path / "evaluations" / "spelling.json").exists()


def test_the_solver_solves_from_the_command_line(url: str, tmp_path: Path) -> None:
    policy = f"{FOLDER / 'solver.py'}:solve"
    shown = run(
        tmp_path, "-m", "orsay", "eval", url, "--policy", policy, "--split", "train", "--min-reward", "1"
    )
    assert "1.000" in shown


def test_the_tests_that_are_shown_pass(url: str, tmp_path: Path) -> None:
    policy = f"--orsay-policy={FOLDER / 'solver.py'}:solve"
    options = ("-q", "-p", "no:cacheprovider", *WITHOUT.split(), "-c", os.devnull, "--rootdir", str(tmp_path))
    shown = run(
        tmp_path, "-m", "pytest", *options, str(FOLDER / "test_spelling.py"), f"--orsay-url={url}", policy
    )
    assert "4 passed" in shown


def test_training_takes_the_same_definition(url: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("datasets") is None:
        pytest.skip("needs the extra 'trl'")
    code = (FOLDER / "train.py").read_text().replace("http://127.0.0.1:8080", url)
    assert run(tmp_path, "-c", code).split() == ["2", "2"]


def test_every_public_name_is_documented() -> None:
    documented = [
        name for row in cells("evaluation.md", "## From Python") for name in re.findall(r"`(\w+)`", row[1])
    ]
    assert sorted(name for name in documented if name != "report") == sorted(orsay_eval.__all__)


def test_every_field_of_a_report_is_documented() -> None:
    rows = [re.findall(r"`(\w+)`", " ".join(row)) for row in cells("evaluation.md", "## The report")]
    documented = {name for row in rows for name in row}
    fields = {*EvaluationReport.model_fields, *EvaluationSummary.model_fields, *EvaluatedEpisode.model_fields}
    assert fields - {"format"} == documented


def test_every_option_of_the_plugin_is_documented() -> None:
    documented = {row[0].split("`")[1].split()[0] for row in cells("evaluation.md", "## In tests")}
    assert documented == {*(f"--orsay-{name}" for name in plugin._OPTIONS), "--orsay-output"}


def test_every_way_to_end_and_every_fault_of_the_model_is_documented() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text()
    sources = "".join(path.read_text() for path in Path(orsay_eval.__file__).parent.glob("*.py"))
    stops = set(re.findall(r'(?:_stop = |stop=|stop = )"(\w+)"', sources))
    faults = set(re.findall(r'"(model_\w+|policy_error)"', sources)) - {"model_names"} | {Diverged.wire_class}
    assert {"finished", "max_turns", "context", "gave_up"} <= stops
    assert {"model_unavailable", "model_error", "model_refused", "policy_error", "diverged"} == faults
    for name in stops | faults:
        assert f"`{name}`" in page, name
