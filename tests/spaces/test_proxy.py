"""Behind a proxy that does TLS: nothing leads back to http, streams flow, pages work under a prefix."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from orsay.settings import Settings
from orsay_client import Client
from orsay_protocol.sse import Decoder
from pydantic import ValidationError

from ..interop.player import player
from ..support.nginx import Proxy, nginx
from ..support.server_process import ENVIRONMENTS, ServerProcess, server

pytestmark = pytest.mark.process

LIMIT_S = 20.0
OPEN = ("/health", "/ready", "/version", "/list_environments", "/splits", "/docs", "/redoc", "/openapi.json")


@pytest.fixture(scope="module")
def behind() -> Iterator[ServerProcess]:
    with server(
        f"{ENVIRONMENTS}:Scripted", f"{ENVIRONMENTS}:Plain", log_level="debug", log_format="json"
    ) as found:
        yield found


@pytest.fixture(scope="module")
def proxy(behind: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with nginx(behind.url, tmp_path_factory.mktemp("nginx")) as found:
        yield found


@pytest.fixture(params=["", "/envs"], ids=["root", "prefix"])
def http(proxy: Proxy, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=proxy.url + request.param, verify=proxy.trust(), timeout=LIMIT_S) as found:
        yield found


@pytest.mark.parametrize("slash", ["", "/"])
def test_every_path_is_answered_directly_with_and_without_a_slash(http: httpx.Client, slash: str) -> None:
    for path in OPEN:
        answer = http.get(path + slash)
        assert answer.status_code == 200, (path, answer.status_code, answer.headers.get("location"))
    for path in ("/tasks", "/scripted/tasks", "/num_tasks"):
        answer = http.post(path + slash, json={"split": "train"})
        assert answer.status_code == 200, (path, answer.text)
    for path in (
        "/tasks",
        "/nowhere",
        "/scripted/nowhere",
        "/scripted",
        "//evil.example",
        "/docs/oauth2-redirect",
    ):
        answer = http.get(path + slash)
        assert 400 <= answer.status_code < 500 and "location" not in answer.headers, path


@pytest.mark.parametrize("page", ["docs", "docs/", "redoc", "redoc/"])
def test_the_pages_find_their_document_where_they_are(http: httpx.Client, page: str) -> None:
    answer = http.get(page)
    names = set(re.findall(r"""["']([^"']*openapi\.json)["']""", answer.text))
    assert len(names) == 1, answer.text
    document = http.get(urljoin(str(answer.url), names.pop()))
    (place,) = document.json()["servers"]
    base = urljoin(str(document.url), place["url"]).rstrip("/")
    assert base == str(http.base_url).rstrip("/")
    assert http.get(f"{base}/list_environments").json() == ["scripted", "plain"]
    assert "http://" not in document.text.replace("http://www.w3.org", "")


def test_a_stream_is_not_held_back(http: httpx.Client, tmp_path: Path) -> None:
    """The first event of a call comes through while its tool waits for this very test."""
    session = {"X-Session-ID": f"stream-{time.monotonic_ns()}"}
    assert http.post("/create", json={"task_spec": {}}, headers=session).status_code == 200
    gate = tmp_path / "gate"
    body = {"name": "add_later", "input": {"gate": str(gate)}}
    decoder, events = Decoder(), []
    with http.stream("POST", "/scripted/call", json=body, headers=session) as answer:
        for chunk in answer.iter_raw():
            events += decoder.feed(chunk)
            if events and not gate.exists():
                assert [event.event for event in events] == ["task_id"]
                gate.write_text("")
    assert events[-1].event == "end"
    assert json.loads("".join(event.data for event in events[1:]))["output"]["reward"] == 1.0
    assert http.post("/delete", headers=session).status_code == 200


def test_our_client_plays_through_it(proxy: Proxy) -> None:
    for base in (proxy.url, f"{proxy.url}/envs"):
        with (
            Client(base, verify=proxy.trust()) as client,
            client.environment("plain").session(split="train", index=0) as session,
        ):
            assert session.prompt()
            output = session.call("echo", {"text": "through"})
            assert output.blocks[0].text == "through"  # type: ignore[union-attr]  # the environment's text


@pytest.mark.venv
@pytest.mark.timeout(600)
def test_the_released_client_plays_through_it(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(proxy.certificate))
    with player("openreward", "0.1.167", proxy.url) as played:
        seen = played.play("episode", "my/scripted", variant="scripted", calls=[["say", {"text": "through"}]])
    (output,) = seen["outputs"]
    assert output["type"] is None and output["value"]["blocks"][0]["text"] == "through"


def test_a_websocket_passes_through_it(tmp_path: Path) -> None:
    connect = pytest.importorskip("websockets.sync.client", reason="needs the extra 'openenv'").connect
    with server(ENVIRONMENTS + ":Scripted", also="openenv") as found, nginx(found.url, tmp_path) as proxy:
        address = proxy.url.replace("https", "wss") + "/scripted/ws"
        with connect(address, ssl=proxy.trust(), proxy=None, open_timeout=LIMIT_S) as connection:
            connection.send(json.dumps({"type": "reset", "data": {"split": "train", "index": 2}}))
            answer = json.loads(connection.recv(timeout=LIMIT_S))
    assert answer["type"] == "observation" and "Task 2" in json.dumps(answer)


@pytest.mark.parametrize("proxies", ["nginx", "10.0.0.1/8", "10.0.0.1, ,10.0.0.2", "10.0.0.1;10.0.0.2"])
def test_what_is_no_address_of_a_proxy_is_refused(proxies: str) -> None:
    with pytest.raises(ValidationError, match="name addresses and networks of proxies"):
        Settings(trusted_proxies=proxies)


@pytest.mark.parametrize(
    ("trusted", "seen"),
    [
        ("127.0.0.1,::1", "203.0.113.9"),  # the default
        ("127.0.0.0/8", "203.0.113.9"),
        ("*", "198.51.100.7"),  # whatever the request says
        ("10.0.0.0/8", "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
def test_an_address_is_believed_from_trusted_proxies_only(trusted: str, seen: str) -> None:
    """The first of the header can be anybody's invention; what a trusted proxy adds behind it cannot."""
    with server(
        ENVIRONMENTS + ":Plain",
        runtime="local",
        api_keys=["the-key"],
        trusted_proxies=trusted,
        log_format="json",
    ) as found:
        headers = {"X-Forwarded-For": "198.51.100.7, 203.0.113.9", "X-Forwarded-Proto": "https"}
        answer = httpx.get(f"{found.url}/list_environments", headers=headers)
        assert answer.status_code == 401
    (line,) = found.events("key_refused")
    assert (line["client"], line["path"]) == (seen, "/list_environments")


def test_an_idle_connection_is_kept_as_long_as_the_setting_says() -> None:
    with (
        server(ENVIRONMENTS + ":Plain", runtime="local", keep_alive_s=1) as short,
        server(ENVIRONMENTS + ":Plain", runtime="local") as usual,
    ):
        connections = [socket.create_connection(_place(each.url), timeout=LIMIT_S) for each in (short, usual)]
        for connection in connections:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b'{"status":"ok"}' in connection.recv(65536)
        assert connections[0].recv(1) == b"", "the server does not end it"
        connections[1].sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b'{"status":"ok"}' in connections[1].recv(65536)
        for connection in connections:
            connection.close()


def _place(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)
