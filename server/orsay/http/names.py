"""Host names and addresses in requests, and the set of those that belong to a server."""

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

    None if it is neither. Addresses are accepted only in the form that browsers send: ``2130706433`` and
    ``0177.0.0.1`` are refused.
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
        return str(address.ipv4_mapped or address)
    return None if found["address"] else str(address)


def is_loopback(name: str) -> bool:
    """True if every browser resolves that name or address, as ``name_of`` returns it, to its own machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    """True for an address, as ``name_of`` returns it, except for the unspecified ones."""
    try:
        return not ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False


class Names:
    """The names of a server: addresses, those of loopback, ``names``, and with ``private`` all private ones.

    Addresses are safe against DNS rebinding, since no name server resolves them. Single labels and names
    below a reserved ending are private: nobody can register them publicly, but a name server of the local
    network may resolve them to anything.

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
