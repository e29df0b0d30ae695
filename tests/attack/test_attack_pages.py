"""Web pages that try to play on a server without keys, from the browser of somebody who can reach it.

A page can have its own name lead to this machine (DNS rebinding); it cannot choose what Host says then. Or it
sends requests from where it is, and cannot choose what Origin says.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay.cli import main
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.waiting import until_true

pytestmark = pytest.mark.process

LIMIT_S = 30.0
KEY = "a-key-that-no-page-knows"
EVIL = "evil.example.com"
WIDE: dict[str, Any] = {"host": "0.0.0.0", "allow_anonymous": True, "console": "on", "also": "openenv,mcp"}
SID = {"X-Session-ID": "of-a-page"}


@pytest.fixture(scope="module")
def local() -> Iterator[ServerProcess]:
    """On loopback, without keys, with everything that it can serve."""
    with server(f"{ENVIRONMENTS}:Scripted", also="openenv,mcp") as found:
        yield found


@pytest.fixture(scope="module")
def wide() -> Iterator[ServerProcess]:
    """Open to anyone, as in a container."""
    with server(f"{ENVIRONMENTS}:Scripted", **WIDE) as found:
        yield found


def port_of(served: ServerProcess) -> int:
    return int(served.url.rpartition(":")[2])


def say(served: ServerProcess, request: bytes) -> tuple[int, str]:
    """Status and text of the answer to exactly these bytes."""
    with socket.create_connection(("127.0.0.1", port_of(served)), timeout=LIMIT_S) as connection:
        connection.sendall(request)
        found = b""
        while part := connection.recv(65536):
            found += part
    status = int(found.split(b" ", 2)[1])
    return status, found.partition(b"\r\n\r\n")[2].decode()


def ask(
    served: ServerProcess,
    path: str = "/tools",
    *,
    method: str = "GET",
    body: bytes = b"",
    target: str | None = None,
    version: str = "1.1",
    headers: tuple[tuple[str, str], ...],
) -> tuple[int, str]:
    lines = [f"{method} {target or path} HTTP/{version}", *(f"{name}: {value}" for name, value in headers)]
    lines += [f"Content-Length: {len(body)}", "Connection: close"]
    return say(served, "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)


def ask_as(served: ServerProcess, host: str, path: str = "/tools", **more: str) -> tuple[int, str]:
    return ask(served, path, headers=(("Host", host), *more.items()))


# Host


CLOSED: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/create", {"env_name": "scripted", "task_spec": {}}),
    ("POST", "/scripted/create", {"env_name": "scripted", "task_spec": {}}),
    ("POST", "/call", {"name": "say", "input": {"text": "x"}}),
    ("POST", "/scripted/call/", {"name": "say", "input": {"text": "x"}}),
    ("POST", "/ping", None),
    ("POST", "/delete", None),
    ("POST", "/create_session", None),
    ("GET", "/prompt", None),
    ("GET", "/task_tools", None),
    ("GET", "/tools", None),
    ("GET", "/list_environments", None),
    ("POST", "/scripted/tasks", {"split": "train"}),
    ("GET", "/docs", None),
    ("GET", "/redoc", None),
    ("GET", "/openapi.json", None),
    ("GET", "/metrics", None),
    ("GET", "/console/api/server", None),
    ("GET", "/console/api/live", None),
    ("GET", "/state", None),
    ("POST", "/reset", {}),
    ("POST", "/step", {"action": {}}),
    ("GET", "/schema", None),
    ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize"}),
    ("GET", "/mcp", None),
    ("GET", "/nonsense", None),
    ("PUT", "/call", None),
)


@pytest.mark.conformance("S8")
@pytest.mark.parametrize(("method", "path", "body"), CLOSED)
def test_at_a_foreign_name_no_route_answers(local: ServerProcess, method: str, path: str, body: Any) -> None:
    content = b"" if body is None else json.dumps(body).encode()
    common = (*SID.items(), ("Content-Type", "application/json"))
    for headers in (
        (("Host", f"{EVIL}:{port_of(local)}"), ("Origin", f"http://{EVIL}:{port_of(local)}")),
        (("Host", EVIL),),
        (("Host", "127.0.0.1"), ("Origin", f"http://{EVIL}")),
        (("Host", "localhost"), ("Origin", "null")),
    ):
        status, text = ask(local, path, method=method, body=content, headers=(*headers, *common))
        assert status == 403, (headers, text)
        detail = json.loads(text)["detail"]
        assert "ORSAY_API_KEYS" in detail
        assert ("ORSAY_ALLOWED_HOSTS" in detail) is (headers[0][1] not in ("127.0.0.1", "localhost"))


@pytest.mark.conformance("S8")
def test_no_session_begins_for_a_foreign_page(local: ServerProcess) -> None:
    body = json.dumps({"env_name": "scripted", "task_spec": {}}).encode()
    for headers in ({"Host": EVIL}, {"Host": "localhost", "Origin": f"https://{EVIL}"}):
        all_headers = (*headers.items(), *SID.items(), ("Content-Type", "text/plain"))
        assert ask(local, "/create", method="POST", body=body, headers=all_headers)[0] == 403
    assert httpx.post(f"{local.url}/ping", headers=SID).status_code == 404


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8080",
        "127.8.9.1:1",
        "127.0.0.1.",
        "localhost",
        "LocalHost:8080",
        "localhost.:8080",
        "orsay.localhost",
        "[::1]",
        "[::1]:8080",
        "[0:0:0:0:0:0:0:1]:8080",
        "[::ffff:127.0.0.1]",
        "[::FFFF:7f00:1]:80",
        socket.gethostname().upper(),
        f"{socket.gethostname()}:8080",
        "",
        # what leads here from a container or a virtual machine, and what no name can be rebound to
        "10.0.2.2",
        "10.0.0.7:8080",
        "[::2]",
        "[::ffff:10.0.0.7]",
        "host.docker.internal:8080",
        "host.containers.internal",
    ],
)
def test_every_name_of_this_machine_is_answered(local: ServerProcess, host: str) -> None:
    assert ask_as(local, host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        EVIL,
        "localhost.evil.com",
        "127.0.0.1.nip.io",
        "127.0.0.1.evil.com:8080",
        "evil-localhost",
        "xlocalhost",
        ".localhost",
        "localhost..",
        "127.0.0.1:80@evil.com",
        "evil.com@127.0.0.1",
        "user:pass@127.0.0.1:8080",
        "127.0.0.1/",
        "127.0.0.1:8080:8080",
        "127.0.0.1:x",
        "127.0.0.1, evil.com",
        "127.0.0.1 evil.com",
        "evil.com#127.0.0.1",
        "evil.com?.localhost",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "[::1",
        "::1",
        "[::1]x",
        "[v1.127.0.0.1]",
        "server",
        "server:8080",
        "box.local",
        "0.0.0.0",  # a page reaches this machine by it, and the browser does not say that it is another's
        "0.0.0.0:8080",
        "[::]:8080",
        "internal",
        "orsay.internal",
        "orsay.internal.evil.com",
        "l\xf6calhost",
        "*",
        "*.localhost",
    ],
)
def test_nothing_else_passes_for_this_machine(local: ServerProcess, host: str) -> None:
    assert ask_as(local, host)[0] == 403


def test_what_a_proxy_could_say_of_the_name_is_not_believed(local: ServerProcess) -> None:
    for name in ("X-Forwarded-Host", "X-Original-Host", "X-Host", "Forwarded"):
        value = "host=localhost" if name == "Forwarded" else "localhost"
        assert ask_as(local, EVIL, **{name: value})[0] == 403
        assert ask_as(local, "localhost", **{name: EVIL})[0] == 200


def test_two_names_at_once_are_refused(local: ServerProcess) -> None:
    for names in (("localhost", EVIL), (EVIL, "localhost"), ("localhost", "localhost")):
        assert ask(local, headers=tuple(("Host", name) for name in names))[0] == 400
    origins = (("Origin", "http://localhost"), ("Origin", f"http://{EVIL}"))
    for pair in (origins, origins[::-1]):
        assert ask(local, headers=(("Host", "localhost"), *pair))[0] == 400


def test_a_whole_address_as_the_target_does_not_hide_the_name(local: ServerProcess) -> None:
    for target in (f"http://{EVIL}/tools", "http://127.0.0.1/tools"):
        assert ask(local, target=target, headers=(("Host", EVIL),))[0] == 403


def test_who_sends_no_name_is_no_browser(local: ServerProcess) -> None:
    assert ask(local, version="1.0", headers=())[0] == 200
    assert ask(local, version="1.0", headers=(("Origin", f"http://{EVIL}"),))[0] == 403


def test_what_needs_no_key_needs_no_name_either(local: ServerProcess) -> None:
    """Probes of balancers come by any name; nothing there is anybody's."""
    for path in ("/health", "/ready", "/console", "/console/icon.svg"):
        assert ask_as(local, EVIL, path)[0] == 200


