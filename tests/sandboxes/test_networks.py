"""Networks of sandboxes: what the inside reaches, and what it does not."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from orsay import sandbox
from orsay.errors import SandboxGone, SandboxRefused
from orsay.runtimes.docker.engine import Engine
from orsay.runtimes.docker.spec import ContainerSpec
from orsay.sandboxes.base import SandboxSpec
from orsay.sandboxes.egress.gate import through_gate
from orsay.sandboxes.egress.outside import Outside, Streams
from orsay.sandboxes.nftables import NETLINK_NETFILTER, exists, removal
from orsay.sandboxes.sandbox import Sandbox

from ..support.engine import BASE, needs_engine
from ..support.other_machine import LINK_LOCAL, OTHER_MACHINE, other_machine
from ..support.sandboxes import comes_true, docker_sandboxes

pytestmark = needs_engine

OPEN = SandboxSpec(image=BASE, network="open")
TABLE = "orsay-sandboxes-1"
CONNECT = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=3) as found:
            print(place, "reached", found.recv(100).decode())
    except OSError as exc:
        print(place, "not", exc)
"""


@contextmanager
def listener() -> Iterator[int]:
    """A port on all addresses of this machine, IPv6 as well, that greets."""
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as door:

        def greet() -> None:
            with suppress(OSError):
                while True:
                    found, _ = door.accept()
                    with found:
                        found.sendall(b"hello")

        thread = threading.Thread(target=greet)
        thread.start()
        try:
            yield door.getsockname()[1]
        finally:
            door.shutdown(socket.SHUT_RDWR)
            thread.join()


async def reached(sandbox: Sandbox, *places: str) -> set[str]:
    """Those of the places (``address:port``) that answer a sandbox."""
    result = await sandbox.run(["python3", "-c", CONNECT, *places], timeout_s=60)
    assert result.return_code == 0, result.output
    lines = [line.split() for line in result.output.decode().splitlines()]
    assert [line[0] for line in lines] == list(places)
    return {line[0] for line in lines if line[1] == "reached"}


async def gateway(sandbox: Sandbox) -> str:
    [route] = [
        line.split()
        for line in (await sandbox.run("cat /proc/net/route")).output.decode().splitlines()
        if line.split()[1] == "00000000"
    ]
    return socket.inet_ntoa(bytes.fromhex(route[2])[::-1])


async def address(sandbox: Sandbox) -> str:
    return (await sandbox.run(["hostname", "-i"])).output.decode().strip()


