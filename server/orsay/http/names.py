"""Names and addresses of hosts as requests give them, and which of them are a server's own."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

__all__ = ["Names", "is_loopback", "name_of"]

_AUTHORITY = re.compile(
    r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)\.?)(?::[0-9]{0,5})?"
)
_LONGEST = 300  # a name has up to 253 characters
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PRIVATE = (".local", ".internal", ".localhost", ".test", ".home.arpa")
"""Endings that are reserved (RFC 6761, 6762, 8375; ICANN): there are no public names below them."""
_FROM_CONTAINERS = ("host.docker.internal", "gateway.docker.internal", "host.containers.internal")
"""Names of the machine on which a container runs, as Docker and Podman give them."""


def name_of(authority: str) -> str | None:
    """The name or address before the port: lower case, without brackets and final dot, addresses in one form.

    None when it is neither. Addresses are taken in the one spelling that browsers send: ``2130706433`` and
    ``0177.0.0.1`` are none.
    """
    found = _AUTHORITY.fullmatch(authority.lower()) if len(authority) <= _LONGEST else None
    if found is None:
        return None
    name = found["address"] or found["name"]
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        last = name.rpartition(".")[2]
        return None if found["address"] or ".." in name or _NUMBER.fullmatch(last) else str(name)
    if isinstance(address, ipaddress.IPv6Address):
        if found["address"] is None:
            return None
        return str(address.ipv4_mapped or address)
    return None if found["address"] else str(address)


def is_loopback(name: str) -> bool:
    """True if every browser takes that name or address, as ``name_of`` returns it, for this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    """An address of a machine, as ``name_of`` gives it."""
    try:
        return not ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False


class Names:
    """The names of a server: addresses, those of loopback, ``names``, and with ``private`` all private ones.

    An address leads to itself, independent of name servers. One word alone and what is below a reserved
    ending are private: there are no public names of that kind, but who answers for names in the network of
    this machine may choose what they lead to.

    One of ``names`` may be ``*.example.org``, for every name below that one, or ``*``.
    """

    def __init__(self, names: Iterable[str] = (), *, private: bool = False) -> None:
        given = [each.lower().rstrip(".") for each in names]
        self._all = "*" in given
        self._private = private
        self._exact = frozenset(name_of(f"[{each}]" if ":" in each else each) for each in given) - {None}
        self._endings = tuple(each[1:] for each in given if each.startswith("*."))

    def own(self, name: str) -> bool:
        """True for a name given as the server's, and for loopback."""
        return name in self._exact or is_loopback(name) or name.endswith(self._endings)

    def __contains__(self, name: str) -> bool:
        if self._all or self.own(name) or _is_address(name) or name in _FROM_CONTAINERS:
            return True
        return self._private and ("." not in name or name.endswith(_PRIVATE) or name == "0.0.0.0")
