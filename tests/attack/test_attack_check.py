"""``orsay check`` against servers that keep the contract but for one thing, which it finds and names."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from orsay.cli import main
from orsay.conformance import CHECKS
from orsay.conformance.checks import discovery, refusals, tasks
from orsay.conformance.counting import Counter, find_counter
from orsay.conformance.echo import find_echo
from orsay.conformance.failures import Failed, NotSupported
from orsay.conformance.reply import Reply
from orsay.conformance.strict import read_json
from orsay_client import Client
from orsay_protocol.sse import Decoder, encode_event, encode_result

from tests.support.servers import orsay

from ..interop.servers import KIT, ServerProcess, serve
from .small_server import KEY, small_server, stop_small_servers

pytestmark = pytest.mark.process

_UNSUPPORTED = {"P-2-empty-api-key", "P-3.2-score-group", "P-4-score-group-messages", "L7-replays"}


@pytest.fixture(scope="module", autouse=True)
def small_servers() -> Iterator[None]:
    yield
    stop_small_servers()


Checked: TypeAlias = "tuple[int, dict[str, Any]]"


def checked(url: str, *options: str) -> Checked:
    """Exit status, and the checks that were run, by id."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        status = main(["check", url, "--json", str(report), *options])
        return status, {check["id"]: check for check in json.loads(report.read_text())["checks"]}


def checked_small(defect: str, *options: str) -> Checked:
    with small_server(defect) as server:
        return checked(server.url, "--api-key", KEY, *options)


_SLOW = (
    ("each call runs twice", "--only=D2-runs-once"),
    ("each call runs again after its answer", "--only=D2-runs-once"),
    ("reading a running call runs it again", "--only=P-10-attach-running"),
    ("one call at a time", "--only=I1"),
    ("tools block the loop", "--only=I1"),
    ("delete leaves calls running", "--only=L2-delete-during-call"),
    ("every call takes long", "--only=P-10-attach-running"),
    ("calls are cached", "--only=D2", "--counting-tool=press"),
    ("each call runs twice", "--only=D2", "--counting-tool=press"),
    ("each call runs twice", "--only=D2", "--counting-tool=press:2"),
)


@pytest.fixture(scope="module")
def slow() -> dict[tuple[str, ...], Future[Checked]]:
    """Outcomes of checks that wait for seconds, each against a server of its own, at the same time."""
    with ExitStack() as stack, ThreadPoolExecutor(len(_SLOW)) as pool:
        urls = [stack.enter_context(small_server(defect)).url for defect, *_ in _SLOW]
        asked = [
            pool.submit(checked, url, "--api-key", KEY, *options)
            for url, (_, *options) in zip(urls, _SLOW, strict=True)
        ]
        wait(asked)
        return dict(zip(_SLOW, asked, strict=True))


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Callable[..., Checked]:
    """As ``checked_small``; what is slow is taken from there."""

    def outcome(*asked: str) -> Checked:
        if asked not in _SLOW:
            return checked_small(*asked)
        found: Checked = request.getfixturevalue("slow")[asked].result()
        return found

    return outcome


def test_the_server_that_all_of_these_break_is_whole() -> None:
    with small_server() as server:
        status, checks = checked(server.url, "--api-key", KEY)
        assert {name: each["reason"] for name, each in checks.items() if each["status"] == "failed"} == {}
        assert {name for name, each in checks.items() if each["status"] != "passed"} == _UNSUPPORTED
        assert status == 0
        assert server.sessions == {}, "sessions are left behind"


_BY_COUNTING = {"P-3.2-reading-changes-nothing", "P-9-raising-loses-nothing", "P-9-counts-at-once"}

