"""Messages of nftables, as the kernel reads them: a table with its chains and rules in one transaction.

The encoding is that of linux/netlink.h and linux/netfilter/nf_tables.h. What is sent here needs no program
on the machine where it is applied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

__all__ = ["NETLINK_NETFILTER", "Chain", "Verdict", "exists", "removal", "replacement", "rules"]

NETLINK_NETFILTER = 12
_INET = 1  # NFPROTO_INET: IPv4 and IPv6
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_SUBSYSTEM = 10
_NEW_TABLE, _GET_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE = 0, 1, 2, 3, 6
_NESTED = 0x8000
_REGISTER = 1


def _attribute(kind: int, value: bytes) -> bytes:
    padding = b"\0" * (-len(value) % 4)
    return struct.pack("=HH", 4 + len(value), kind) + value + padding


def _nested(kind: int, *parts: bytes) -> bytes:
    return _attribute(kind | _NESTED, b"".join(parts))


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("!i", value))


def _message(kind: int, body: bytes, *, flags: int = 0, family: int = _INET, resource: int = 0) -> bytes:
    content = struct.pack("!BBH", family, 0, resource) + body
    return struct.pack("=IHHII", 16 + len(content), kind, _REQUEST | flags, 0, 0) + content


def _change(kind: int, body: bytes, flags: int = 0) -> bytes:
    return _message(_SUBSYSTEM << 8 | kind, body, flags=flags)


def _transaction(changes: Iterable[bytes]) -> bytes:
    ends = (_message(kind, b"", family=0, resource=_SUBSYSTEM) for kind in (_BATCH_BEGIN, _BATCH_END))
    begin, end = ends
    return b"".join((begin, *changes, end))


# expressions


def _expression(name: str, *parts: bytes) -> bytes:
    return _nested(1, _text(1, name), _nested(2, *parts))


def _compare(value: bytes, *, equal: bool = True) -> bytes:
    return _expression(
        "cmp", _number(1, _REGISTER), _number(2, 0 if equal else 1), _nested(3, _attribute(1, value))
    )


def _meta(key: int) -> bytes:
    return _expression("meta", _number(1, _REGISTER), _number(2, key))


def _payload(base: int, offset: int, length: int) -> bytes:
    return _expression(
        "payload", _number(1, _REGISTER), _number(2, base), _number(3, offset), _number(4, length)
    )


class Verdict:
    """What becomes of a packet."""

    ACCEPT = _expression("immediate", _number(1, 0), _nested(2, _nested(2, _number(1, 1))))
    REJECT = _expression("reject", _number(1, 2), _attribute(2, b"\3"))
    """ICMP's ``administratively prohibited``: programs learn of it at once."""


class rules:
    """Conditions of rules."""

    IPV6 = _meta(15) + _compare(b"\x0a")
    IPV4 = _meta(15) + _compare(b"\x02")

    @staticmethod
    def from_interfaces(prefix: str) -> bytes:
        return _meta(6) + _compare(prefix.encode())

    @staticmethod
    def to_interfaces(prefix: str) -> bytes:
        return _meta(7) + _compare(prefix.encode())

    @staticmethod
    def to_address(address: IPv4Address, *, leading_bytes: int = 4) -> bytes:
        """Destinations that begin with the bytes of an address."""
        wanted = address.packed[:leading_bytes]
        return rules.IPV4 + _payload(1, 16, leading_bytes) + _compare(wanted)

    @staticmethod
    def to_port(protocol: int, port: int) -> bytes:
        """``protocol`` by its number: 6 TCP, 17 UDP."""
        return _meta(16) + _compare(bytes([protocol])) + _payload(2, 2, 2) + _compare(port.to_bytes(2, "big"))

    @staticmethod
    def not_elsewhere() -> bytes:
        """Destinations that are no other machine: addresses of this one, broadcast and multicast."""
        return _expression("fib", _number(1, _REGISTER), _number(2, 3), _number(3, 2)) + _compare(
            struct.pack("=I", 1), equal=False
        )


# tables


@dataclass(frozen=True)
class Chain:
    """A chain of the type filter; ``hook`` and ``priority`` by their numbers in linux/netfilter_ipv4.h."""

    name: str
    hook: int
    priority: int
    rules: Sequence[bytes]
    """Each a condition and a verdict, one after the other."""


def replacement(table: str, chains: Iterable[Chain]) -> bytes:
    """The transaction after which the table has these chains and no others."""
    name = _text(1, table)
    changes = [
        _change(_NEW_TABLE, name, _CREATE),
        _change(_DELETE_TABLE, name),
        _change(_NEW_TABLE, name, _CREATE),
    ]
    for chain in chains:
        hook = _nested(4, _number(1, chain.hook), _number(2, chain.priority))
        changes.append(_change(_NEW_CHAIN, name + _text(3, chain.name) + hook + _text(7, "filter"), _CREATE))
        for rule in chain.rules:
            body = name + _text(2, chain.name) + _nested(4, rule)
            changes.append(_change(_NEW_RULE, body, _CREATE | _APPEND))
    return _transaction(changes)


def removal(table: str) -> bytes:
    """The transaction after which there is no such table."""
    name = _text(1, table)
    return _transaction([_change(_NEW_TABLE, name, _CREATE), _change(_DELETE_TABLE, name)])


def exists(table: str) -> bytes:
    """A question that fails with ENOENT where there is no such table."""
    return _change(_GET_TABLE, _text(1, table), _ACK)
