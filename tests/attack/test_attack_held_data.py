"""What an attack from outside found to hold: searches, log, texts, rewards, metrics, shared journals."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from orsay_eval import EvaluationReport, compare
from orsay_eval.summary import summarize

from ..support.evaluated import episodes_of
from ..support.gateways import reached, under
from ..support.scripted_server import Reply, Request, ScriptedServer, ors
from ..support.server_process import ServerProcess, server
from ..support.session_api import Api, api_for
from ..support.waiting import until
from .holding import ANSWER

pytestmark = pytest.mark.process

VAULT = f"{Path(__file__).parent / 'holding.py'}:Vault"
CLIENT = Path(__file__).parent / "repeat_by_openreward.py"
API = "/console/api"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("held") / "journal.db"


@pytest.fixture(scope="module")
def served(journal: Path) -> Iterator[ServerProcess]:
    with server(VAULT, journal=str(journal), runtime="local") as found:
        yield found


@pytest.fixture(scope="module")
def played(served: ServerProcess) -> list[str]:
    """Ids of sessions whose labels and texts look like wildcards and quotes."""

    async def play() -> list[str]:
        sids = []
        async with api_for(served.url) as http:
            for label in ("plain", "100%", "a_b", "aXb", "it's", 'say "so"', "x*", "or 1=1", "back\\slash"):
                api = http.other()
                header = {"X-Orsay-Run": json.dumps({"run": label})}
                body = {"env_name": "vault", "task_spec": {"question": f"kestrel {label}"}}
                assert (await api.post("/create", body, **header)).status_code == 200
                await api.get("/prompt")
                await api.call("echo", text=f"osprey {label}")
                await api.delete()
                sids.append(api.sid)
        return sids

    return asyncio.run(play())


# searches


async def found(http: Any, **query: str) -> list[str]:
    answer = await http.get(f"{API}/trajectories", params={"limit": "200", **query})
    assert answer.status_code == 200, answer.text
    return [item["sid"] for item in answer.json()["items"]]


ODD = [
    "%", "_", "100%", "a_b", "*", "x*", "'", "''", "' OR '1'='1", '"', "or 1=1", "NEAR(kestrel osprey)",
    ");--", "\\", "?",
]  # fmt: skip


@pytest.mark.parametrize("name", ["run", "env", "task", "sid", "split", "owner"])
@pytest.mark.parametrize("value", ODD)
async def test_a_filter_means_its_text_and_no_pattern(
    served: ServerProcess, played: list[str], name: str, value: str
) -> None:
    async with api_for(served.url) as api:
        answer = await api.http.get(f"{API}/trajectories", params={name: value, "limit": "200"})
        assert answer.status_code in (200, 422), answer.text
        if answer.status_code == 200:
            items = answer.json()["items"]
            assert [item["run"] for item in items] == ([value] if name == "run" and items else [])
            assert name != "run" or (value in ("100%", "a_b", "x*", "or 1=1")) == bool(items)


SEARCHES = [
    *ODD, "kestrel NEAR osprey", "text:kestrel", "kestrel -plain", "((", '"""', "kestrel AND", "{a}: b",
]  # fmt: skip


@pytest.mark.parametrize("text", SEARCHES)
async def test_a_search_is_words_whatever_is_in_it(
    served: ServerProcess, played: list[str], text: str
) -> None:
    async with api_for(served.url) as api:
        sids = await found(api.http, text=text)
        assert set(sids) <= set(played) and len(sids) < len(played)
        for plain in ("kestrel", "^kestrel", "-kestrel", "(kestrel"):  # a word is a word
            assert set(await found(api.http, text=plain)) == set(played)
        exported = await api.http.get(f"{API}/export", params={"text": text})
        assert exported.status_code == 200 and len(exported.text.splitlines()) == len(sids)
    assert "OperationalError" not in served.everything and "syntax error" not in served.everything


@pytest.mark.parametrize("name", ["text", "run", "sid", "task"])
async def test_a_zero_in_a_search_is_refused_or_finds_nothing(
    served: ServerProcess, played: list[str], name: str
) -> None:
    async with api_for(served.url) as api:
        answer = await api.http.get(f"{API}/trajectories?{name}=plain%00kestrel")
        assert answer.status_code == 422 or answer.json()["items"] == []


# the log


async def test_no_text_of_a_client_makes_a_line_of_the_log(served: ServerProcess) -> None:
    forged = '\n{"event": "forged", "level": "info"}\r\n{"event": "forged"}\u2028forged\x85'
    async with api_for(served.url) as api:
        session = api.other()
        await session.create("vault", question=forged)
        reply = await session.call("fail", text=forged)
        assert reply.events[-1].event == "error"
        await session.call(f"tool{forged}")
        await session.post("/call", {"name": "echo", "input": {forged: forged}})
        await session.delete()
        await api.http.get("/vault/%0A%7B%22event%22%3A%22forged%22%7D/x")
        await api.http.post("/vault/tasks", json={"split": forged})
        labels = {"X-Orsay-Run": json.dumps({"run": forged}), "User-Agent": 'x {"event": "forged"}'}
        odd = Api(api.http, "sid", **labels)
        await odd.create("vault")
        await odd.call("fail", text=forged)
        await odd.delete()
        await until(lambda: any(line["session"] == odd.sid for line in served.events("session_ended")))
    assert served.events("fault")
    for line in list(served.log):
        assert json.loads(line)["event"] != "forged"  # each line is one object