_DEFECTS = {
    "a reward is NaN": "D3",
    "a reward is Infinity": "D3",
    "a reward is 1e999": "D3",
    "a reward is text": "D3",
    "a reward is true": "D3",
    "each call runs twice": "D2-runs-once",
    "each call runs again after its answer": "D2-runs-once",
    "every third call runs twice": "D2-runs-once",
    "keys are ignored": "D2-idempotency",
    "the same key runs again": "D2-idempotency",
    "a key takes another body": "D2-idempotency",
    "keys outlive their session": "D2-key-of-session",
    "task ids are all the same": "D2-key-of-session",
    "the key of a running call runs again": "D2-broken-while-running",
    "reading again runs again": "P-10-attach-done",
    "a running call is unknown": "P-10-attach-running",
    "reading a running call runs it again": "P-10-attach-running",
    "calls of one tool overlap": "P-9-counts-at-once",
    "what raises begins the episode anew": "P-9-raising",
    "what raises is tried three times": "P-9-raising",
    "the prompt begins the episode anew": "P-3.2-reading",
    "listing tools begins the episode anew": "P-3.2-reading",
    "calls are cached": "P-9-call-again",
    "refused calls run": "P-9-call-after-refusal",
    "answers change places": "P-9-calls-at-once",
    "all sessions are one": "P-1-sessions-apart",
    "the second piece is lost": "D1",
    "the last piece is lost": "D1",
    "a middle piece is sent twice": "D1",
    "two pieces change places": "D1",
    "a byte is lost at each border": "D1",
    "white space is trimmed at the borders": "D1",
    "white space is not escaped": "D1-no-leading",
    "long results are cut and joined": "D1",
    "digits are lost in long texts": "D1",
    "bytes are no UTF-8": "D1",
    "calls go on after the end": "D4",
    "other tools go on after the end": "D4",
    "results are everybody's": "D5",
    "results outlive their session": "D5",
    "create makes it anew": "L1",
    "create takes another body": "L1",
    "create twice is refused": "L1",
    "create opens the first task": "P-3.2-create-same-task",
    "create opens tasks of train": "P-3.2-create-same-task",
    "delete leaves the session": "L4",
    "a deleted session answers 404": "L4",
    "an unknown session answers 200": "L4",
    "an unknown session answers 410": "P-11-unknown-session",
    "one call at a time": "I1",
    "tools block the loop": "I1",
    "delete leaves calls running": "L2-delete-during-call",
    "a route needs no key": "S1",
    "a part of the key will do": "S1",
    "private methods are tools": "S5",
    "dunders are tools": "S5",
    "streams end without end": "P-5.2-stream-events",
    "the last line is missing": "P-5.2-stream-events",
    "errors end without an event": "P-5.2-stream-events",
    "end is sent twice": "P-5.2-stream-events",
    "an error follows end": "P-5.2-stream-events",
    "calls answer with JSON": "P-4-call-result",
    "streams are plain text": "P-4-call-result",
    "finished is missing": "P-4-call-result",
    "a name stands twice": "P-4-call-result",
    "half a character is sent": "P-4-call-result",
    "something follows the JSON": "P-4-call-result",
    "tasks hold NaN": "P-3.1-tasks",
    "ready is missing": "L6-ready",
}


@pytest.mark.parametrize(("defect", "only"), _DEFECTS.items(), ids=lambda value: value)
def test_one_broken_thing_fails_its_check(defect: str, only: str, check: Callable[..., Checked]) -> None:
    status, checks = check(defect, f"--only={only}")
    failed = {name for name, each in checks.items() if each["status"] == "failed"}
    assert failed, f"nothing failed of {sorted(checks)}: {[each['reason'] for each in checks.values()]}"
    assert status == 1


_PECULIAR = {
    "press counts by two": {"P-9-call-once", "D2-runs-once", "D2-broken-connection", *_BY_COUNTING},
    "every tool counts": set(),
    "the fourth press ends the episode": set(),
    "press is concurrent and answers late": {"P-9-counts-at-once"},
    "metadata and texts speak of rewards": set(),
}
"""And the checks that are not supported then."""

_OF_NO_CALL = [*vars(discovery).values(), *vars(tasks).values(), *vars(refusals).values()]
_OF_CALLS = [check for check in CHECKS if check not in _OF_NO_CALL and check.id != "D1-no-leading-space"]
"""What is peculiar is what tools do, and not how long texts are told: other checks see the whole server."""


@pytest.mark.parametrize(("peculiarity", "unsupported"), _PECULIAR.items(), ids=_PECULIAR)
def test_a_correct_server_that_is_peculiar_fails_nothing(peculiarity: str, unsupported: set[str]) -> None:
    status, checks = checked_small(peculiarity, *(f"--only={check.id}" for check in _OF_CALLS))
    assert len(checks) == len(_OF_CALLS) > 70
    assert {name: each["reason"] for name, each in checks.items() if each["status"] == "failed"} == {}
    assert {name for name, each in checks.items() if each["status"] != "passed"} == _UNSUPPORTED | unsupported
    assert status == 0


