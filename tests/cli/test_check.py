"""``orsay check``: what it prints and writes, its exit codes, and the suite's own judgement."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from orsay.cli import main
from orsay.conformance import CHECKS, Check, Failed, NotSupported, Outcome, Target, run_check, to_junit
from orsay.conformance.checks import discovery, refusals
from orsay.conformance.inputs import fitting, only_string_property, unfitting
from orsay_client import Client
from pydantic import BaseModel, Field, ValidationError

from ..interop.servers import BUNDLED, KIT, ServerProcess, serve

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def kit() -> Iterator[ServerProcess]:
    with serve(*KIT, runtime="local") as server:
        yield server


class _Deviating(BaseHTTPRequestHandler):
    """Answers discovery well enough to be checked, and everything else wrongly."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        known = {
            "/list_environments": ["odd"],
            "/odd/splits": [{"name": "train", "type": "train"}],
            "/odd/tools": {"tools": []},
            "/health": {"status": "well\x00"},
        }
        self._answer(known.get(self.path))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer({"num_tasks": 1} if self.path == "/odd/num_tasks" else None)

    def _answer(self, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def deviating() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Deviating) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)


@dataclass
class Whole:
    """All checks of a server that takes tasks by index only, on which one session of training was played."""

    url: str
    status: int
    shown: str
    checks: dict[str, dict[str, Any]]

    def asked(self, path: str) -> Any:
        return httpx.get(f"{self.url}/console/api/{path}").raise_for_status().json()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    report = tmp_path_factory.mktemp("whole") / "report.json"
    with serve(*KIT, runtime="local", options=["--index-only"]) as server:
        with Client(server.url) as client:
            environment = client.environment("kit")
            with environment.session(split="train", index=3, run_labels="grpo-1") as session:
                session.messages()
                session.call("finish", {"n": 1})
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            status = main(["check", server.url, "--json", str(report)])
        checks = {check["id"]: check for check in json.loads(report.read_text())["checks"]}
        yield Whole(server.url, status, shown.getvalue(), checks)


def test_our_server_passes_every_check(whole: Whole) -> None:
    assert whole.status == 0
    assert all(check.id in whole.shown for check in CHECKS)
    assert "0 failed" in whole.shown
    assert "2 not supported" in whole.shown


def test_a_server_that_takes_tasks_by_index_only_fails_nothing(whole: Whole) -> None:
    failed = {name: each["reason"] for name, each in whole.checks.items() if each["status"] == "failed"}
    assert failed == {}
    not_supported = {name for name, each in whole.checks.items() if each["status"] != "passed"}
    assert not_supported == {"P-7-index-negative", "S1-key-needed"}, "the kit supports everything else"


def test_a_check_leaves_no_session_and_no_figure_behind(whole: Whole) -> None:
    assert 'orsay_sessions{environment="Kit",state="ready"} 0.0' in httpx.get(f"{whole.url}/metrics").text
    played = whole.asked("trajectories?limit=500")["items"]
    assert len(played) > 80
    (run,) = {each["run"] for each in played} - {"grpo-1"}
    assert run.startswith("orsay check 20")
    assert [each["run"] for each in played if each["ended_at"] is None] == []
    (cell,) = whole.asked("tasks")
    assert (cell["task"], cell["n"], cell["reward_mean"]) == ("train:3", 1, 1.0)
    # By its name the run can still be looked at.
    assert {each["run"] for each in whole.asked("runs")} == {"grpo-1", run}
    assert sum(each["n"] for each in whole.asked(f"tasks?run={run}")) > 80


