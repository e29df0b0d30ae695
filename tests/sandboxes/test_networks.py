"""Networks of sandboxes: what the inside reaches, and what it does not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from orsay.runtimes.docker.engine import Engine
from orsay.runtimes.docker.spec import ContainerSpec
from orsay.sandboxes.base import SandboxSpec
from orsay.sandboxes.nftables import NETLINK_NETFILTER, removal
from orsay.sandboxes.sandbox import Sandbox

from ..support.engine import BASE, needs_engine
from ..support.other_machine import LINK_LOCAL, OTHER_MACHINE, other_machine
from ..support.sandboxes import docker_sandboxes

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


async def test_a_refusal_of_the_kernel_is_an_error_with_its_reason() -> None:
    async with docker_sandboxes() as (sandboxes, _):
        sandbox = await sandboxes.create(SandboxSpec(image=BASE))
        with pytest.raises(PermissionError):
            await sandbox.netlink(NETLINK_NETFILTER, removal(TABLE))