def test_a_server_that_takes_long_over_every_call_runs_it_once_all_the_same(
    check: Callable[..., Checked],
) -> None:
    status, checks = check("every call takes long", "--only=P-10-attach-running")
    assert [(each["status"], each["reason"]) for each in checks.values()] == [("passed", "")]
    assert status == 0


def test_a_tool_that_counts_by_two_is_judged_when_a_person_says_so() -> None:
    with small_server("press counts by two") as server:
        status, checks = checked(server.url, "--api-key", KEY, "--only", "D2")
        assert "--counting-tool NAME:2" in checks["D2-runs-once"]["reason"]
        assert status == 0
        counted = _PECULIAR["press counts by two"]
        only = [f"--only={name}" for name in sorted(counted)]
        status, checks = checked(server.url, "--api-key", KEY, "--counting-tool", "press:2", *only)
        assert {name: each["status"] for name, each in checks.items()} == dict.fromkeys(counted, "passed")
        assert status == 0


def _steps(*steps: int) -> Any:
    """A tool that counts so, in each session anew, and the first step again and again at last."""

    async def answers() -> AsyncGenerator[Reply, None]:
        number = 0
        for step in (*steps, *[steps[0]] * 9):
            number += step
            yield _reply(f"move {number}")

    return answers


async def _found(*, declared: bool = False, witness: str | None = None, **tools: Any) -> Counter | None:
    async def shown() -> str | None:
        return witness

    def calls(name: str, value: dict[str, Any]) -> AsyncGenerator[Reply, None]:
        answers: AsyncGenerator[Reply, None] = tools[name]()
        return answers

    return await find_counter([(name, {}) for name in tools], calls, declared=declared, witness=shown)


async def test_a_tool_that_counts_by_one_is_taken_before_one_that_counts_by_two() -> None:
    for tools in (
        {"take": _steps(2), "count": _steps(1)},
        {"take": _steps(-2), "count": _steps(-1)},
        {"take": _steps(1, 2, 1), "count": _steps(1)},
    ):
        found = await _found(witness="sleep of 2 s takes 4 s", **tools)
        assert found is not None
        assert found.tool == "count"
    assert await _found(stand=_steps(0), leap=_steps(3)) is None


async def test_a_tool_that_counts_by_two_fails_on_a_second_witness_alone() -> None:
    with pytest.raises(NotSupported, match="--counting-tool NAME:2"):
        await _found(take=_steps(2))
    with pytest.raises(Failed, match="takes 4 s: calls run twice"):
        await _found(take=_steps(2), witness="sleep of 2 s takes 4 s")
    with pytest.raises(Failed, match="take counts 2, 4, 6, 8, 10, 12: calls run twice"):
        await _found(take=_steps(2), declared=True)
    with pytest.raises(Failed, match="take counts 1, 3, 4, 5, 6, 7: some calls run twice"):
        await _found(take=_steps(1, 2, 1))


def test_every_defect_of_the_server_is_tried() -> None:
    source = Path(__file__).with_name("small_server.py").read_text()
    tried = (*_DEFECTS, *_PECULIAR, "long results are cut off", "every call takes long")
    assert [defect for defect in tried if f'"{defect}"' not in source] == []
    # One line is for three of them, and one is the method.
    assert source.count("is_(") - 1 == len(tried) - 2


def test_of_a_named_tool_nothing_may_be_lost() -> None:
    with small_server("long results are cut off") as server:
        options = ("--api-key", KEY, "--only", "D1")
        status, checks = checked(server.url, *options)
        # A tool may end its answers like that: that no stream lost anything cannot be known.
        assert "--echo-tool say" in checks["D1-no-leading-space"]["reason"]
        assert status == 0
        status, checks = checked(server.url, *options, "--echo-tool", "say")
    assert {each["status"] for each in checks.values()} == {"failed"}
    assert status == 1


def test_a_named_counting_tool_must_count(check: Callable[..., Checked]) -> None:
    status, checks = check("calls are cached", "--only=D2", "--counting-tool=press")
    assert "1 0.5; 1 0.5; 1 0.5" in checks["D2-runs-once"]["reason"]
    assert status == 1
    assert check("each call runs twice", "--only=D2", "--counting-tool=press")[0] == 1
    # Who says that it counts by two is believed.
    assert check("each call runs twice", "--only=D2", "--counting-tool=press:2")[0] == 0