def addresses_of_this_machine() -> list[str]:
    """Its address on the way out, and that of Docker's first bridge, which containers know."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect(("198.51.100.1", 9))
        return [out.getsockname()[0], "172.17.0.1"]


async def test_an_open_network_reaches_other_machines_and_not_the_one_of_the_engine() -> None:
    async with docker_sandboxes() as (sandboxes, _):
        sandbox = await sandboxes.create(OPEN)
        with listener() as port, other_machine(port):
            places = [f"{each}:{port}" for each in (await gateway(sandbox), *addresses_of_this_machine())]
            for place in places:  # a process of this machine is not disturbed
                socket.create_connection((place.rsplit(":", 1)[0], port), timeout=5).close()
            outside = f"{OTHER_MACHINE}:{port}"
            found = await reached(sandbox, *places, f"{LINK_LOCAL}:{port}", f"127.0.0.1:{port}", outside)
            assert found == {outside}


async def test_what_is_refused_is_told_at_once() -> None:
    async with docker_sandboxes() as (sandboxes, _):
        sandbox = await sandboxes.create(OPEN)
        with listener() as port:
            place = f"{await gateway(sandbox)}:{port}"
            result = await sandbox.run(["python3", "-c", CONNECT, place, "169.254.169.254:80"], timeout_s=60)
        assert result.output.count(b"No route to host") == 2  # and no waiting for a time limit


async def test_a_published_port_of_another_container_is_not_reached_by_the_machines_address() -> None:
    async with docker_sandboxes() as (sandboxes, labels), await Engine.connect() as engine:
        sandbox = await sandboxes.create(OPEN)
        command = ("python3", "-m", "http.server", "8000")
        container = await engine.create(
            ContainerSpec(image=BASE, entrypoint=command, command=(), labels=labels, published_port=8000)
        )
        try:
            await engine.start(container)
            found = await engine.inspect(container)
            port = found["NetworkSettings"]["Ports"]["8000/tcp"][0]["HostPort"]
            places = [f"{each}:{port}" for each in (await gateway(sandbox), *addresses_of_this_machine())]
            inner = f"{found['NetworkSettings']['IPAddress']}:8000"
            assert await reached(sandbox, *places, inner) == set()
        finally:
            await engine.remove(container)


async def test_sandboxes_do_not_reach_each_other_of_one_server_or_of_two() -> None:
    async with docker_sandboxes() as (one, _), docker_sandboxes() as (two, _):
        sandbox, neighbour, stranger = await asyncio.gather(
            one.create(OPEN), one.create(OPEN), two.create(OPEN)
        )
        script = "import socket; socket.create_server(('', 8000)).accept()"
        serving = [
            asyncio.create_task(each.run(["python3", "-c", script], timeout_s=30))
            for each in (neighbour, stranger)
        ]
        places = [f"{await address(each)}:8000" for each in (neighbour, stranger)]
        for place, each in zip(places, (neighbour, stranger), strict=True):
            wait = f"until (echo > /dev/tcp/{place.replace(':', '/')}) 2>&-; do sleep 0.1; done"
            assert (await each.run(wait, timeout_s=20)).return_code == 0  # it does listen there
        serving[:] = [
            asyncio.create_task(each.run(["python3", "-c", script], timeout_s=30))
            for each in (neighbour, stranger)
        ]
        assert await reached(sandbox, *places) == set()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def test_names_are_resolved_as_on_the_machine() -> None:
    try:
        expected = socket.gethostbyname("pypi.org")
    except OSError:
        pytest.skip("this machine resolves no names")
    async with docker_sandboxes() as (sandboxes, _):
        sandbox = await sandboxes.create(OPEN)
        script = "import socket; socket.gethostbyname('pypi.org'); print('found')"
        result = await sandbox.run(["python3", "-c", script], timeout_s=60)
        assert result.output == b"found\n", expected


async def test_rules_that_were_flushed_stand_again_before_the_next_sandbox() -> None:
    async with docker_sandboxes() as (sandboxes, _):
        sandbox = await sandboxes.create(OPEN)
        with listener() as port:
            place = f"{await gateway(sandbox)}:{port}"
            keeper = sandboxes._network._keeper
            assert keeper is not None
            await keeper.netlink(NETLINK_NETFILTER, removal(TABLE))
            assert await reached(sandbox, place) == {place}
            await sandboxes.create(OPEN)
            assert await reached(sandbox, place) == set()
            await keeper.close()  # as when it was killed
            await sandboxes.create(OPEN)
            assert await reached(sandbox, place) == set()


async def test_a_server_may_let_its_sandboxes_reach_the_machine() -> None:
    async with docker_sandboxes() as (guarded, _), docker_sandboxes(reaches_machine=True) as (sandboxes, _):
        await guarded.create(OPEN)  # its rules say nothing of others
        sandbox = await sandboxes.create(OPEN)
        with listener() as port:
            place = f"{await gateway(sandbox)}:{port}"
            assert await reached(sandbox, place) == {place}


async def test_an_engine_elsewhere_has_rules_against_the_servers_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine of this machine, over TCP, which may be that of another for all the server knows."""
    carrying: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine = await asyncio.open_unix_connection("/var/run/docker.sock")
        carrying.update(map(asyncio.create_task, (copy(reader, engine[1]), copy(engine[0], writer))))

    async with docker_sandboxes() as (near, _):
        await near.create(OPEN)
        keeper = near._network._keeper
        assert keeper is not None
        server = await asyncio.start_server(carry, "127.0.0.1", 0)
        try:
            monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            async with docker_sandboxes() as (far, _):
                sandbox = await far.create(OPEN)
                table = far._network.interface
                await keeper.netlink(NETLINK_NETFILTER, exists(table))
                with listener() as port:
                    own = addresses_of_this_machine()
                    assert await reached(sandbox, *(f"{each}:{port}" for each in own)) == set()
            with pytest.raises(FileNotFoundError):  # removed, as its bridge is
                await keeper.netlink(NETLINK_NETFILTER, exists(table))
        finally:
            server.close()
            await asyncio.gather(*carrying)


async def test_a_refusal_of_the_kernel_is_an_error_with_its_reason() -> None:
    async with docker_sandboxes() as (sandboxes, _):
        sandbox = await sandboxes.create(SandboxSpec(image=BASE))
        with pytest.raises(PermissionError):
            await sandbox.netlink(NETLINK_NETFILTER, removal(TABLE))


# allow-lists

PUBLIC = "93.184.216.34"
ASK = """
import sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as exc:
    print(exc.code, exc.read().decode())
except OSError as exc:
    print(exc)
"""
FETCH = """
import concurrent.futures, hashlib, urllib.request
def fetch(number):
    request = urllib.request.Request(f"http://pypi.org/{number}", data=bytes([number]) * 3_000_000)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read() == bytes([255 - number]) * 3_000_000
with concurrent.futures.ThreadPoolExecutor(100) as pool:
    print(set(pool.map(fetch, range(100))))
"""