def test_refusals_are_counted_and_the_first_one_is_logged() -> None:
    with server(f"{ENVIRONMENTS}:Scripted") as fresh:
        assert ask_as(fresh, "logged.example.com", "/list_environments")[0] == 403
        for number in range(20):
            assert ask_as(fresh, f"{number}.example.com", "/" + 300 * "x")[0] == 403
        lines = httpx.get(f"{fresh.url}/metrics").text.splitlines()
        assert "orsay_pages_refused_total 21.0" in lines
    (line,) = fresh.events("page_refused")
    assert (line["host"], line["path"], line["times"]) == ("logged.example.com", "/list_environments", 1)
    assert line["method"] == "GET" and line["client"] == "127.0.0.1"


def test_a_logged_path_is_cut(wide: ServerProcess) -> None:
    assert ask_as(wide, "first.example.com", "/" + 300 * "x")[0] == 403
    until_true(lambda: wide.events("page_refused"))
    assert all(len(line["path"]) <= 100 for line in wide.events("page_refused"))


def test_a_long_name_is_not_repeated_whole(local: ServerProcess) -> None:
    status, text = ask_as(local, "x" * 20_000 + ".com")
    assert status == 403 and len(text) < 1_000


# wider than loopback


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0:8080",
        "10.0.0.7:8080",
        "192.168.1.5",
        "[fe80::1]:8080",
        "8.8.8.8",
        "server:8080",
        "my_project-server-1:8080",
        "box.local",
        "orsay.default.svc.cluster.local:8080",
        "host.docker.internal",
        "ip-10-0-0-7.ec2.internal",
        "nas.home.arpa",
        "box.test",
        "localhost",
    ],
)
def test_an_open_server_answers_at_names_that_no_public_page_has(wide: ServerProcess, host: str) -> None:
    assert ask_as(wide, host)[0] == 200