def test_a_tool_that_is_not_there_cannot_be_named() -> None:
    with small_server() as server:
        named = ("--echo-tool", "shout", "--counting-tool", "count", "--waiting-tool", "doze")
        status, checks = checked(server.url, "--api-key", KEY, "--only", "D1", "--only", "D2", *named)
    assert "lists no tool 'shout'" in checks["D1-read-again"]["reason"]
    assert "lists no tool 'count'" in checks["D2-runs-once"]["reason"]
    assert status == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"reward": NaN}',
        '{"reward": -Infinity}',
        '{"reward": 1e999}',
        '{"a": 1, "a": 1}',
        '["\\ud800"]',
        "1 2",
        b"\xff",
        b"\xef\xbb\xbf1",
        "1".encode("utf-16"),
        "[" * 200_000,
    ],
    ids=["nan", "infinity", "huge", "double", "half", "more", "bytes", "mark", "utf-16", "deep"],
)
def test_what_only_python_takes_for_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(Failed, match="the text"):
        read_json(text, "the text")


def test_strict_json_is_read() -> None:
    assert read_json('{"a": [1, 2.5e3, null, "\\ud83d\\ude00", "é"]}', "x") == {
        "a": [1, 2500.0, None, "😀", "é"]
    }


def _reply(text: str) -> Reply:
    result = json.dumps({"ok": True, "output": {"blocks": [{"type": "text", "text": text}]}}).encode()
    body = encode_event("task_id", "0" * 32) + encode_result(result)
    return Reply(200, httpx.Headers({"content-type": "text/event-stream"}), body, Decoder().feed(body))


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (lambda text: text[:900], "gives back 900 of"),
        (lambda text: text[:900] + "… and more", "gives back 900 of"),
        (lambda text: text if len(text) < 3_000 else f"{text[:900]}\n[cut]\n{text[-900:]}", "gives back 90"),
        (lambda text: " ".join(text.split()), "white space or odd characters not"),
        (str.lower, ""),
        (str.upper, "no tool of this environment gives back"),
    ],
    ids=["begin", "begin and a word", "begin and end", "tidied", "exact", "nothing"],
)
async def test_a_tool_that_shortens_is_no_loss(tool: Any, words: str) -> None:
    async def call(name: str, value: dict[str, str]) -> Reply:
        return _reply(tool(value["text"]))

    found, why_not = await find_echo([("say", "text")], call)
    assert words in why_not
    assert (found is None) is bool(words)


def _asked(url: str, path: str) -> Any:
    return httpx.get(f"{url}/console/api/{path}").raise_for_status().json()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of ours with a journal of its own, in which one session of training was played."""
    with serve(*KIT, runtime="local", env={"ORSAY_JOURNAL": str(tmp_path / "journal.db")}) as server:
        with Client(server.url) as client:
            environment = client.environment("kit")
            with environment.session(split="train", index=3, run_labels="grpo-1") as session:
                session.messages()
                session.call("finish", {"n": 1})
        yield server


def test_trials_are_in_no_export_that_does_not_ask_for_them(
    ours: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(ours.url)
    (run,) = {each["run"] for each in _asked(ours.url, "trajectories")["items"]} - {"grpo-1"}
    assert run.startswith("orsay play 20")

    def exported(query: str) -> set[str]:
        lines = httpx.get(f"{ours.url}/console/api/export?full=true{query}").raise_for_status().text
        return {json.loads(line)["run"] for line in lines.splitlines()}

    assert exported("") == {"grpo-1"}
    assert exported("&trials=true") == {"grpo-1", run}
    assert exported(f"&run={run}") == {run}
    for options, runs in (((), {"grpo-1"}), (("--trials",), {"grpo-1", run}), (("--run", run), {run})):
        file, journal = tmp_path / "played.jsonl", str(tmp_path / "journal.db")
        command = ["journal", "export", str(file), "--journal", journal, "--full", "--force", *options]
        capsys.readouterr()
        assert main(command) == 0
        assert {json.loads(line)["run"] for line in file.read_text().splitlines()} == runs
        assert ("Left out 1 trials" in capsys.readouterr().err) == (not options)


def _play(url: str) -> None:
    orsay("play", url, "--env", "kit", input="look\n/quit\n").check_returncode()


def test_check_deletes_what_its_checks_leave() -> None:
    # A server whose /create opens another task than was asked for makes checks end half-way.
    with small_server("create opens the first task") as server:
        assert checked(server.url, "--api-key", KEY, "--only", "P-3.2")[0] == 1
        assert server.sessions == {}
