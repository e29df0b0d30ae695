"""A client written from the published text alone: JSON session ids, secrets in the body, no redirects."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from .servers import ServerProcess

pytestmark = [pytest.mark.process, pytest.mark.conformance("C5")]


def stream_result(text: str) -> dict[str, Any]:
    """As the text describes it: named events, whose data add up to the result."""
    pieces, event = [], ""
    for line in text.splitlines():
        if line.startswith("event:"):
            event = line[6:].strip()
        elif line.startswith("data:") and event in ("chunk", "end"):
            pieces.append(line[5:].removeprefix(" "))
    result: dict[str, Any] = json.loads("".join(pieces))
    return result


def play(server: ServerProcess, prefix: str, create: dict[str, Any]) -> dict[str, Any]:
    with httpx.Client(base_url=server.url, follow_redirects=False) as http:
        sid = http.post("/create_session").raise_for_status().json()["sid"]
        headers = {"X-Session-ID": sid}
        created = http.post("/create", json=create, headers=headers).raise_for_status()
        assert created.json() == {"sid": sid}
        http.get(f"{prefix}/prompt", headers=headers).raise_for_status()
        assert http.post("/ping", headers=headers).raise_for_status().json() == {"status": "ok"}
        call = {"name": "echo", "input": {"text": "hello"}}
        answer = http.post(f"{prefix}/call", json=call, headers=headers).raise_for_status()
        http.post("/delete", headers=headers).raise_for_status()
        http.post("/delete_session", headers=headers).raise_for_status()
    return stream_result(answer.text)


@pytest.mark.conformance("P-3.1-create-session-json")
def test_it_plays_an_episode_by_name(orsay_server: ServerProcess) -> None:
    create = {"env_name": "EchoEnvironment", "split": "train", "index": 0, "secrets": {"key": "value"}}
    result = play(orsay_server, "/EchoEnvironment", create)
    assert result["output"]["reward"] == 1.0
    assert result["output"]["finished"] is True


@pytest.mark.conformance("P-3.3-default-environment")
def test_it_plays_an_episode_of_the_default_environment_without_a_redirect(
    orsay_server: ServerProcess,
) -> None:
    result = play(orsay_server, "", {"task_spec": {"id": "own", "target": "hello"}})
    assert result["output"]["reward"] == 1.0


@pytest.mark.conformance("P-3.1-tasks")
def test_it_discovers_without_a_session(orsay_server: ServerProcess) -> None:
    with httpx.Client(base_url=orsay_server.url, follow_redirects=False) as http:
        names = http.get("/list_environments").json()
        assert names[0] == "echoenvironment"
        assert http.get("/splits").json() == [{"name": "train", "type": "train"}]
        listed = http.post("/echoenvironment/tasks", json={"split": "train"}).json()
        assert listed["tasks"][0]["target"] == "hello"
        assert [tool["name"] for tool in http.get("/tools").json()["tools"]] == ["echo"]
