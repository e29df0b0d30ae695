"""The console's API about what was played, on a real server with a journal that others write into as well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay.journal.export import Export, Recipe
from orsay.journal.read import query
from orsay.journal.read.filters import Filter
from sqlalchemy import Engine, create_engine

from ..journal.fill import START, Fill, Filled, fill
from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import api_for
from .api import ALICE, BOB, KEYS, LIMIT_S

pytestmark = pytest.mark.process

NOWHERE = {"environment": "nowhere"}
RUN = Fill().runs[1]
REPORT: dict[str, Any] = {
    "name": "after a day",
    "run": "eval 1",
    "environment": "plain",
    "split": "test",
    "model": "m/1",
    "settings": {"temperature": 0.5},
    "started_at": 1_780_000_000.0,
    "summary": {"n_tasks": 1, "k": 2, "episodes": 2, "planned": 2, "scored": 2},
    "episodes": [{"task": "test:0", "split": "test", "index": 0, "attempt": 0, "reward": 1.0}],
}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "journal.db"


@pytest.fixture(scope="module")
def served(journal: Path) -> Iterator[ServerProcess]:
    with server(
        f"{ENVIRONMENTS}:Scripted", f"{ENVIRONMENTS}:Plain", journal=str(journal), runtime="local"
    ) as found:
        answer = httpx.get(f"{found.url}/console/api/runs", timeout=LIMIT_S)  # the tables are there then
        assert answer.status_code == 200, answer.text
        yield found


@pytest.fixture(scope="module")
def engine(served: ServerProcess, journal: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{journal}")
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def filled(engine: Engine) -> Filled:
    with engine.begin() as connection:
        return fill(connection, Fill(sessions=120, tasks=4, open=2))


def get(served: ServerProcess, path: str, headers: dict[str, str] | None = None, **query: Any) -> Any:
    answer = httpx.get(f"{served.url}/console/api/{path}", params=query, headers=headers, timeout=LIMIT_S)
    assert answer.status_code == 200, (answer.status_code, answer.text)
    return answer.json()


def refusal(served: ServerProcess, path: str, **query: Any) -> httpx.Response:
    return httpx.get(f"{served.url}/console/api/{path}", params=query, timeout=LIMIT_S)


def ids(page: Any) -> list[str]:
    return [each["id"] for each in page["items"]]


async def play(api: Any, **labels: Any) -> None:
    """One episode of two calls, with its prompt read, labelled."""
    label = {"X-Orsay-Run": json.dumps(labels)} if labels else {}
    created = await api.post("/create", {"env_name": "scripted", "task_spec": {"colour": "teal"}}, **label)
    assert created.status_code == 200
    await api.get("/prompt")
    await api.call("say", text="a kingfisher")
    await api.call("pay", reward="0.5")
    await api.delete()


async def test_what_was_played_can_be_read_at_once(served: ServerProcess) -> None:
    async with api_for(served.url) as api, asyncio.timeout(LIMIT_S):
        await play(api, run="a run/1", step=7, rollout="r-1", model="m")
        page = (await api.http.get("/console/api/trajectories", params={"run": "a run/1"})).json()
        (summary,) = page["items"]
        whole = (await api.http.get(f"/console/api/trajectories/{summary['id']}")).json()
    assert (summary["sid"], summary["environment"], summary["step"]) == (api.sid, "Scripted", 7)
    assert summary["reward"] == 0.5 and summary["calls"] == 2 and summary["end_reason"] == "Session deleted"
    assert page["next"] is None and summary.items() <= whole.items()
    assert whole["labels"] == {"model": "m"} and whole["request"]["task_spec"] == {"colour": "teal"}
    assert whole["prompt"][0]["type"] == "text"
    assert [step["name"] for step in whole["steps"]] == ["say", "pay"]
    assert whole["steps"][0]["input"] == {"text": "a kingfisher"}
    assert whole["steps"][0]["blocks"] == [{"type": "text", "text": "a kingfisher"}]


async def test_a_live_session_names_its_trajectory(served: ServerProcess) -> None:
    async with api_for(served.url) as api, asyncio.timeout(LIMIT_S):
        await api.create()
        async with api.http.stream("GET", "/console/api/live") as response:
            line = await anext(line async for line in response.aiter_lines() if line.startswith("data: "))
        (live,) = [each for each in json.loads(line[6:])["list"] if each["sid"] == api.sid]
        whole = (await api.http.get(f"/console/api/trajectories/{live['id']}")).json()
        await api.delete()
    assert whole["sid"] == api.sid and whole["ended_at"] is None and whole["task"] == live["task"]


async def test_a_session_is_found_by_what_its_client_called_it(served: ServerProcess) -> None:
    async with api_for(served.url) as api, asyncio.timeout(LIMIT_S):
        await api.create()
        await api.delete()
    (found,) = get(served, "trajectories", sid=api.sid)["items"]
    assert (found["sid"], found["environment"]) == (api.sid, "Scripted")
    assert get(served, "trajectories", sid=api.sid[:-1])["items"] == []
    assert get(served, "trajectories", sid=f"{api.sid}%")["items"] == []
    assert get(served, "trajectories", sid=api.sid, environment="guess")["items"] == []


def test_the_journal_reports_its_state(served: ServerProcess) -> None:
    assert get(served, "server")["journal"] == {
        "state": "ok",
        "reason": "",
        "lag_s": pytest.approx(0, abs=LIMIT_S),
        "waiting": 0,
        "lost": 0,
    }


def test_pages_follow_each_other_to_the_end(served: ServerProcess, filled: Filled) -> None:
    found: list[str] = []
    before: dict[str, Any] = {}
    while True:
        page = get(served, "trajectories", run=RUN, limit=7, **before)
        found += ids(page)
        if page["next"] is None:
            break
        assert len(page["items"]) == 7
        before = {"before": page["next"]}
    assert found == [str(row["id"]) for row in reversed(filled.rows) if row["run"] == RUN]


@pytest.mark.parametrize(
    "asked",
    [
        {"environment": "guess"},
        {"run": RUN, "split": "test"},
        {"task": "train:3"},
        {"step": 4},
        {"reward_min": 0.5},
        {"reward_max": 0.5, "finished": "true"},
        {"finished": "false"},
        {"fault": "any"},
        {"fault": "none", "environment": "doors"},
        {"fault": "tool_error"},
        {"since": 1_780_000_300.0, "until": 1_780_000_500.0},
        NOWHERE,
        {"run": "", "split": "", "text": ""},
    ],
)
def test_each_filter_reaches_the_journal(
    served: ServerProcess, engine: Engine, filled: Filled, asked: dict[str, Any]
) -> None:
    page = get(served, "trajectories", limit=500, **asked)
    wanted: dict[str, Any] = {name: value for name, value in asked.items() if value != ""}
    if "finished" in wanted:
        wanted["finished"] = wanted["finished"] == "true"
    with engine.connect() as connection:
        same = query.trajectories(connection, Filter(**wanted), 500)
    assert ids(page) == [each.id for each in same.items] and bool(ids(page)) == (asked != NOWHERE)
    assert page == same.model_dump(mode="json") | {"unindexed": page["unindexed"]}


def test_words_find_messages(served: ServerProcess, filled: Filled) -> None:
    page = get(served, "trajectories", text="kingfisher")
    while page["unindexed"]:
        page = get(served, "trajectories", text="kingfisher")
    assert len(page["items"]) == 1 and page["items"][0]["run"] == "a run/1"
    assert get(served, "trajectories", text="kingfisher", environment="guess")["items"] == []


def test_runs_and_their_metrics_are_those_of_the_journal(
    served: ServerProcess, engine: Engine, filled: Filled
) -> None:
    with engine.connect() as connection:
        (run,) = [each for each in query.runs(connection) if each.run == RUN]
        series = query.series(connection, RUN, environment="guess", success=0.5)
        tasks = query.task_map(connection, run=RUN, split="train")
    assert run.model_dump(mode="json") in get(served, "runs")
    assert len(get(served, "runs", limit=1)) == 1
    assert get(served, "runs/series", run=RUN, environment="guess", success=0.5) == series.model_dump(
        mode="json"
    )
    assert get(served, "tasks", run=RUN, split="train") == [each.model_dump(mode="json") for each in tasks]


@pytest.mark.parametrize(
    ("path", "asked", "where"),
    [
        ("trajectories", {"limit": 0}, "limit"),
        ("trajectories", {"limit": "many"}, "limit"),
        ("trajectories", {"before": "-1"}, "before"),
        ("trajectories", {"before": 2**63}, "before"),
        ("trajectories", {"reward_min": "nan"}, "reward_min"),
        ("trajectories", {"reward_max": "inf"}, "reward_max"),
        ("trajectories", {"finished": "perhaps"}, "finished"),
        ("trajectories", {"step": 2**40}, "step"),
        ("trajectories", {"run": "a\0b"}, "run"),
        ("trajectories", {"text": "x" * 1001}, "text"),
        ("trajectories", {"colour": "red"}, "colour"),
        ("runs", {"limit": "1e9"}, "limit"),
        ("runs/series", {}, "run"),
        ("runs/series", {"run": "x", "success": "high"}, "success"),
        ("export", {"format": "csv"}, "format"),
        ("tasks", {"enviroment": "guess"}, "enviroment"),
        ("evaluations", {"before": "x"}, "before"),
    ],
)
def test_a_query_that_does_not_fit_says_where(
    served: ServerProcess, path: str, asked: dict[str, Any], where: str
) -> None:
    answer = refusal(served, path, **asked)
    assert answer.status_code == 422
    assert [problem["loc"] for problem in answer.json()["detail"]] == [["query", where]]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["trajectories/1", "evaluations/1", f"trajectories/{2**63}", "evaluations/" + "9" * 99]
)
def test_what_is_not_there_is_not_found(served: ServerProcess, path: str) -> None:
    answer = refusal(served, path)
    assert answer.status_code == 404 and answer.headers["x-orsay-code"] == "unknown_id"


# the file


def test_the_file_holds_what_the_filters_let_through(
    served: ServerProcess, engine: Engine, filled: Filled
) -> None:
    with engine.connect() as connection:
        export = Export(Recipe(wanted=Filter(run=RUN, reward_min=0.5)))
        lines = b""
        while not export.done:
            lines += export.lines(connection)
    url = f"{served.url}/console/api/export"
    asked: dict[str, Any] = {"run": RUN, "reward_min": 0.5, "format": "jsonl"}
    for coding in ("gzip", "identity"):
        answer = httpx.get(url, params=asked, headers={"Accept-Encoding": coding}, timeout=LIMIT_S)
        assert answer.status_code == 200 and answer.headers.get("content-encoding", "identity") == coding
        assert answer.content == lines
    assert len(lines.splitlines()) > 3
    assert answer.headers["content-disposition"] == 'attachment; filename="trajectories.jsonl"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    first = json.loads(lines.splitlines()[0])
    assert first["messages"][0]["role"] == "user" and first["reward"] >= 0.5
    whole = httpx.get(url, params={**asked, "full": "true"}, timeout=LIMIT_S).text.splitlines()
    assert json.loads(whole[0]) == get(served, f"trajectories/{first['id']}")


def test_an_empty_file_is_a_file(served: ServerProcess) -> None:
    answer = httpx.get(f"{served.url}/console/api/export", params={"run": "never"}, timeout=LIMIT_S)
    assert answer.status_code == 200 and answer.content == b""


def test_a_long_file_comes_in_parts_and_may_be_broken_off(
    served: ServerProcess, engine: Engine, filled: Filled
) -> None:
    with engine.begin() as connection:
        fill(connection, Fill(sessions=1_500, runs=("long",), unlabelled=0, faults=0, start=START + 86_400))
    url = f"{served.url}/console/api/export"
    headers = {"Accept-Encoding": "identity"}
    whole = httpx.get(url, params={"run": "long"}, headers=headers, timeout=LIMIT_S)
    assert whole.headers["transfer-encoding"] == "chunked" and len(whole.text.splitlines()) == 1_500
    with httpx.stream("GET", url, params={"run": "long"}, headers=headers, timeout=LIMIT_S) as answer:
        assert next(answer.iter_lines())
    assert get(served, "server")["journal"]["state"] == "ok"
    assert not served.events("request_failed") and not served.events("export_broke_off")


# evaluations


def save(served: ServerProcess, report: dict[str, Any], **headers: str) -> httpx.Response:
    url = f"{served.url}/console/api/evaluations"
    return httpx.post(url, json=report, headers=headers, timeout=LIMIT_S)


def test_an_evaluation_is_kept_whole_and_listed_without_its_episodes(served: ServerProcess) -> None:
    id = save(served, REPORT).json()["id"]
    whole = get(served, f"evaluations/{id}")
    assert whole["episodes"][0]["reward"] == 1.0 and whole["settings"] == REPORT["settings"]
    assert whole["id"] == id and whole["summary"]["planned"] == 2
    (listed,) = [each for each in get(served, "evaluations") if each["id"] == id]
    assert listed["model"] == "m/1" and listed["summary"]["k"] == 2 and "episodes" not in listed


def test_a_report_of_the_same_evaluation_takes_the_place_of_the_earlier_one(served: ServerProcess) -> None:
    first = save(served, {**REPORT, "name": "resumed"}).json()["id"]
    again = save(served, {**REPORT, "name": "resumed", "ended_at": 1_780_000_009.0}).json()["id"]
    other = save(served, {**REPORT, "name": "resumed", "started_at": 1_780_000_001.0}).json()["id"]
    assert first == again != other
    assert get(served, f"evaluations/{first}")["ended_at"] == 1_780_000_009.0
    assert get(served, "evaluations", limit=1)[0]["id"] == other
    assert first in [each["id"] for each in get(served, "evaluations", before=other)]


def test_a_report_that_does_not_fit_is_refused(served: ServerProcess) -> None:
    answer = save(served, {**REPORT, "started_at": "yesterday"})
    assert answer.status_code == 422 and answer.json()["detail"][0]["loc"] == ["body", "started_at"]
    url = f"{served.url}/console/api/evaluations"
    assert httpx.post(url, content=b"{", timeout=LIMIT_S).status_code == 422


# who may see it


async def play_as(served: ServerProcess, headers: dict[str, str], run: str) -> None:
    async with api_for(served.url, **headers) as api, asyncio.timeout(LIMIT_S):
        await play(api, run=run)


def test_a_key_sees_what_it_played_itself_and_nothing_else(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"api_keys": KEYS, "journal": str(tmp_path / "journal.db"), "runtime": "local"}
    with server(f"{ENVIRONMENTS}:Scripted", **settings) as found:
        asyncio.run(play_as(found, ALICE, "hers"))
        asyncio.run(play_as(found, BOB, "his"))
        hers, his = save(found, REPORT, **ALICE).json()["id"], save(found, REPORT, **BOB).json()["id"]
        assert hers != his
        for headers, others, run, other, mine in (
            (ALICE, BOB, "hers", "his", hers),
            (BOB, ALICE, "his", "hers", his),
        ):
            (item,) = get(found, "trajectories", headers)["items"]
            assert item["run"] == run
            assert get(found, "trajectories", headers, run=other)["items"] == []
            assert get(found, "trajectories", headers, sid=item["sid"])["items"] == [item]
            assert get(found, "trajectories", others, sid=item["sid"])["items"] == []
            assert get(found, "trajectories", headers, text="kingfisher")["items"] == [item]
            assert [each["run"] for each in get(found, "runs", headers)] == [run]
            url = f"{found.url}/console/api/export"
            lines = httpx.get(url, headers=headers, timeout=LIMIT_S).text.splitlines()
            assert [json.loads(line)["run"] for line in lines] == [run]
            assert get(found, "runs/series", headers, run=other)["points"] == []
            assert [each["n"] for each in get(found, "tasks", headers)] == [1]
            assert get(found, "tasks", headers, run=other) == []
            assert [each["id"] for each in get(found, "evaluations", headers)] == [mine]
            for path in (f"trajectories/{item['id']}", f"evaluations/{mine}"):
                url = f"{found.url}/console/api/{path}"
                assert httpx.get(url, headers=headers).status_code == 200
                assert httpx.get(url, headers=others).status_code == 404
        assert KEYS[0] not in found.everything


async def test_secrets_are_in_no_answer(served: ServerProcess) -> None:
    async with api_for(served.url) as api, asyncio.timeout(LIMIT_S):
        body = {"env_name": "scripted", "task_spec": {}, "secrets": {"TOKEN": "do-not-show-me"}}
        created = await api.post("/create", body, **{"X-Orsay-Run": "with secrets"})
        assert created.status_code == 200
        await api.call("say", text="it is do-not-show-me")
        await api.call("secret")
        seen = await api.http.get("/console/api/trajectories", params={"run": "with secrets"})
        id = seen.json()["items"][0]["id"]
        whole = await api.http.get(f"/console/api/trajectories/{id}")
        faults = await api.http.get("/console/api/faults")
        await api.delete()
    assert len(whole.json()["steps"]) == 2
    assert "do-not-show-me" not in seen.text + whole.text + faults.text


async def fail(served: ServerProcess) -> None:
    async with api_for(served.url, **ALICE) as api, asyncio.timeout(LIMIT_S):
        await api.create()
        await api.get("/prompt")
        assert (await api.call("do", how="ValueError")).fault == "tool_error"
        await api.call("win")
        await api.delete()
        body = {"env_name": "scripted", "task_spec": {"constructor": "ValueError"}}
        assert (await api.other().post("/create", body)).status_code == 500


@pytest.mark.parametrize("detail", ["exception", "id"])
def test_exceptions_are_shown_as_in_answers_to_calls(tmp_path: Path, detail: str) -> None:
    settings: dict[str, Any] = {"api_keys": KEYS, "journal": str(tmp_path / "journal.db"), "runtime": "local"}
    with server(f"{ENVIRONMENTS}:Scripted", error_detail=detail, **settings) as found:
        asyncio.run(fail(found))
        unopened, failed = get(found, "trajectories", ALICE)["items"]
        step, _ = get(found, f"trajectories/{failed['id']}", ALICE)["steps"]
        url = f"{found.url}/console/api/export"
        files = [
            httpx.get(url, params={"faults": "true", "full": full}, headers=ALICE, timeout=LIMIT_S).text
            for full in ("true", "false")
        ]
    assert step["fault"] == "tool_error" and unopened["fault"] and failed["end_reason"] == "Session deleted"
    reported = (step["message"], unopened["end_reason"])
    assert ["no such door" in text for text in reported] == [detail == "exception"] * 2
    assert [len(file.splitlines()) for file in files] == [2, 1]
    assert ["no such door" in file for file in files] == [detail == "exception"] * 2
    assert detail == "exception" or step["fault_id"] in step["message"]


# when it cannot be read


def test_a_journal_that_is_down_is_reported_and_does_no_other_harm(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with server(
        f"{ENVIRONMENTS}:Plain", runtime="local", journal=str(tmp_path / "file" / "journal.db")
    ) as found:
        answer = refusal(found, "trajectories")
        assert answer.status_code == 503 and answer.headers["x-orsay-code"] == "journal_down"
        assert answer.headers["retry-after"] and str(tmp_path) in answer.json()["detail"]
        assert save(found, REPORT).status_code == 503
        state = get(found, "server")["journal"]
        assert state["state"] == "trouble" and state["reason"]
        assert get(found, "environments")[0]["name"] == "Plain"
