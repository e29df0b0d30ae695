"""Address of the server in a container, and a readiness probe."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import LoadError

__all__ = ["url_of", "wait_for_answer"]

_PROBE_S = 0.05
_PROBE_LIMIT_S = 5.0
_NOT_YET = (b"429", b"502", b"503", b"504")


def url_of(found: Mapping[str, Any], port: int, *, image: str) -> str:
    """The URL of a running container, from the engine's description of it.

    The container's own address costs less than a published port, which goes through a proxy process of the
    engine, but is only valid inside its network: elsewhere the same address may belong to another machine.
    Inside a container, ports are not published on 127.0.0.1. Raises LoadError if the container is
    unreachable.
    """
    settings = found["NetworkSettings"]
    for network in (settings.get("Networks") or {}).values():
        address, bits = network.get("IPAddress"), network.get("IPPrefixLen")
        if address and bits and _is_near(address, bits):
            return f"http://{address}:{port}"
    ports = () if _in_container() else (settings.get("Ports") or {}).get(f"{port}/tcp")
    for published in ports or ():
        return f"http://{published['HostIp']}:{published['HostPort']}"
    raise LoadError(
        f"the container of {image} cannot be reached from here in its network: on another machine, or when"
        " this server runs in a container itself, set `network` to one that both are in"
    )


async def wait_for_answer(url: str) -> None:
    """Wait until a server there gives any answer other than that it is starting."""
    while True:
        if await _answers(url):
            return
        await asyncio.sleep(_PROBE_S)


async def _answers(url: str) -> bool:
    """True if a server answers there: one small request on a new connection."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    request = f"GET /list_environments HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    writer = None
    try:
        async with asyncio.timeout(_PROBE_LIMIT_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request.encode())
            status = (await reader.readline()).split(b" ")[1:2]
    except (OSError, ValueError):  # connection refused, timeout, or a line without end
        return False
    finally:
        if writer is not None:
            writer.close()
    return bool(status) and status[0] not in _NOT_YET


def _in_container() -> bool:
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))


def _is_near(address: str, bits: int) -> bool:
    """True if this machine (or container) has an address in the same network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing
            own = probe.getsockname()[0]
        except OSError:
            return False
    network = ipaddress.ip_network(f"{address}/{bits}", strict=False)
    return ipaddress.ip_address(own) in network
