"""Connections to public addresses of names, and to nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

__all__ = ["Connect", "NotReached", "Outside", "Resolve", "Streams", "resolved"]

Address: TypeAlias = IPv4Address | IPv6Address
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
Connect: TypeAlias = Callable[[str, int], Awaitable[Streams]]

_LIMIT_S = 20.0
_TRANSLATED = IPv6Network("64:ff9b::/96")  # IPv4 addresses within IPv6 (RFC 6052)


class NotReached(Exception):
    """A name leads nowhere, or to where sandboxes may not go."""

    def __init__(self, reason: str, *, refused: bool) -> None:
        super().__init__(reason)
        self.refused = refused
        """True where a rule is the reason, and not the network."""


async def resolved(name: str) -> list[str]:
    """Addresses of a name, as this machine knows them. Raises OSError."""
    loop = asyncio.get_running_loop()
    return [str(found[4][0]) for found in await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


class Outside:
    """The internet. ``resolve`` and ``connect`` are those of this machine unless a test has others."""

    def __init__(self, resolve: Resolve = resolved, connect: Connect = asyncio.open_connection) -> None:
        self._resolve = resolve
        self._connect = connect

    async def connect(self, name: str, port: int) -> Streams:
        """A connection to a public address of a name. Raises NotReached.

        The name is resolved once: the address that was looked at is the one that is connected to.
        """
        try:
            async with asyncio.timeout(_LIMIT_S):
                addresses = await self._resolve(name)
        except (OSError, UnicodeError) as exc:  # TimeoutError is an OSError
            raise NotReached(f"{name} has no address: {_reason(exc)}", refused=False) from exc
        public = [each for each in addresses if is_public(each)]
        if not public:
            led = ", ".join(addresses) or "nowhere"
            raise NotReached(f"{name} has no public address, it leads to {led}", refused=True)
        for address in public:
            try:
                async with asyncio.timeout(_LIMIT_S):
                    return await self._connect(address, port)
            except OSError as exc:
                problem = f"{name} ({address}) is not reached: {_reason(exc)}"
        raise NotReached(problem, refused=False)


def is_public(text: str) -> bool:
    """True for addresses of the internet that are none of this machine's."""
    address = ip_address(text.partition("%")[0])
    return _is_global(address) and not _is_own(address)


def _is_global(address: Address) -> bool:
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in _TRANSLATED:
            inner = IPv4Address(address.packed[-4:])
        if inner is not None:
            return _is_global(inner)
    return address.is_global and not address.is_multicast


def _is_own(address: Address) -> bool:
    """A socket can be bound to addresses of its own machine alone."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _reason(exc: BaseException) -> str:
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or "it took too long"