class Website:
    """Stands for every public address: it answers a body with the body's complement."""

    def __init__(self) -> None:
        self.served: set[asyncio.Task[None]] = set()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.served.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(
                (int(x[15:]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:")), 0
            )
            sent = await reader.readexactly(size)
            body = bytes(255 - each for each in sent[:1]) * size or b"welcome"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
            await reader.read()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
            self.served.discard(task)

    async def resolve(self, name: str) -> list[str]:
        return [PUBLIC]

    async def connect(self, address: str, port: int) -> Streams:
        assert address == PUBLIC
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def filtered(*names: str) -> AsyncIterator[Sandbox]:
    """A sandbox with an allow-list."""
    website = Website()
    server = await asyncio.start_server(website.serve, "127.0.0.1", 0)
    website.port = server.sockets[0].getsockname()[1]
    spec = SandboxSpec(image=BASE, network=names)
    outside = Outside(website.resolve, website.connect)
    try:
        async with docker_sandboxes() as (sandboxes, _):
            yield await through_gate(sandboxes.create, spec, outside=outside)
    finally:
        server.close()
        await asyncio.gather(*website.served, return_exceptions=True)


async def asked(sandbox: Sandbox, url: str) -> str:
    result = await sandbox.run(["python3", "-c", ASK, url], timeout_s=40)
    return result.output.decode().strip()


async def test_an_allow_list_leads_to_its_names_alone() -> None:
    async with filtered("pypi.org") as sandbox:
        assert await asked(sandbox, "http://pypi.org/simple") == "200 welcome"
        refused = "403 example.org is not on the allow-list of this sandbox"
        assert await asked(sandbox, "http://example.org/") == refused
        assert "Tunnel connection failed: 403" in await asked(sandbox, "https://example.org/")
        result = await sandbox.run(["python3", "-c", ASK, "http://pypi.org/"], user="nobody")
        assert result.output == b"200 welcome\n"  # also for users other than root


async def test_an_allow_list_is_no_network() -> None:
    async with filtered("pypi.org") as sandbox:
        assert (await sandbox.run("ls /sys/class/net")).output == b"lo\n"
        with listener() as port:
            places = [f"{each}:{port}" for each in (*addresses_of_this_machine(), "127.0.0.1")]
            assert await reached(sandbox, *places) == set()
        listed = await sandbox.run("ls -l /.orsay-proxy; rm /.orsay-proxy; mv /.orsay-proxy /x")
        assert b"busy" in listed.output  # it is a mount, which commands cannot take away
        assert await asked(sandbox, "http://pypi.org/simple") == "200 welcome"


async def test_many_connections_at_once_carry_what_they_should() -> None:
    async with filtered("pypi.org") as sandbox:
        result = await sandbox.run(["python3", "-c", FETCH], timeout_s=100)
        assert result.output == b"{True}\n"


async def test_what_carries_connections_begins_anew_where_commands_kill_it() -> None:
    async with filtered("pypi.org") as sandbox:
        kill = "for each in /proc/[0-9]*; do [ ${each#/proc/} -gt 1 ] && kill -9 ${each#/proc/}; done"
        await sandbox.run(kill)

        async def answers() -> bool:
            return await asked(sandbox, "http://pypi.org/simple") == "200 welcome"

        await comes_true(answers)


async def test_the_way_out_ends_with_its_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with filtered("pypi.org") as sandbox:
        [folder] = tmp_path.glob("orsay-egress-*")
        hold = "import socket; s = socket.create_connection(('127.0.0.1', 3128)); print(s.recv(1))"
        held = asyncio.create_task(sandbox.run(["python3", "-c", hold]))
        await asked(sandbox, "http://pypi.org/simple")
        await sandbox.close()
        with pytest.raises(SandboxGone):
            await held
        assert not folder.exists()


async def test_who_is_cancelled_while_a_gate_opens_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with docker_sandboxes() as (sandboxes, labels), await Engine.connect() as engine:
        for delay_s in (0, 0.02, 0.1, 0.4):
            creating = asyncio.create_task(sandboxes.create(SandboxSpec(image=BASE, network=("pypi.org",))))
            await asyncio.sleep(delay_s)
            creating.cancel()
            with suppress(asyncio.CancelledError):
                await (await creating).close()
        assert await engine.containers(labels) == [] and [*tmp_path.glob("orsay-egress-*")] == []


async def test_an_engine_that_does_not_see_our_files_refuses_allow_lists() -> None:
    async def create(spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
        elsewhere = {path: f"/elsewhere{source}" for path, source in spec.folders.items()}
        async with docker_sandboxes() as (sandboxes, _):
            return await sandboxes.create(replace(spec, folders=elsewhere), sandbox_id=sandbox_id)

    with pytest.raises(SandboxRefused, match="needs a Docker engine on the server's own machine"):
        await through_gate(create, SandboxSpec(image=BASE, network=("pypi.org",)))


async def test_an_author_asks_for_names() -> None:
    async with sandbox(network=["pypi.org"], env={"NO_PROXY": "mine"}) as box:
        told = (await box.run("echo $http_proxy $HTTPS_PROXY $no_proxy $NO_PROXY")).output
        assert told == "http://127.0.0.1:3128 http://127.0.0.1:3128 localhost,127.0.0.1,::1 mine\n"
        result = await box.run(["python3", "-c", ASK, "http://example.org/"])
        assert result.output.strip() == "403 example.org is not on the allow-list of this sandbox"
    for wrong in ("pypi.org", ["10.0.0.1"], []):
        with pytest.raises(ValueError, match=r"allow-list|list of names"):
            sandbox(network=wrong)
