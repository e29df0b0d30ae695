"""Rollouts that the released ``openreward`` logs, kept in the journal of a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..support.engine import needs_engine
from ..support.server_process import ENVIRONMENTS, ServerProcess, server, variables_of
from ..support.servers import ROOT, orsay

openreward = pytest.importorskip("openreward", reason="needs the package openreward")

pytestmark = pytest.mark.process

KEY, OTHER = "the-key-of-a-trainer", "the-key-of-another-trainer"
LIMIT_S = 30.0
LARGE = "a long thought, ä " * 5_000


@pytest.fixture(autouse=True)
def _no_update_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENREWARD_DISABLE_UPDATE_CHECK", "1")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "journal.db"


@pytest.fixture(scope="module")
def served(journal: Path) -> Iterator[ServerProcess]:
    with server(
        f"{ENVIRONMENTS}:Plain", journal=str(journal), runtime="local", api_keys=[KEY, OTHER]
    ) as found:
        yield found


def client(found: ServerProcess, monkeypatch: pytest.MonkeyPatch, kind: str = "OpenReward") -> Any:
    monkeypatch.setenv("OPENREWARD_API_URL", found.url)
    monkeypatch.setenv("OPENREWARD_SESSION_URL", found.url)
    monkeypatch.setenv("OPENREWARD_API_KEY", KEY)
    return getattr(openreward, kind)()


def get(found: ServerProcess, path: str, key: str = KEY, **query: Any) -> httpx.Response:
    url = f"{found.url}/console/api/{path}"
    return httpx.get(url, params=query, headers={"X-API-Key": key}, timeout=LIMIT_S)


def whole(found: ServerProcess, rollout: Any) -> dict[str, Any]:
    """The rollout of the released client, as the server has it."""
    items = get(found, "rollouts", limit=500).json()["items"]
    (summary,) = [each for each in items if each["event"] == rollout.event_id]
    answer = get(found, f"rollouts/{summary['id']}")
    assert answer.status_code == 200, answer.text
    record: dict[str, Any] = answer.json()
    assert summary == {name: record[name] for name in summary}
    return record


def post(found: ServerProcess, *events: dict[str, Any], key: str = KEY) -> httpx.Response:
    url = f"{found.url}/v1/rollouts"
    return httpx.post(url, json={"events": list(events)}, headers={"X-API-Key": key}, timeout=LIMIT_S)


def started(event: str | None = None, **more: Any) -> dict[str, Any]:
    event = event or str(uuid.uuid4())
    return {"eventType": "rollout", "eventId": event, "timestamp": 1_000, "runName": "by hand", **more}


def message(rollout: str, index: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "eventType": "message",
        "eventId": str(uuid.uuid4()),
        "rolloutEventId": rollout,
        "timestamp": 2_000,
        "index": index,
        "type": "user_message",
        "content": "hello",
        **more,
    }


@pytest.mark.parametrize("kind", ["OpenReward", "AsyncOpenReward"])
def test_a_rollout_of_the_released_client_is_read_again(
    kind: str, served: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = client(served, monkeypatch, kind)
    api.run_info = openreward.models.RunInfo(model_name="a/model", run_type="train", lr=1e-6)
    rollout = api.rollout.create(
        run_name=f"run of {kind}",
        rollout_name="first",
        environment="Owner/plain",
        variant="hard",
        split="train",
        metadata={"seed": 7},
        task_spec={"id": 3},
    )
    rollout.log_openai_completions({"role": "system", "content": "Be brief."})
    rollout.log_openai_completions({"role": "user", "content": "Say it."})
    rollout.log(openreward.ReasoningItem(content=LARGE, summary="short"))
    rollout.log(openreward.ToolCall(name="say", content='{"text": "it"}', call_id="c1"))
    info = openreward.models.RolloutInfo(task_index=3, temperature=0.7)
    result = openreward.ToolResult(content="it", call_id="c1")
    rollout.log(result, reward=0.25, metadata={"took": 1}, rollout_info=info)
    rollout.log_anthropic_message({"role": "assistant", "content": "Said."}, reward=1.0, is_finished=True)
    api.rollout.close()

    found = whole(served, rollout)
    wanted = {
        "kind": "rollout",
        "run": f"run of {kind}",
        "name": "first",
        "environment": "Owner/plain",
        "variant": "hard",
        "split": "train",
        "metadata": {"seed": 7},
        "task_spec": {"id": 3},
        "run_info": {"model_name": "a/model", "run_type": "train", "lr": 1e-6},
        "info": {"task_index": 3, "temperature": 0.7},
        "messages": 6,
        "reward": 1.0,
        "reward_sum": 1.25,
        "finished": True,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["client"].startswith("openreward")
    assert [(each["number"], each["kind"], each["content"]) for each in found["items"]] == [
        (0, "system_message", "Be brief."),
        (1, "user_message", "Say it."),
        (2, "reasoning", LARGE),
        (3, "tool_call", '{"text": "it"}'),
        (4, "tool_result", "it"),
        (5, "assistant_message", "Said."),
    ]
    assert found["items"][2]["summary"] == "short"
    assert [(each["name"], each["call"]) for each in found["items"][3:5]] == [("say", "c1"), (None, "c1")]
    assert found["items"][4]["metadata"] == {"took": 1}


async def test_many_rollouts_at_once_lose_nothing(
    served: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = client(served, monkeypatch, "AsyncOpenReward")
    several, logs = 12, api.rollout  # the client makes it when it is first asked for, also twice at once

    def play(number: int) -> Any:
        rollout = logs.create(run_name="at once", rollout_name=str(number))
        for index in range(40):
            text = f"message {index} of {number} " + "x" * (5_000 if index % 10 == 0 else 0)
            rollout.log(openreward.UserMessage(content=text), reward=float(number))
        return rollout

    with ThreadPoolExecutor(several) as pool:
        loop = asyncio.get_running_loop()
        rollouts = await asyncio.gather(*(loop.run_in_executor(pool, play, n) for n in range(several)))
    await asyncio.to_thread(logs.close)
    for number, rollout in enumerate(rollouts):
        found = whole(served, rollout)
        assert [each["number"] for each in found["items"]] == list(range(40))
        texts = [each["content"] for each in found["items"]]
        assert all(text.startswith(f"message {n} of {number} ") for n, text in enumerate(texts))
        assert found["reward_sum"] == 40 * number


def test_pages_follow_one_another_and_show_one_owner(served: ServerProcess) -> None:
    events = [started(runName="paged", step=number) for number in range(5)]
    for event in events:
        assert post(served, event, key=OTHER).status_code == 200
    seen: list[str] = []
    before: dict[str, Any] = {}
    while True:
        page = get(served, "rollouts", OTHER, run="paged", limit=2, **before).json()
        seen += [each["event"] for each in page["items"]]
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert seen == [each["eventId"] for each in reversed(events)]
    assert [each["step"] for each in get(served, "rollouts", OTHER, step=3).json()["items"]] == [3]
    assert get(served, "rollouts", KEY, run="paged").json()["items"] == []
    (one,) = get(served, "rollouts", OTHER, run="paged", limit=1).json()["items"]
    assert get(served, f"rollouts/{one['id']}", OTHER).status_code == 200
    assert get(served, f"rollouts/{one['id']}", KEY).status_code == 404
    assert get(served, "rollouts", OTHER, before="nothing").status_code == 422


def test_a_rollout_of_one_key_is_not_appended_to_with_another(served: ServerProcess) -> None:
    event = started()
    assert post(served, event).json() == {"stored": 1}
    refused = post(served, message(event["eventId"]), key=OTHER)
    assert refused.status_code == 404 and event["eventId"] in refused.json()["detail"]
    assert refused.headers["x-orsay-code"] == "unknown_rollout"
    # The same id with another key is another rollout.
    assert post(served, {**event, "runName": "of another"}, key=OTHER).status_code == 200
    assert post(served, message(event["eventId"], content="mine"), key=OTHER).status_code == 200
    mine = [each for each in get(served, "rollouts").json()["items"] if each["event"] == event["eventId"]]
    assert [(each["run"], each["messages"]) for each in mine] == [("by hand", 0)]
    assert httpx.post(f"{served.url}/v1/rollouts", json={"events": []}).status_code == 401


def test_what_is_sent_again_is_there_once(served: ServerProcess) -> None:
    event = started(runName="again")
    rollout = event["eventId"]
    told = {
        "eventType": "rollout_update",
        "eventId": rollout,
        "timestamp": 3_000,
        "rollout_info": {"task_index": 1},
    }
    events = [message(rollout, 0, reward=0.5), message(rollout, 1), told]
    for _ in range(2):
        assert post(served, event).status_code == 200
        assert post(served, *events).json() == {"stored": 3}
    assert post(served, {**told, "timestamp": 4_000, "rollout_info": {"top_k": 5}}).status_code == 200
    (summary,) = get(served, "rollouts", run="again").json()["items"]
    found = get(served, f"rollouts/{summary['id']}").json()
    assert (found["messages"], found["reward_sum"]) == (2, 0.5)
    assert found["info"] == {"task_index": 1, "top_k": 5}


def test_of_a_batch_what_can_be_stored_is_stored(served: ServerProcess) -> None:
    event = started(runName="with a stranger")
    refused = post(served, event, message(event["eventId"]), message("nobody"), message("nobody", 1))
    assert refused.status_code == 404
    assert "no rollout nobody of" in refused.json()["detail"] and "2 other" in refused.json()["detail"]
    (summary,) = get(served, "rollouts", run="with a stranger").json()["items"]
    assert summary["messages"] == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"no JSON", "Invalid JSON"),
        (b"[]", "an object"),
        (b"{}", "required"),
        (b'{"events":[{"eventType":"nonsense"}]}', "eventType"),
        (json.dumps({"events": [started(timestamp=-1)]}).encode(), "greater than or equal"),
        (json.dumps({"events": [started("x" * 300)]}).encode(), "at most 200"),
        (json.dumps({"events": [message("r", type="shout")]}).encode(), "tool_call"),
        (json.dumps({"events": [message("r", index=2**60)]}).encode(), "less than or equal"),
        (json.dumps({"events": [started()] * 1_001}).encode(), "at most 1000"),
        (b'{"events":' + b"[" * 100_000, "Invalid JSON"),
    ],
)
def test_a_malformed_body_is_told(body: bytes, said: str, served: ServerProcess) -> None:
    headers = {"X-API-Key": KEY}
    answer = httpx.post(f"{served.url}/v1/rollouts", content=body, headers=headers, timeout=LIMIT_S)
    assert answer.status_code == 422, answer.text
    assert said in answer.text
    assert httpx.get(f"{served.url}/v1/rollouts", headers=headers).status_code == 405


def test_odd_values_are_stored(served: ServerProcess) -> None:
    event = started(runName="odd", metadata={"NaN": float("nan"), "nul": "\0"})
    odd = message(event["eventId"], content="half \ud800 nul \0", reward=float("nan"), name="n" * 5_000)
    text = json.dumps({"events": [event, odd]})
    assert "NaN" in text and "\\ud800" in text
    headers = {"X-API-Key": KEY}
    answer = httpx.post(f"{served.url}/v1/rollouts", content=text, headers=headers, timeout=LIMIT_S)
    assert answer.status_code == 200, answer.text
    (summary,) = get(served, "rollouts", run="odd").json()["items"]
    found = get(served, f"rollouts/{summary['id']}").json()
    assert found["metadata"] == {"NaN": None, "nul": "\ufffd"}
    (item,) = found["items"]
    assert item["content"] == "half ? nul \ufffd" and item["reward"] is None and len(item["name"]) == 1_000


def test_neither_keys_nor_secrets_of_sessions_are_stored(served: ServerProcess, journal: Path) -> None:
    secret, session_key = "a-secret-of-the-episode", "orsay-session-abcdefghijklmnop"
    with httpx.Client(base_url=served.url, headers={"X-API-Key": KEY}, timeout=LIMIT_S) as http:
        sid = http.post("/create_session").json()["sid"]
        http.headers["X-Session-ID"] = sid
        secrets = base64.b64encode(json.dumps({"token": {"value": secret}}).encode()).decode()
        body = {"env_name": "plain", "split": "train", "index": 0}
        opened = http.post("/create", json=body, headers={"X-Secrets": secrets})
        assert opened.status_code == 200, opened.text
        assert http.post("/delete").status_code == 200
    event = started(runName=f"run {secret}", metadata={"env": {secret: [session_key, KEY]}})
    rollout = event["eventId"]
    shown = f"printenv: {secret} {session_key} {KEY}"
    assert post(served, event, message(rollout, content=shown, name=secret)).status_code == 200
    call = json.dumps({"command": f"curl -H {secret}"})
    called = message(rollout, 1, type="tool_call", content=call, metadata={"a": secret})
    assert post(served, called).status_code == 200
    (summary,) = [each for each in get(served, "rollouts").json()["items"] if each["event"] == rollout]
    found = get(served, f"rollouts/{summary['id']}")
    assert found.json()["run"] == "run [secret]"
    assert found.json()["items"][0]["content"] == "printenv: [secret] [secret] [secret]"
    for folder_file in journal.parent.iterdir():
        content = folder_file.read_bytes()
        assert secret.encode() not in content and session_key.encode() not in content
        assert KEY.encode() not in content


def test_without_a_journal_the_client_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with server(f"{ENVIRONMENTS}:Plain", runtime="local") as found:
        answer = post(found, started())
        assert answer.status_code == 409 and "ORSAY_JOURNAL" in answer.json()["detail"]
        assert answer.headers["x-orsay-code"] == "journal_off"
        api = client(found, monkeypatch)
        with caplog.at_level(logging.WARNING):
            began = time.monotonic()
            rollout = api.rollout.create(run_name="nowhere")
            rollout.log(openreward.UserMessage(content="hello"))
            api.rollout.close()
        assert rollout._rollouts_disabled
        assert time.monotonic() - began < 15  # four retries alone take 7.5 s


def test_a_rollout_goes_on_after_its_server_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {
        "journal": str(tmp_path / "journal.db"),
        "runtime": "local",
        "api_keys": [KEY],
    }
    with server(f"{ENVIRONMENTS}:Plain", **settings) as first:
        event = started()
        rollout = event["eventId"]
        assert post(first, event, message(rollout)).status_code == 200
        first.signal(signal.SIGKILL)
        first.wait()
        port = first.url.rpartition(":")[2]
    with server(f"{ENVIRONMENTS}:Plain", options=("--port", port), **settings) as second:
        answer = post(second, message(rollout, 1))
        assert answer.status_code == 200, (answer.text, second.everything)
        (summary,) = get(second, "rollouts").json()["items"]
        assert summary["event"] == rollout and summary["messages"] == 2


def test_rollouts_are_exported_as_their_own_kind(tmp_path: Path) -> None:
    place = str(tmp_path / "journal.db")
    with server(f"{ENVIRONMENTS}:Plain", journal=place, runtime="local") as found:
        for reward in (0.0, 1.0):
            event = started(runName="exported", environment="o/e", step=4, task_spec={"id": 1})
            rollout = event["eventId"]
            talk = [
                message(rollout, 0, type="system_message", content="Be brief."),
                message(rollout, 1, content="Say it."),
                message(rollout, 2, type="reasoning", content="Hm."),
                message(rollout, 3, type="assistant_message", content="I will."),
                message(rollout, 4, type="tool_call", content='{"text":"it"}', name="say", callId="c"),
                message(rollout, 5, type="tool_call", content="broken", name="say", callId="d"),
                message(rollout, 6, type="tool_result", content="it", callId="c"),
                message(
                    rollout, 7, type="assistant_message", content="Done.", reward=reward, isFinished=True
                ),
            ]
            assert post(found, event, *talk).status_code == 200
    file = tmp_path / "out.jsonl"
    common = ("--journal", place, "--kind", "rollouts")

    def export(*arguments: str) -> Any:
        return orsay("journal", "export", *arguments, *common)

    done = export(str(file), "--reward-min", "0.5", "--run", "exported", "--finished")
    assert done.returncode == 0 and "Exported 1 of 2 rollouts" in done.stderr, done.stderr
    (record,) = map(json.loads, file.read_text().splitlines())
    assert record["kind"] == "rollout" and record["reward"] == 1.0 and record["rewards"] == [1.0]
    assert (record["step"], record["environment"], record["task_spec"]) == (4, "o/e", {"id": 1})

    def call(id: str, arguments: Any) -> dict[str, Any]:
        return {"id": id, "type": "function", "function": {"name": "say", "arguments": arguments}}

    assert record["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Say it."},
        {
            "role": "assistant",
            "content": "I will.",
            "reasoning_content": "Hm.",
            "tool_calls": [call("c", {"text": "it"}), call("d", {"arguments": "broken"})],
        },
        {"role": "tool", "tool_call_id": "c", "name": "say", "content": "it"},
        {"role": "assistant", "content": "Done."},
    ]
    done = export("-", "--full")
    assert [len(json.loads(line)["items"]) for line in done.stdout.splitlines()] == [8, 8]
    assert export(str(tmp_path / "out.parquet")).returncode == 2
    assert export("-", "--text", "it").returncode == 2
    assert orsay("journal", "stats", "--journal", place, "--kind", "rollouts").returncode == 2
    stats = json.loads(orsay("journal", "stats", "--journal", place, "--json").stdout)
    assert (stats["rollouts"], stats["rollout_messages"], stats["sessions"]) == (2, 16, 0)
    assert "2 logged rollouts with 16 messages" in orsay("journal", "stats", "--journal", place).stdout
    assert "1 rollouts" in orsay("journal", "prune", "--journal", place, "--keep", "1").stdout
    stats = json.loads(orsay("journal", "stats", "--journal", place, "--json").stdout)
    assert (stats["rollouts"], stats["rollout_messages"]) == (1, 8)


def test_the_example_of_the_documentation_logs_one(served: ServerProcess) -> None:
    variables = {
        "OPENREWARD_API_URL": served.url,
        "OPENREWARD_SESSION_URL": served.url,
        "OPENREWARD_API_KEY": OTHER,
        "OPENREWARD_DISABLE_UPDATE_CHECK": "1",
    }
    example = ROOT / "docs" / "examples" / "journal" / "log_rollout.py"
    done = subprocess.run(
        [sys.executable, str(example)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = get(served, "rollouts", OTHER, run="grpo-3").json()["items"]
    assert (found["messages"], found["reward"], found["finished"]) == (2, 1.0, True)


@needs_engine
def test_a_service_of_sandboxes_alone_keeps_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"journal": str(tmp_path / "journal.db"), "api_keys": [KEY]}
    options = ["--port", "0", "--backend", "docker"]
    process = ServerProcess(
        options, variables_of(settings), verb=("sandboxes", "serve"), imported=("docker",)
    )
    try:
        process.wait_for_url()
        api = client(process, monkeypatch, "AsyncOpenReward")
        rollout = api.rollout.create(run_name="alone")
        rollout.log(openreward.UserMessage(content="hello"))
        api.rollout.close()
        assert whole(process, rollout)["messages"] == 1
    finally:
        process.end()