async def test_on_a_terminal_no_label_makes_a_line_either() -> None:
    forged = "\n12:00:00 [info     ] forged\r\n\x1b[31mforged"
    with server(VAULT, options=["--log-format", "console"], runtime="local") as found:
        async with api_for(found.url) as api:
            session = api.other(**{"X-Orsay-Run": json.dumps({"run": forged})})
            await session.create("vault")
            await session.call(f"fail{forged}")
            await session.call("pay", reward=forged)
            await session.delete()
        await until(lambda: "session_ended" in found.everything)
        assert not any(line.startswith(("12:00:00", "forged")) for line in found.everything.splitlines())
        assert "\x1b" not in found.everything


# texts and rewards


async def test_odd_texts_come_back_byte_for_byte_through_the_unmodified_client(served: ServerProcess) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(CLIENT), served.url, stdout=pipe, stderr=pipe
    )
    async with asyncio.timeout(100):
        out, err = await process.communicate()
    assert out, err.decode()
    seen = json.loads(out.decode().splitlines()[-1])
    assert seen == {"texts": 16, "wrong": [], "prompt": "which of 0?"}


@pytest.mark.conformance("D3")
@pytest.mark.parametrize("digits", ["nan", "NaN", "1e400", "-1e400", "inf", "-Infinity"])
async def test_no_tool_gives_a_reward_that_is_no_finite_number(
    served: ServerProcess, journal: Path, digits: str
) -> None:
    async with api_for(served.url) as api:
        await api.create("vault")
        reply = await api.call("overpay", digits=digits)
        assert reply.fault == "bad_reward" and "'overpay'" in reply.error
        await api.delete()
        (item,) = (await api.http.get(f"{API}/trajectories", params={"sid": api.sid})).json()["items"]
        assert item["reward"] is None and item["reward_sum"] is None


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity"])
async def test_no_client_sends_a_number_that_json_does_not_have(served: ServerProcess, number: str) -> None:
    async with api_for(served.url) as api:
        await api.create("vault")
        headers = {"X-Session-ID": api.sid, "Content-Type": "application/json"}
        body = f'{{"name": "pay", "input": {{"reward": {number}}}}}'
        answer = await api.http.post("/call", content=body, headers=headers)
        received = answer.text
        assert '"reward":null' not in received
        assert answer.status_code in (400, 422) or "event: error" in received or '"ok":false' in received
        candidates = f'{{"candidates": [{{"messages": [], "metadata": {{"reward": {number}}}}}]}}'
        scored = await api.http.post("/score_group", content=candidates, headers=headers)
        assert scored.status_code in (400, 422) or "event: error" in scored.text
        await api.delete()