@pytest.mark.parametrize(
    "host", [EVIL, "127.0.0.1.nip.io", "10.0.0.7.evil.com", "local", "x.svc", "evil.local.com", "0177.0.0.1"]
)
def test_an_open_server_answers_at_no_public_name(wide: ServerProcess, host: str) -> None:
    assert ask_as(wide, host)[0] == (200 if host == "local" else 403)  # one word is no public name
    assert ask_as(wide, host, "/console/api/server")[0] == (200 if host == "local" else 403)


def test_an_open_server_refuses_pages_of_its_neighbours(wide: ServerProcess) -> None:
    for origin in ("http://10.0.0.8", "http://other", "http://box.local", f"http://{EVIL}"):
        assert ask_as(wide, "10.0.0.7:8080", Origin=origin)[0] == 403
    assert ask_as(wide, "10.0.0.7:8080", Origin="http://10.0.0.7:8080")[0] == 200


# Origin


def test_pages_of_the_server_and_of_this_machine_pass(local: ServerProcess) -> None:
    for origin in (
        local.url,
        "http://localhost:5173",
        "https://localhost",
        "http://127.0.0.1:3000",
        "http://[::1]:3000",
        "http://app.localhost:3000",
        f"http://{socket.gethostname()}:8080",
    ):
        assert ask_as(local, "localhost:8080", Origin=origin)[0] == 200, origin


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "file://",
        f"http://{EVIL}",
        "http://localhost.evil.com",
        "http://localhost@evil.com",
        "http://evil.com#localhost",
        "http://127.0.0.1.nip.io",
        "http://10.0.0.7",
        "http://2130706433",
        "localhost",
        "//localhost",
        "http://localhost evil.com",
        "chrome-extension://abcdefghijklmnop",
        "x",
    ],
)
def test_other_pages_do_not(local: ServerProcess, origin: str) -> None:
    body = json.dumps({"env_name": "scripted", "task_spec": {}}).encode()
    headers = (("Host", "localhost"), ("Origin", origin), ("Content-Type", "text/plain"), *SID.items())
    assert ask(local, "/create", method="POST", body=body, headers=headers)[0] == 403
    assert ask(local, "/tools", headers=headers)[0] == 403


