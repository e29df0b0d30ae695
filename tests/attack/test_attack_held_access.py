"""What an attack from outside found to hold: keys, ownership, paths, origins, tasks by index only."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from ..support.server_process import ServerProcess, server
from ..support.session_api import Api, api_for
from .holding import ANSWER

pytestmark = pytest.mark.process

VAULT = f"{Path(__file__).parent / 'holding.py'}:Vault"
KEYS = ["key-of-alice-1", "key-of-bob-2"]
ALICE, BOB = ({"X-API-Key": key} for key in KEYS)
PROTOCOLS = "openenv,mcp"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    journal = str(tmp_path_factory.mktemp("held") / "journal.db")
    with server(VAULT, api_keys=KEYS, journal=journal, runtime="local", also=PROTOCOLS) as found:
        yield found


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Serves tasks by index only."""
    journal = str(tmp_path_factory.mktemp("closed") / "journal.db")
    with server(VAULT, options=["--index-only"], journal=journal, runtime="local", also=PROTOCOLS) as found:
        yield found


def raw(url: str, line: str, *headers: str, body: str = "") -> tuple[int, str, str]:
    """A request whose first line is sent as it is written here: status, headers and body of the answer."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    head = [line, f"Host: {parts.netloc}", "Connection: close", f"Content-Length: {len(body)}", *headers]
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall(("\r\n".join(head) + "\r\n\r\n" + body).encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    received, _, content = answer.decode(errors="replace").partition("\r\n\r\n")
    return int(received.split(" ", 2)[1]), received, content


# keys

ROUTES = [
    "/vault/tools",
    "/vault/splits",
    "/vault/tasks",
    "/vault/prompt",
    "/vault/call",
    "/create",
    "/list_environments",
    "/environments",
    "/openapi.json",
    "/docs",
    "/metrics",
    "/version",
    "/vault/reset",
    "/vault/state",
    "/vault/mcp",
    "/console/api/server",
    "/console/api/trajectories",
    "/console/api/export",
]


def spellings(route: str) -> list[str]:
    first = route[1]
    doubled = route.replace("/", "//")
    encoded = f"/%{ord(first):02x}{route[2:]}"
    return [
        route,
        route.upper(),
        route.title(),
        f"{route}/",
        f"{route}//",
        doubled,
        f"/{route}",
        f"/.{route}",
        f"/%2e{route}",
        f"/health/..{route}",
        f"/health/%2e%2e{route}",
        f"/health/%2E%2E%2F{route[1:]}",
        f"/console/..{route}",
        f"/console/%2e%2e{route}",
        f"/console/icon.svg/../..{route}",
        f"/ready;{route}",
        f"/health;x=1{route}",
        f"{route};params",
        f"{route}%00",
        f"{route}%20",
        f"{route}.json",
        f"{route}?key={KEYS[0]}",
        f"{route}?X-API-Key={KEYS[0]}&api_key={KEYS[0]}",
        f"{route}#/health",
        encoded,
        route.replace("/", "/%2f"),
        route.replace("/", "\\"),
        f"http://127.0.0.1{route}",
        f"http://other.example{route}",
        f"http://127.0.0.1/health{route}",
    ]


@pytest.mark.conformance("S1")
@pytest.mark.parametrize("route", ROUTES)
def test_no_spelling_of_a_path_gets_in_without_a_key(locked: ServerProcess, route: str) -> None:
    for path in spellings(route):
        for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT"):
            status, head, body = raw(locked.url, f"{method} {path} HTTP/1.1")
            page = "<!doctype html>" in body.lower() or (method == "HEAD" and "text/html" in head)
            assert status in (400, 401, 404, 405) or (status == 200 and page), (
                method,
                path,
                status,
                body[:200],
            )
            assert not (page and status == 200) or "/console" in path, (method, path)
            assert ANSWER not in body and "inputSchema" not in body and "sessions" not in head


@pytest.mark.conformance("S1")
def test_with_a_key_the_same_paths_lead_somewhere(locked: ServerProcess) -> None:
    key = f"X-API-Key: {KEYS[0]}"
    for path in (
        "/vault/tools",
        "/VAULT/tools",
        "/vault/tools/",
        "/vault/tools?x=1",
        "http://127.0.0.1/vault/tools",
    ):
        status, _, body = raw(locked.url, f"GET {path} HTTP/1.1", key)
        assert status == 200 and "echo" in body, path


@pytest.mark.conformance("S1")
def test_a_wrong_key_is_wrong_in_every_header(locked: ServerProcess) -> None:
    for headers in (
        (f"X-API-Key: {KEYS[0]}x",),
        (f"X-API-Key: {KEYS[0]}, {KEYS[1]}",),
        (f"X-API-Key: {KEYS[0]}\x00",),
        ("X-API-Key: wrong", f"Authorization: Bearer {KEYS[0]}"),
        (f"X-API-Key : {KEYS[0]}",),
        (f"X-Forwarded-For: 127.0.0.1\r\nX-Api-Keys: {KEYS[0]}",),
        (f"Cookie: X-API-Key={KEYS[0]}",),
        (f"Authorization: Basic {KEYS[0]}",),
        (f"Authorization: {KEYS[0]}",),
        (f"X-Original-URL: /health\r\nX-Rewrite-URL: /health\r\nX-API-Key2: {KEYS[0]}",),
        ("X-HTTP-Method-Override: GET",),
    ):
        status, _, body = raw(locked.url, "GET /vault/tools HTTP/1.1", *headers)
        assert status in (400, 401) and "echo" not in body, headers


# whose is what


@pytest.mark.conformance("S1")
async def test_nothing_of_a_session_can_be_done_with_another_key(locked: ServerProcess) -> None:
    async with api_for(locked.url) as api:
        mine = Api(api.http, "a-shared-id", **ALICE)
        thief = Api(api.http, "a-shared-id", **BOB)
        await mine.create("vault", answer="mine", question="whose?")
        waiting = asyncio.create_task(mine.call("wait", headers={"Idempotency-Key": "k1"}))
        done = (await mine.call("echo", text="private words")).task_id
        prefixes = ("", "/vault", "/VAULT", "/nothing")
        for prefix in prefixes:
            for path in ("prompt", "messages", "task_tools", "state"):
                answer = await thief.get(f"{prefix}/{path}")
                assert answer.status_code == 404 and "whose?" not in answer.text
            for path, sent in (
                ("ping", None),
                ("call", {"name": "echo", "input": {"text": "x"}}),
                ("call", {"name": "echo", "input": {}, "task_id": done}),
                ("score_group", {"candidates": [], "task_id": done}),
                ("cancel", {"task_id": done}),
                ("step", {"action": {"type": "call_tool", "tool_name": "echo", "arguments": {"text": "x"}}}),
            ):
                answer = await thief.post(f"{prefix}/{path}", sent, **{"Idempotency-Key": "k1"})
                assert answer.status_code == 404 and "private words" not in answer.text, (prefix, path)
            assert (await thief.post(f"{prefix}/delete")).json() == {"sid": "a-shared-id"}
            assert (await thief.post(f"{prefix}/delete_session")).json() == {"sid": "a-shared-id"}
        bodies: list[dict[str, Any]] = [
            {"env_name": "vault", "task_spec": {}},
            {"env_name": "vault", "split": "train", "index": 0},
        ]
        ended = await thief.post("/console/api/sessions/a-shared-id/end")
        assert ended.status_code == 404
        for body in bodies:  # the same id of another key is another session, and shows nothing of the first
            assert (await thief.post("/create", body)).status_code == 200
            assert "whose?" not in (await thief.get("/prompt")).text
            assert (await thief.post("/delete")).json() == {"sid": "a-shared-id"}
        assert not waiting.done() and await mine.ping() == 200
        assert (await mine.get("/prompt")).json()[0]["text"] == "whose?"
        assert (await mine.post("/cancel", **{"Idempotency-Key": "k1"})).json() == {"cancelled": True}
        assert (await waiting).fault == "cancelled"
        await mine.delete()
        assert (await thief.get("/prompt")).status_code == 410  # of the thief's own


@pytest.mark.conformance("S1")
async def test_what_was_recorded_of_a_session_is_not_shown_to_another_key(locked: ServerProcess) -> None:
    async with api_for(locked.url) as api:
        mine = Api(api.http, **ALICE)
        await mine.create("vault", question="recorded for alice")
        await mine.get("/prompt")
        await mine.call("fail", text="failed for alice")
        await mine.delete()
        listed = await api.http.get("/console/api/trajectories", params={"sid": mine.sid}, headers=ALICE)
        (item,) = listed.json()["items"]
        for path in (
            "trajectories",
            f"trajectories/{item['id']}",
            f"trajectories?sid={mine.sid}",
            "trajectories?text=alice",
            f"trajectories?owner={item.get('owner', '')}",
            "trajectories?text=%2A",
            "faults",
            "runs",
            "tasks?environment=vault",
            "export",
            "export?format=jsonl&text=alice",
        ):
            answer = await api.http.get(f"/console/api/{path}", headers=BOB)
            assert "alice" not in answer.text.replace(KEYS[0], ""), path
            assert mine.sid not in answer.text, path


# paths


@pytest.mark.parametrize(
    "path",
    [
        "/console/api/trajectories/../../../../etc/passwd",
        "/console/api/trajectories/..%2f..%2f..%2fetc%2fpasswd",
        "/console/api/trajectories/%2e%2e/server",
        "/console/api/trajectories/1%20OR%201=1",
        "/console/api/trajectories/-1",
        "/console/api/trajectories/99999999999999999999999999",
        "/console/api/trajectories/0x10",
        "/console/api/trajectories/1;2",
        "/console/api/trajectories/１",
        "/console/api/evaluations/../../journal.db",
        "/console/api/evaluations/%00",
        "/console/..%2f..%2fjournal.db",
        "/console/assets/..%2findex.html%00.js",
        "/console/assets/%252e%252e/%252e%252e/face.py",
        "/console/....//....//etc/passwd",
        "/console/assets/..;/..;/face.py",
    ],
)
def test_no_path_of_the_console_leads_to_a_file_or_another_table(locked: ServerProcess, path: str) -> None:
    status, head, body = raw(locked.url, f"GET {path} HTTP/1.1", f"X-API-Key: {KEYS[0]}")
    assert status in (200, 400, 404), (status, body[:200])
    assert status != 200 or "text/html" in head
    assert "root:" not in body and "SQLite format" not in body and "ConsoleMount" not in body
    assert "content-security-policy" in head.lower() or status == 400
    assert "Traceback" not in body


@pytest.mark.parametrize(
    "split", ["../train", "train/../train", "/etc/passwd", "train\x00", "TRAIN", " train", "__class__"]
)
async def test_a_split_is_looked_up_and_nothing_else(locked: ServerProcess, split: str) -> None:
    async with api_for(locked.url, **ALICE) as api:
        for path, more in (
            ("tasks", {}),
            ("task", {"index": 0}),
            ("num_tasks", {}),
            ("task_range", {"start": 0}),
        ):
            answer = await api.http.post(f"/vault/{path}", json={"split": split, **more})
            assert answer.status_code == 400 and ANSWER not in answer.text and "root:" not in answer.text
        created = await api.post("/create", {"env_name": "vault", "split": split, "index": 0})
        assert created.status_code == 400


@pytest.mark.parametrize("index", [-6, 5, 10**30, 1.5, "0", None, True, [0]])
async def test_an_index_is_one_of_the_split(locked: ServerProcess, index: Any) -> None:
    async with api_for(locked.url, **ALICE) as api:
        answer = await api.http.post("/vault/task", json={"split": "train", "index": index})
        assert answer.status_code in (400, 422) or (index in ("0", True) and answer.status_code == 200)


# other pages


@pytest.mark.conformance("S2")
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        "https://127.0.0.1.evil.example",
        "http://localhost.evil.example",
        "file://",
    ],
)
async def test_without_keys_a_page_of_another_origin_learns_nothing(
    closed: ServerProcess, origin: str
) -> None:
    async with httpx.AsyncClient(base_url=closed.url, headers={"Origin": origin}) as http:
        for path in ("server", "trajectories", "export", "live", "faults"):
            answer = await http.get(f"/console/api/{path}")
            assert answer.status_code == 403, path
            assert "access-control-allow-origin" not in answer.headers
        ended = await http.post("/console/api/sessions/x/end")
        assert ended.status_code == 403
        for path in ("/vault/reset", "/vault/step", "/vault/mcp"):
            answer = await http.post(path, json={})
            assert answer.status_code in (401, 403), (path, answer.text)
        preflight = await http.options(
            "/vault/call",
            headers={"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x"},
        )
        assert "access-control-allow-origin" not in preflight.headers


def test_the_policy_of_the_page_allows_nothing_of_others(locked: ServerProcess) -> None:
    for path in ("/console", "/console/live", "/console/api/server", "/console/nothing/at/all"):
        answer = httpx.get(locked.url + path, headers=ALICE)
        policy = dict(
            entry.strip().split(" ", 1)
            for entry in answer.headers["content-security-policy"].split(";")
            if " " in entry.strip()
        )
        assert policy["default-src"] == "'none'"
        assert "unsafe-eval" not in str(policy) and "*" not in str(policy)
        assert policy.get("frame-ancestors") == "'none'" and policy.get("base-uri") in ("'self'", "'none'")
        assert "'unsafe-inline'" not in policy.get("script-src", "")
        assert answer.headers["x-content-type-options"] == "nosniff"


# tasks by index only


@pytest.mark.conformance("S6")
async def test_by_index_only_no_protocol_shows_an_answer_or_takes_a_task(closed: ServerProcess) -> None:
    received = ""
    async with api_for(closed.url) as api:
        for path, more in (("tasks", {}), ("task", {"index": 1}), ("task_range", {"start": 0, "stop": 3})):
            received += (await api.http.post(f"/vault/{path}", json={"split": "train", **more})).text
        played = api.other()
        body = {"env_name": "vault", "split": "train", "index": 2}
        assert (await played.post("/create", body)).status_code == 200
        for path in ("/prompt", "/messages", "/task_tools"):
            received += (await played.get(path)).text
        received += (await played.call("echo", text="x")).response.text
        scored = await played.post(
            "/score_group", {"candidates": [{"messages": [], "metadata": {"reward": 1}}]}
        )
        assert scored.status_code == 200, scored.text
        received += scored.text
        for spec in ({}, {"answer": "mine"}, {"split": "train", "index": 0, "answer": "x"}):
            assert (
                await api.other().post("/create", {"env_name": "vault", "task_spec": spec})
            ).status_code == 400
            for path, data in (
                ("reset", {"task_spec": spec}),
                ("step", {"action": {"type": "list_tools"}, "task_spec": spec}),
            ):
                answer = await api.http.post(f"/vault/{path}", json=data)
                assert answer.status_code >= 400, (path, answer.text)
                received += answer.text
        shown = await api.http.post("/vault/reset", json={"index": 1})
        assert shown.status_code == 200
        received += shown.text
        for path in ("/vault/state", "/vault/schema", "/vault/metadata", "/environments", "/openapi.json"):
            received += (await api.http.get(path)).text
        received += await _over_mcp(api.http)
        await played.delete()
        for path in (
            "server",
            "environments",
            "runs",
            "tasks?environment=vault",
            "faults",
            "trajectories",
            "export",
        ):
            answer = await api.http.get(f"/console/api/{path}")
            received += answer.text
        for item in (await api.http.get("/console/api/trajectories")).json()["items"]:
            received += (await api.http.get(f"/console/api/trajectories/{item['id']}")).text
        found = await api.http.get("/console/api/trajectories", params={"text": ANSWER})
        assert found.json()["items"] == []
    assert "which of 2?" in received and "which of 1?" in received
    assert ANSWER not in received and ANSWER not in closed.everything


async def _over_mcp(http: httpx.AsyncClient) -> str:
    headers = {"Accept": "application/json, text/event-stream"}
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    query: dict[str, str | int] = {"split": "train", "index": 1, "task_spec": json.dumps({"answer": "mine"})}
    began = await http.post("/vault/mcp", json=begin, headers=headers, params=query)
    received = began.text
    if began.status_code == 200 and "Mcp-Session-Id" in began.headers:
        headers["Mcp-Session-Id"] = began.headers["Mcp-Session-Id"]
        for number, method in enumerate(("tools/list", "prompts/list", "resources/list"), 2):
            asked = await http.post(
                "/vault/mcp", json={"jsonrpc": "2.0", "id": number, "method": method}, headers=headers
            )
            received += asked.text
        await http.delete("/vault/mcp", headers=headers)
    return received