@pytest.mark.conformance("D3")
@pytest.mark.parametrize("number", ["NaN", "1e400", "-Infinity", "1" + "0" * 400])
async def test_no_server_behind_brings_a_reward_that_is_none(number: str) -> None:
    async def call(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", "c" * 32)
        if request.json()["name"] != "setup":
            output = f'{{"blocks":[],"reward":{number},"finished":false}}'
            await reply.event("end", f'{{"ok":true,"output":{output}}}')
        else:
            await reply.event("error", "unknown task_id")
        await reply.end()

    async def version(request: Request, reply: Reply) -> None:
        await reply.json({"version": "1"})

    async def score(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", "d" * 32)
        await reply.event("end", f'{{"scores":[{{"reward":1.0}},{{"reward":{number}}}]}}')
        await reply.end()

    async def tools(request: Request, reply: Reply) -> None:
        listed = [{"name": "act", "description": "", "input_schema": None}]
        await reply.json({"tools": listed, "supports_score_group": True})

    handler = under("wild", ors(call=call, others={"/version": version, "/score_group": score}))

    async def handle(request: Request, reply: Reply) -> None:
        await (tools if request.path == "/wild/tools" else handler)(request, reply)

    async with ScriptedServer(handle) as behind, reached(behind.url) as (_, api):
        await api.create("wild")
        reply = await api.call("act")
        assert reply.fault == "bad_reward" and "'act'" in reply.error and behind.url[7:] in reply.error
        scored = await api.post("/score_group", {"candidates": [{"messages": []}]})
        assert "event: fault" in scored.text and "bad_reward" in scored.text and "score_group" in scored.text
        await api.delete()


# metrics


def _report(rewards: list[list[float | None]]) -> EvaluationReport:
    episodes = episodes_of(rewards)
    summary = summarize(episodes, n_tasks=len(rewards), k=2, success=1.0)
    named = {"name": "n", "run": "n", "environment": "e", "split": "test", "model": "m"}
    more = {"settings": {}, "started_at": 1.0, "summary": summary, "episodes": episodes}
    return EvaluationReport.model_validate({**named, **more})


def test_metrics_of_an_evaluation_are_those_of_paper_and_pencil() -> None:
    """Means of tasks 1, 2, 0, 2: 5/4; squares of the distances 11/4, so the standard error is
    sqrt(11/4/3)/2, and Student's t for three degrees of freedom is 3.18245."""
    summary = _report([[2.0, 0.0], [2.0, 2.0], [0.0, 0.0], [2.0, None]]).summary
    mean = summary.mean_reward
    assert mean is not None and mean.low is not None and mean.high is not None
    assert mean.mean == pytest.approx(1.25)
    assert mean.high - mean.mean == pytest.approx(3.18245 * (11 / 4 / 3) ** 0.5 / 2, abs=1e-4)
    assert mean.mean - mean.low == pytest.approx(mean.high - mean.mean)
    assert {each.k: each.mean for each in summary.pass_at_k} == pytest.approx({1: 0.625, 2: 2 / 3})
    assert summary.faults == {"worker_lost": 1} and summary.success is not None
    assert summary.success.mean == pytest.approx(0.625)


def test_a_comparison_is_that_of_paper_and_pencil() -> None:
    """Differences of tasks 1/2, 0, 1/2, -1/2 and 1: of the 16 ways to give four of them a sign, those whose
    sum is at least 3/2 away from zero are counted."""
    one = _report([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    two = _report([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    made = compare(one, two)
    assert made.tasks == 5 and made.left_out == 0
    assert made.reward.difference == pytest.approx(0.3)
    sums = [a / 2 + b / 2 + c / 2 + d for a in (1, -1) for b in (1, -1) for c in (1, -1) for d in (1, -1)]
    assert made.reward.p == pytest.approx(sum(abs(each) >= 1.5 for each in sums) / 16)
    assert [task for task, _, _ in made.better] == ["test:4", "test:0", "test:2"]
    assert [task for task, _, _ in made.worse] == ["test:3"]


# journals


async def test_two_servers_write_into_one_file_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    async def play(url: str, run: str) -> None:
        async with api_for(url) as http:
            for number in range(10):
                api = http.other(**{"X-Orsay-Run": run})
                await api.create("vault", number=number)
                for call in range(5):
                    assert (await api.call("pay", reward=float(call))).result["output"]["reward"] == call
                await api.call("echo", text="x" * 20_000)
                await api.delete()

    async def shown(api: Api, run: str) -> list[dict[str, Any]]:
        answer = await api.http.get(f"{API}/trajectories", params={"run": run, "limit": "100"})
        items: list[dict[str, Any]] = answer.json()["items"]
        return [item for item in items if item["ended_at"] is not None]

    with (
        server(VAULT, journal=str(path), runtime="local") as one,
        server(VAULT, journal=str(path), runtime="local") as two,
    ):
        await asyncio.gather(*(play(each.url, run) for each, run in 2 * ((one, "a"), (two, "b"))))
        async with api_for(one.url) as here, api_for(two.url) as there:
            for api in (here, there):  # each shows what both have played
                for run in "ab":
                    while len(items := await shown(api, run)) < 20:  # the other one's come a moment later
                        await asyncio.sleep(0.05)
                    assert len(items) == 20 and {item["reward_sum"] for item in items} == {10.0}
    with closing(sqlite3.connect(path)) as connection:
        calls = Counter(session for (session,) in connection.execute("SELECT session FROM calls"))
        assert len(calls) == 40 and set(calls.values()) == {6}
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    errors = [line for line in [*one.log, *two.log] if json.loads(line)["level"] == "error"]
    assert not any("journal_" in line for line in errors)


async def test_an_export_holds_what_the_client_was_sent(served: ServerProcess) -> None:
    async with api_for(served.url) as api:
        session = api.other(**{"X-Orsay-Run": "exported"})
        await session.create("vault", question="\u2028 odd\r\n\x00 question")
        prompt = (await session.get("/prompt")).json()[0]["text"]
        sent = await session.call("echo", text="odd \u2028\r\n answer")
        await session.call("pay", reward=0.1 + 0.2)
        await session.delete()
        answer = await api.http.get(f"{API}/export", params={"run": "exported", "format": "jsonl"})
        (line,) = answer.content.decode().split("\n")[:-1]
        record = json.loads(line)
        texts = json.dumps(record, ensure_ascii=False)
        assert json.dumps(sent.text, ensure_ascii=False)[1:-1] in texts
        assert json.dumps(prompt, ensure_ascii=False)[1:-1] in texts
        assert 0.1 + 0.2 in json.loads(line).values() or str(0.1 + 0.2) in texts
        assert ANSWER not in texts