def test_what_a_page_embeds_is_not_sent_to_it(local: ServerProcess) -> None:
    """An image or a script of another site: the browser sends no Origin, and says so in another header."""
    embeds = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    follows = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    typed = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path in ("/tools", "/metrics", "/console/api/server"):
        assert ask_as(local, "localhost", path, **embeds)[0] == 403
        for headers in (follows, own, typed):
            assert ask_as(local, "localhost", path, **headers)[0] == 200


@pytest.mark.conformance("S8")
def test_a_websocket_opens_for_no_foreign_page(local: ServerProcess) -> None:
    url = local.url.replace("http", "ws") + "/ws"
    for headers in ({"Host": EVIL}, {"Origin": f"http://{EVIL}"}, {"Origin": "null"}):
        assert status_of(url, headers) == 403
    for headers in ({}, {"Origin": local.url}, {"Origin": "http://localhost:3000"}):
        assert status_of(url, headers) == 101


def status_of(url: str, headers: Mapping[str, str]) -> int:
    host = headers.get("Host")
    port = int(url.rpartition(":")[2].partition("/")[0])
    target = url if host is None else url.replace("127.0.0.1", host)
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as connection:
        try:
            more = {name: value for name, value in headers.items() if name != "Host"}
            with connect(target, sock=connection, additional_headers=more, open_timeout=LIMIT_S):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code


# settings


def test_named_hosts_and_pages_are_let_in() -> None:
    settings: dict[str, Any] = {
        "allowed_hosts": "orsay.example.org, *.envs.example.org",
        "allowed_origins": "https://lab.example.org,http://*.pages.example.org:8000,chrome-extension://abc",
    }
    with server(f"{ENVIRONMENTS}:Plain", runtime="local", **settings) as own:
        for host, status in (
            ("orsay.example.org", 200),
            ("Orsay.Example.ORG.:443", 200),
            ("a.envs.example.org", 200),
            ("a.b.envs.example.org:8443", 200),
            ("envs.example.org", 403),
            ("aenvs.example.org", 403),
            ("x.orsay.example.org", 403),
            ("orsay.example.org.evil.com", 403),
        ):
            assert ask_as(own, host)[0] == status, host
        for origin, status in (
            ("https://orsay.example.org", 200),
            ("https://orsay.example.org:8443", 200),
            ("https://lab.example.org", 200),
            ("http://lab.example.org", 403),
            ("https://lab.example.org:444", 403),
            ("http://a.pages.example.org:8000", 200),
            ("http://a.pages.example.org", 403),
            ("http://pages.example.org:8000", 403),
            ("chrome-extension://abc", 200),
            ("chrome-extension://abd", 403),
            ("null", 403),
        ):
            assert ask_as(own, "orsay.example.org", Origin=origin)[0] == status, origin
            assert ask_as(own, "localhost", Origin=origin)[0] == status, origin


def test_a_star_lets_every_name_in_and_no_page_with_it() -> None:
    with server(f"{ENVIRONMENTS}:Plain", runtime="local", allowed_hosts="*") as own:
        assert ask_as(own, EVIL)[0] == 200
        assert ask_as(own, EVIL, Origin=f"http://{EVIL}")[0] == 200  # its own page, by that name
        assert ask_as(own, EVIL, Origin="http://other.example.com")[0] == 403
        assert ask_as(own, "evil.com@localhost")[0] == 403  # that is no name
    with server(f"{ENVIRONMENTS}:Plain", runtime="local", allowed_origins="*") as own:
        assert ask_as(own, "localhost", Origin=f"http://{EVIL}")[0] == 200
        assert ask_as(own, "localhost", Origin="null")[0] == 200
        assert ask_as(own, EVIL, Origin=f"http://{EVIL}")[0] == 403