def test_another_environment_is_checked_when_named(
    kit: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    some = ["--only", "P-3", "--only", "D2"]
    assert main(["check", kit.url, "--env", "Second", "--json", "-", *some]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["environment"] == "second"
    assert report["counts"]["failed"] == 0
    assert report["counts"]["not supported"] > 1


def test_only_the_checks_asked_for_are_run(kit: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", kit.url, "--only", "P-3.1-health", "--only", "D2", "--json", "-"]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert [check["id"] for check in report["checks"]] == [
        "P-3.1-health",
        "P-3.1-health-methods",
        "D2-runs-once",
        "D2-idempotency-key",
        "D2-broken-connection",
        "D2-broken-while-running",
        "D2-key-of-session",
    ]
    assert {check["status"] for check in report["checks"]} == {"passed"}
    assert "P-3.1-health" in printed.err, "the table makes way for the document"


def test_documents_are_written_to_files(kit: ServerProcess, tmp_path: Path) -> None:
    as_json, as_junit = tmp_path / "report.json", tmp_path / "report.xml"
    arguments = ["check", kit.url, "--only", "P-3.1", "--json", str(as_json), "--junit", str(as_junit)]
    assert main(arguments) == 0
    checks = json.loads(as_json.read_text())["checks"]
    suites = ElementTree.parse(as_junit).getroot()
    cases = [case.get("name", "") for case in suites.iter("testcase")]
    assert [name.partition(":")[0] for name in cases] == [check["id"] for check in checks]
    assert suites[0].get("failures") == "0"


def test_a_deviation_from_the_standard_ends_with_1_and_is_shown(
    deviating: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", deviating, "--only", "P-3.1-health"]) == 1
    assert "failed" in capsys.readouterr().out


def test_promises_of_ours_fail_other_servers_only_when_asked(deviating: str) -> None:
    assert main(["check", deviating, "--only", "C5-no-redirect"]) == 0
    assert main(["check", deviating, "--only", "C5-no-redirect", "--strict"]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name the server"),
        (["http://127.0.0.1:9"], "does not answer"),
        (["localhost:8080"], "no URL"),
        (["http://127.0.0.1:9", "--only", "X-1"], "orsay check --list"),
        (["http://127.0.0.1:9", "--json", "-", "--junit", "-"], "one document"),
    ],
    ids=["no url", "nobody there", "no scheme", "unknown check", "two documents"],
)
def test_a_run_that_cannot_be_made_ends_with_2_and_says_why(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_an_unknown_environment_ends_with_2_and_names_those_there_are(
    kit: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", kit.url, "--env", "nowhere"]) == 2
    assert "kit, second" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_ends_with_2(
    kit: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "missing" / "report.json"
    assert main(["check", kit.url, "--only", "P-3.1-health", "--json", str(where)]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_server_with_keys_is_checked_with_one_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(*KIT, runtime="local", env={"ORSAY_API_KEYS": '["the-key"]'}) as server:
        assert main(["check", server.url]) == 2
        assert "requires an API key" in capsys.readouterr().err
        assert main(["check", server.url, "--api-key", "the-key", "--only", "S1", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["passed"] == 1


def test_the_checks_are_listed_with_their_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list", "--only", "P-10"]) == 0
    shown = capsys.readouterr().out
    assert "P-10-attach-done" in shown
    assert "wire notes" in shown
    assert "P-3.1-health" not in shown


def test_the_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    assert "orsay check http://127.0.0.1:8080 --env guess" in capsys.readouterr().out


async def _outcome(kit: ServerProcess, error: Exception | None) -> Outcome:
    async def run(target: Target) -> None:
        if error is not None:
            raise error

    async with Target.open(kit.url) as target:
        return await run_check(Check("X", "here", "It runs.", "standard", "X", run), target)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (None, "passed", ""),
        (Failed("it did not"), "failed", "it did not"),
        (NotSupported("no such thing"), "not supported", "no such thing"),
        (KeyError("tools"), "failed", "unexpected shape"),
        (ConnectionResetError("gone"), "failed", "gone"),
        (TimeoutError(), "failed", "no answer"),
    ],
    ids=["fine", "failed", "not supported", "shape", "connection", "time"],
)
async def test_whatever_happens_in_a_check_is_an_outcome(
    kit: ServerProcess, error: Exception | None, status: str, words: str
) -> None:
    outcome = await _outcome(kit, error)
    assert outcome.status == status
    assert words in outcome.reason


async def test_reasons_that_xml_cannot_hold_are_made_to_fit(kit: ServerProcess) -> None:
    outcome = await _outcome(kit, Failed("a\x00b\x1b[31m <&> é\nline"))
    (message,) = [
        e.get("message") for e in ElementTree.fromstring(to_junit("u", "e", [outcome])).iter("failure")
    ]
    assert message is not None
    assert message.startswith("a?b?[31m <&> é")


class Inner(BaseModel):
    kind: str = Field(min_length=3)
    steps: list[int] = Field(min_length=2)


class Everything(BaseModel):
    small: int = Field(ge=-5, lt=-2)
    large: float = Field(gt=100)
    even: int = Field(multiple_of=2, ge=3)
    flag: bool
    choice: str = Field(json_schema_extra={"enum": ["a", "b"]})
    short: str = Field(max_length=2, min_length=2)
    maybe: int | None
    inner: Inner
    more: dict[str, int]
    free: str = "as it is"


def test_inputs_are_made_that_fit_their_schema() -> None:
    value = fitting(Everything.model_json_schema())
    made = Everything.model_validate(value, strict=True)
    assert made.choice == "a"
    assert "free" not in value, "what is optional is left out"
    assert fitting(None) == {}


@pytest.mark.parametrize("model", [Everything, Inner])
def test_inputs_are_made_that_do_not_fit(model: type[BaseModel]) -> None:
    wrong = unfitting(model.model_json_schema())
    assert wrong is not None
    with pytest.raises(ValidationError):
        model.model_validate(wrong)
    assert unfitting({"type": "object", "properties": {"a": {}}}) is None
    assert unfitting(None) is None


def test_a_tool_of_one_free_text_is_recognised() -> None:
    class Text(BaseModel):
        text: str

    class Dated(BaseModel):
        day: str = Field(pattern=r"\d+")

    assert only_string_property(Text.model_json_schema()) == "text"
    assert only_string_property(Dated.model_json_schema()) is None
    assert only_string_property(Everything.model_json_schema()) is None
    assert only_string_property(None) is None


async def test_the_bundled_environments_are_judged_fairly() -> None:
    of_server = [*vars(discovery).values(), *vars(refusals).values()]
    of_environment = [check for check in CHECKS if check not in of_server]
    assert len(of_environment) > 90

    async def failed(url: str, name: str) -> dict[str, str]:
        async with Target.open(url, env=name) as target:
            outcomes = [await run_check(check, target) for check in of_environment]
        return {outcome.check.id: outcome.reason for outcome in outcomes if outcome.status == "failed"}

    names = ("echoenvironment", "guessenvironment", "arithmeticenvironment")
    with serve(*BUNDLED, runtime="local") as server:
        assert await asyncio.gather(*(failed(server.url, name) for name in names)) == [{}, {}, {}]
