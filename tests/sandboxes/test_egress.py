"""The proxy of allow-lists, without a sandbox: what it lets through, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from orsay.authoring.sandbox.allow_list import AllowList
from orsay.protocols.sandboxes.settings import Catalogue, read_settings
from orsay.sandboxes.egress.outside import NotReached, Outside, Streams, is_public, resolved
from orsay.sandboxes.egress.proxy import Proxy

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PUBLIC = "93.184.216.34"
NAMES = {
    "pypi.org": [PUBLIC],
    "files.pythonhosted.org": ["2606:2800:220:1::1", PUBLIC],
    "inside.pypi.org": ["10.0.0.5", "127.0.0.1", "::1"],
    "mixed.pypi.org": ["192.168.0.7", PUBLIC],
}
LIST = AllowList(["pypi.org", "*.pypi.org", "*.pythonhosted.org:443", "gone.example"])


def of_names(name: str) -> list[str]:
    if name not in NAMES:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return NAMES[name]


class World:
    """Stands for the internet: names by a table, and one website behind every public address."""

    def __init__(self) -> None:
        self.connected: list[tuple[str, int]] = []
        self.received: list[bytes] = []
        self.site = ""

    async def resolve(self, name: str) -> list[str]:
        return of_names(name)

    async def connect(self, address: str, port: int) -> Streams:
        self.connected.append((address, port))
        if ":" in address:
            raise OSError(101, "Network is unreachable")
        return await asyncio.open_unix_connection(self.site)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A server of HTTP that says what it got, and does not close by itself."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = b""
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                body = await reader.readexactly(int(line.split(b":")[1]))
        if b"chunked" in head:
            body = await reader.readuntil(b"0\r\n\r\n")
        self.received.append(head + body)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        self.received.append(await reader.read())
        writer.close()


@asynccontextmanager
async def listening(path: str, serve: Handler) -> AsyncIterator[None]:
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def run() -> None:
            try:
                await serve(reader, writer)
            except (OSError, EOFError):
                pass
            finally:
                writer.close()

        tasks.add(asyncio.create_task(run()))

    server = await asyncio.start_unix_server(connected, path)
    try:
        yield
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Client:
    """Connections to the proxy."""

    def __init__(self, path: str, world: World, refused: list[str]) -> None:
        self.path = path
        self.world = world
        self.refused = refused

    @asynccontextmanager
    async def open(self, request: bytes) -> AsyncIterator[Streams]:
        reader, writer = await asyncio.open_unix_connection(self.path)
        try:
            writer.write(request)
            yield reader, writer
        finally:
            writer.close()

    async def ask(self, request: bytes) -> bytes:
        async with asyncio.timeout(10), self.open(request) as (reader, writer):
            writer.write_eof()
            return await reader.read()


@asynccontextmanager
async def proxied(tmp: object) -> AsyncIterator[Client]:
    world, refused = World(), list[str]()
    world.site, path = f"{tmp}/site", f"{tmp}/proxy"
    proxy = Proxy(LIST, refused.append, Outside(world.resolve, world.connect))
    async with listening(world.site, world.answer), listening(path, proxy.serve):
        yield Client(path, world, refused)


async def test_a_tunnel_to_a_name_on_the_list(tmp_path: object) -> None:
    async with asyncio.timeout(10), proxied(tmp_path) as client:
        async with client.open(b"CONNECT files.pythonhosted.org:443 HTTP/1.1\r\nHost: x\r\n\r\n") as (
            reader,
            writer,
        ):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
            writer.write(b"GET /any HTTP/1.1\r\n\r\n")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 OK")
        # the first address of the name did not answer
        assert client.world.connected == [("2606:2800:220:1::1", 443), (PUBLIC, 443)]
        assert client.refused == []


async def test_what_comes_with_a_tunnels_request_is_part_of_it(tmp_path: object) -> None:
    async with asyncio.timeout(10), proxied(tmp_path) as client:
        early = b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: x\r\n\r\nGET /early HTTP/1.1\r\n\r\n"
        async with client.open(early) as (reader, _):
            await reader.readuntil(b"hello")
        assert client.world.received[0] == b"GET /early HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("example.org:443", "example.org is not on the allow-list of this sandbox"),
        ("pypi.org.example.org:443", "pypi.org.example.org is not on the allow-list of this sandbox"),
        ("notpypi.org:443", "notpypi.org is not on the allow-list of this sandbox"),
        ("pythonhosted.org:443", "pythonhosted.org is not on the allow-list of this sandbox"),
        ("pypi.org:22", "port 22 of pypi.org is not on the allow-list of this sandbox, which has 80, 443"),
        ("files.pythonhosted.org:80", "port 80 of files.pythonhosted.org is not on"),
        (f"{PUBLIC}:443", f"{PUBLIC} is an address, and the allow-list of this sandbox has names"),
        ("[::1]:443", "::1 is an address, and the allow-list of this sandbox has names"),
        ("2130706433:443", "2130706433 is not on the allow-list"),
        (
            "inside.pypi.org:443",
            "inside.pypi.org has no public address, it leads to 10.0.0.5, 127.0.0.1, ::1",
        ),
    ],
)
async def test_another_name_port_or_address_is_refused_with_the_reason(
    tmp_path: object, target: str, reason: str
) -> None:
    async with proxied(tmp_path) as client:
        answer = await client.ask(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
        assert reason in answer.decode() and [reason in each for each in client.refused] == [True]
        assert client.world.connected == []


async def test_a_request_is_written_anew_and_ends_the_connection(tmp_path: object) -> None:
    async with proxied(tmp_path) as client:
        answer = await client.ask(
            b"POST http://PyPI.org/simple?q=1 HTTP/1.1\r\nHost: example.org\r\n"
            b"Proxy-Authorization: Basic eA==\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nbody"
            b"GET http://pypi.org/second HTTP/1.1\r\nHost: example.org\r\n\r\n"
        )
        assert answer.endswith(b"hello")
        request, more = client.world.received
        head = request.split(b"\r\n")
        assert head[0] == b"POST /simple?q=1 HTTP/1.1" and head[-1] == b"body"
        fields = {line.lower() for line in head[1:-2]}
        assert fields == {b"host: pypi.org", b"content-length: 4", b"connection: close"}
        assert more == b""  # of the second request, nothing


async def test_a_chunked_request(tmp_path: object) -> None:
    async with proxied(tmp_path) as client:
        answer = await client.ask(
            b"PUT http://mixed.pypi.org:80/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        )
        assert answer.endswith(b"hello")
        assert client.world.received[0].endswith(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert client.world.connected == [(PUBLIC, 80)]  # not the private one of its two addresses


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET / HTTP/1.1", 400),
        ("GET https://pypi.org/ HTTP/1.1", 400),
        ("GET ftp://pypi.org/ HTTP/1.1", 400),
        ("GET http://pypi.org:99999/ HTTP/1.1", 400),
        ("CONNECT pypi.org HTTP/1.1", 400),
        ("GET http://example.org/ HTTP/1.1", 403),
        ("GET http://pypi.org@example.org/ HTTP/1.1", 403),
        ("GET http://gone.example/ HTTP/1.1", 502),
        ("nonsense", 400),
    ],
)
async def test_what_cannot_be_is_answered(tmp_path: object, request_line: str, status: int) -> None:
    async with proxied(tmp_path) as client:
        answer = await client.ask(f"{request_line}\r\nHost: pypi.org\r\n\r\n".encode())
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
        assert client.world.connected == []


async def test_who_leaves_in_the_middle_of_a_request_costs_nothing(tmp_path: object) -> None:
    async with proxied(tmp_path) as client:
        assert await client.ask(b"") == b""
        assert (await client.ask(b"CONNECT pypi")).startswith(b"HTTP/1.1 400 ")
        lost = b"POST http://pypi.org/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"
        assert await client.ask(lost) == b""


def test_public_addresses() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect((PUBLIC, 9))
        own = out.getsockname()[0]
    inner = (
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        own,
    )
    six = (
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
    )
    assert [each for each in (*inner, *six) if is_public(each)] == []
    assert is_public(PUBLIC) and is_public("2606:2800:220:1::1") and is_public("64:ff9b::5db8:d822")


async def test_a_name_that_first_leads_outside_and_then_inside_is_resolved_once() -> None:
    answers = [[PUBLIC], ["127.0.0.1"]]
    connected: list[str] = []

    async def resolve(name: str) -> list[str]:
        return answers.pop(0)

    async def connect(address: str, port: int) -> Streams:
        connected.append(address)
        raise OSError(111, "Connection refused")

    outside = Outside(resolve, connect)
    with pytest.raises(
        NotReached, match=rf"rebinding.example \({PUBLIC}\) is not reached: Connection refused"
    ):
        await outside.connect("rebinding.example", 443)
    assert connected == [PUBLIC]
    with pytest.raises(NotReached, match=r"no public address, it leads to 127\.0\.0\.1") as refused:
        await outside.connect("rebinding.example", 443)
    assert refused.value.refused and connected == [PUBLIC]


async def test_names_of_this_machine_are_none_of_the_internet() -> None:
    assert await resolved("localhost")
    with pytest.raises(NotReached, match="localhost has no public address"):
        await Outside().connect("localhost", 443)


@pytest.mark.parametrize(
    "entry",
    [
        *(
            "",
            "*",
            "*.",
            "a..b",
            "https://pypi.org",
            "pypi.org/simple",
            "10.0.0.1",
            "[::1]",
            "a b.org",
            "x.0x7f",
        ),
        *("pypi.org:", "pypi.org:0", "pypi.org:70000", "*.*.org", "py*.org", "-a.org", "example.org\n.net"),
    ],
)
def test_what_is_no_name_cannot_be_on_a_list(entry: str) -> None:
    with pytest.raises(ValueError, match="cannot be on an allow-list: write names"):
        AllowList([entry])


def test_names_are_compared_as_names() -> None:
    listed = AllowList(["PyPI.org.", "*.bücher.example"])
    assert listed.objection("pypi.ORG", 443) is None and listed.objection("pypi.org.", 80) is None
    assert listed.objection("www.xn--bcher-kva.example", 443) is None
    assert listed.objection("bücher.example", 443) is not None
    with pytest.raises(ValueError, match="write none for no network"):
        AllowList([])


def test_rules_that_allow_hosts_are_an_allow_list() -> None:
    def network(**settings: Any) -> object:
        body = {"environment": "a/b", "image": "x", "machine_size": "1:1", **settings}
        return read_settings(json.dumps(body).encode(), {}, Catalogue()).network

    pypi = {"action": "allow", "host": "pypi.org", "path": None, "methods": None}
    rules = [pypi, {**pypi, "host": "*.pythonhosted.org"}]
    assert network(network={"rules": rules, "presets": [], "enforce": True}) == (
        "pypi.org",
        "*.pythonhosted.org",
    )
    assert network(network={"rules": [], "presets": [], "enforce": True}) == "none"
    assert (network(network=None), network(block_network=True)) == ("open", "none")