def test_a_space_answers_at_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub puts its name into a variable of the container."""
    monkeypatch.setenv("SPACE_HOST", "me-a-space.hf.space")
    with server(f"{ENVIRONMENTS}:Plain", runtime="local", host="0.0.0.0", allow_anonymous=True) as own:
        assert ask_as(own, "me-a-space.hf.space")[0] == 200
        assert ask_as(own, "me-a-space.hf.space", Origin="https://me-a-space.hf.space")[0] == 200
        assert ask_as(own, "10.1.2.3:8080", Origin="https://me-a-space.hf.space")[0] == 200
        assert ask_as(own, "of-another.hf.space")[0] == 403
        assert ask_as(own, "me-a-space.hf.space", Origin="https://of-another.hf.space")[0] == 403


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("allowed_hosts", "https://orsay.example.org"),
        ("allowed_hosts", "orsay.example.org:8080"),
        ("allowed_hosts", "orsay.*.org"),
        ("allowed_hosts", "a b"),
        ("allowed_origins", "orsay.example.org"),
        ("allowed_origins", "https://orsay.example.org/page"),
        ("allowed_origins", "https://"),
        ("allowed_origins", "*.example.org"),
    ],
)
def test_a_setting_that_names_nothing_is_refused(
    setting: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"ORSAY_{setting.upper()}", value)
    assert main(["config"]) == 2
    assert setting.upper() in capsys.readouterr().err


def test_a_setting_that_names_nothing_stops_the_start() -> None:
    with (
        pytest.raises(RuntimeError, match=r"(?s)exit code 2.*ALLOWED_HOSTS"),
        server(f"{ENVIRONMENTS}:Plain", runtime="local", allowed_hosts="a b"),
    ):
        pass


# keys


@pytest.mark.conformance("S8")
def test_with_a_key_any_name_and_any_page_is_good() -> None:
    """A page does not know the key; whoever does may be behind any proxy."""
    with server(f"{ENVIRONMENTS}:Scripted", also="openenv", api_keys=[KEY]) as own:
        for headers in (
            {"Host": "train.example.org", "X-API-Key": KEY},
            {"Host": EVIL, "Origin": f"http://{EVIL}", "X-API-Key": KEY},
            {"Host": "localhost", "Origin": "null", "Authorization": f"Bearer {KEY}"},
        ):
            for path in ("/tools", "/metrics", "/console/api/server"):
                assert ask(own, path, headers=tuple(headers.items()))[0] == 200
            with_key = tuple((name, value) for name, value in headers.items() if value != KEY)
            without = tuple(each for each in with_key if each[0] != "Authorization")
            assert ask(own, headers=without)[0] == 401
        for path in ("/console", "/health", "/ready"):
            assert ask_as(own, EVIL, path)[0] == 200


def test_a_server_that_loses_its_keys_guards_its_name(tmp_path: Path) -> None:
    """As a file is read again: on loopback it may have no keys, and is open to pages from then on."""
    file = tmp_path / "orsay.toml"
    environment = f'[environments.plain]\nclass = "{ENVIRONMENTS}:Plain"\n'
    file.write_text(f'runtime = "local"\napi_keys = ["{KEY}"]\n{environment}')
    process = ServerProcess(["--port", "0", "--config", str(file)], {})
    try:
        process.wait_for_url()
        assert ask_as(process, EVIL, **{"X-API-Key": KEY})[0] == 200
        file.write_text(f'runtime = "local"\n{environment}')
        reread(process)
        assert ask_as(process, EVIL, **{"X-API-Key": KEY})[0] == 403
        assert ask_as(process, "localhost")[0] == 200
    finally:
        process.end()


def reread(process: ServerProcess) -> None:
    """Have the server read its file again, and wait until it has."""
    seen = len(process.events("config_applied"))
    process.signal(signal.SIGHUP)
    end = time.monotonic() + LIMIT_S
    while len(process.events("config_applied")) == seen:
        assert time.monotonic() < end, process.everything
        time.sleep(0.01)
