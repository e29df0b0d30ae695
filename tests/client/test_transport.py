"""Connections, redirects and what the process environment may not do."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest
from orsay_client import AsyncClient, ConnectionLost, ProtocolError, ResultTooLarge, Retry

from ..support.scripted_server import Handler, Reply, Request, ScriptedServer, ors

ONCE = Retry(tries=1)


def redirect(status: int, to: str) -> Handler:
    async def handle(request: Request, reply: Reply) -> None:
        await reply.raw(b"", status, {"Location": to})

    return handle


def names(*found: str) -> Handler:
    async def handle(request: Request, reply: Reply) -> None:
        await reply.json(list(found))

    return handle


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", "", "/x"])
def test_what_is_no_url_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ValueError, match="http://host:8080"):
        AsyncClient(url)


async def test_a_path_in_the_url_stays_before_every_path() -> None:
    async with ScriptedServer(ors(others={"/a/b/list_environments": names("x")})) as server:
        for url in (server.url + "/a/b", server.url + "/a/b/"):
            async with AsyncClient(url) as client:
                assert await client.environments() == ["x"]


async def test_redirects_keep_method_headers_and_body_and_permanent_ones_are_remembered() -> None:
    others = {
        "/call": redirect(308, "/first/call"),
        "/first/call": ors(others={"/first/call": ors()}),
        "/list_environments": redirect(307, "/list_environments/"),
        "/list_environments/": names("first"),
    }

    async def call(request: Request, reply: Reply) -> None:
        await ors()(Request(request.method, "/call", request.headers, request.body), reply)

    others["/first/call"] = call
    async with ScriptedServer(ors(others=others)) as server, AsyncClient(server.url, api_key="key") as client:
        assert await client.environments() == ["first"]
        async with client.environment().session(task_spec={}) as session:
            await session.call("x", {"a": 1})
            await session.call("x", {"a": 2})
        assert [request.json()["input"] for request in server.sent("/call")] == [{"a": 1}]
        landed = server.sent("/first/call")
        assert [request.json()["input"] for request in landed] == [{"a": 1}, {"a": 2}]
        assert {request.headers["x-api-key"] for request in landed} == {"key"}


async def test_no_redirect_leads_to_another_server() -> None:
    async with ScriptedServer(names("stolen")) as other:
        handler = ors(others={"/list_environments": redirect(308, other.url + "/list_environments")})
        async with ScriptedServer(handler) as server, AsyncClient(server.url, api_key="key") as client:
            with pytest.raises(ProtocolError, match="redirects to http://127"):
                await client.environments()
        assert not other.requests


async def test_redirects_in_a_circle_end() -> None:
    handler = ors(others={"/list_environments": redirect(307, "/list_environments")})
    async with ScriptedServer(handler) as server, AsyncClient(server.url) as client:
        with pytest.raises(ProtocolError, match="redirects"):
            await client.environments()


async def test_the_process_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        ScriptedServer(names("proxied")) as proxy,
        ScriptedServer(ors(others={"/list_environments": names("x")})) as server,
    ):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("OPENREWARD_URL", proxy.url)
        monkeypatch.setenv("OPENREWARD_API_KEY", "key")
        async with AsyncClient(server.url) as client:
            assert await client.environments() == ["x"]
        assert "x-api-key" not in server.requests[0].headers
        async with AsyncClient(server.url, trust_env=True) as client:
            assert await client.environments() == ["proxied"]


async def test_connections_are_used_again() -> None:
    async with ScriptedServer(ors()) as server, AsyncClient(server.url) as client:
        async with client.environment().session(task_spec={}) as session:
            for _ in range(20):
                await session.call("x")
                await session.prompt()
        assert server.accepted == 1


async def test_a_connection_that_the_server_closed_while_idle_is_replaced() -> None:
    async def close_after(request: Request, reply: Reply) -> None:
        await ors()(request, reply)
        reply.cut()

    async with ScriptedServer(ors(call=close_after)) as server, AsyncClient(server.url) as client:
        async with client.environment().session(task_spec={}) as session:
            for _ in range(5):
                await session.call("x")
                await asyncio.sleep(0.05)
        assert len(server.sent("/call")) == 5


async def test_cookies_of_one_session_never_reach_another() -> None:
    async def cookie(request: Request, reply: Reply) -> None:
        await reply.json(["x"], headers={"Set-Cookie": "backend=1"})

    async with (
        ScriptedServer(ors(others={"/list_environments": cookie})) as server,
        AsyncClient(server.url) as client,
    ):
        await client.environments()
        await client.environments()
        assert all("cookie" not in request.headers for request in server.requests)


async def test_a_port_without_a_server_says_so() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        async with AsyncClient(url, retry=ONCE) as client:
            with pytest.raises(ConnectionLost, match=f"{url}/list_environments: cannot connect") as lost:
                await client.environments()
            assert not lost.value.may_have_run


async def test_a_server_that_never_answers_is_given_up() -> None:
    async def hang(request: Request, reply: Reply) -> None:
        await asyncio.sleep(60)

    async with ScriptedServer(hang) as server, AsyncClient(server.url, retry=ONCE, timeout_s=0.2) as client:
        with pytest.raises(ConnectionLost, match="no data for too long") as lost:
            await client.environments()
        assert lost.value.may_have_run


async def test_what_is_no_http_is_a_lost_connection() -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    async with (
        server,
        AsyncClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", retry=ONCE) as client,
    ):
        with pytest.raises(ConnectionLost, match="the connection broke"):
            await client.environments()


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"{}", b""])
async def test_a_web_page_is_not_an_ors_server(body: bytes) -> None:
    async def page(request: Request, reply: Reply) -> None:
        await reply.raw(body, headers={"Content-Type": "text/html"})

    async with ScriptedServer(page) as server, AsyncClient(server.url) as client:
        with pytest.raises(ProtocolError):
            await client.environments()


async def test_answers_are_bounded() -> None:
    async with (
        ScriptedServer(ors(others={"/list_environments": names("x" * 5000)})) as server,
        AsyncClient(server.url, max_answer_bytes=4000) as client,
    ):
        with pytest.raises(ResultTooLarge, match="4000"):
            await client.environments()


async def test_another_transport_takes_the_place_of_the_network() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "https://somewhere/list_environments"
        return httpx.Response(200, json=["inside"])

    async with AsyncClient("https://somewhere", transport=httpx.MockTransport(answer)) as client:
        assert await client.environments() == ["inside"]


def test_a_key_that_no_header_can_carry_is_refused_without_being_repeated() -> None:
    with pytest.raises(ValueError, match="API key") as raised:
        AsyncClient("http://x", api_key="sécret")
    assert "cret" not in str(raised.value)


async def test_the_password_of_a_url_is_in_no_text() -> None:
    async with AsyncClient("http://me:pass1234@127.0.0.1:9", retry=ONCE) as client:
        with pytest.raises(ConnectionLost) as lost:
            await client.environments()
        assert "pass1234" not in repr(client) + str(lost.value)
