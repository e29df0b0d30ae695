"""Allow-lists: the names that a sandbox reaches, as an author writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .model import Network

__all__ = ["AllowList", "network_of"]

_WEB_PORTS = (80, 443)
_ENTRY = re.compile(r"(\*\.)?([^*:\s/]+?)\.?(?::(\d{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


@dataclass(frozen=True)
class _Entry:
    name: str
    below: bool
    """The names below ``name``, rather than that name."""
    ports: tuple[int, ...]

    def fits(self, name: str) -> bool:
        return name.endswith(f".{self.name}") if self.below else name == self.name


class AllowList:
    """Names with their ports.

    ``pypi.org`` has ports 80 and 443, ``example.org:8443`` its own; ``*.example.org`` is all names below it.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        """Raises ValueError for what is no such name."""
        self._entries = [_read(entry) for entry in entries]
        if not self._entries:
            raise ValueError("an allow-list without a name: write none for no network")

    def objection(self, name: str, port: int) -> str | None:
        """Why a name is not reached; None where it is."""
        wanted = _plain(name)
        fitting = [each for each in self._entries if each.fits(wanted)]
        if any(port in each.ports for each in fitting):
            return None
        if not fitting:
            return f"{name} is not on the allow-list of this sandbox"
        ports = sorted({port for each in fitting for port in each.ports})
        return (
            f"port {port} of {name} is not on the allow-list of this sandbox, which has"
            f" {', '.join(map(str, ports))}"
        )


def network_of(wanted: object) -> Network:
    """``none``, ``open``, or names. Raises ValueError for other words, and for what is no name."""
    if wanted == "none" or wanted == "open":
        return wanted
    if not isinstance(wanted, (list, tuple)) or not all(isinstance(each, str) for each in wanted):
        raise ValueError(f"network {wanted!r} is not supported: write none, open, or a list of names")
    AllowList(wanted)
    return tuple(wanted)


def _read(entry: str) -> _Entry:
    found = _ENTRY.fullmatch(entry.strip())
    if found is None:
        raise ValueError(_no_name(entry))
    name = _plain(found[2])
    labels = name.split(".")
    # a last label of digits alone, or 0x..., would be read as an address (URL Standard, 3.5)
    if not all(map(_LABEL.fullmatch, labels)) or re.fullmatch(r"\d+|0x[0-9a-f]*", labels[-1]):
        raise ValueError(_no_name(entry))
    if found[3] is None:
        return _Entry(name, bool(found[1]), _WEB_PORTS)
    if not 0 < int(found[3]) < 1 << 16:
        raise ValueError(_no_name(entry))
    return _Entry(name, bool(found[1]), (int(found[3]),))


def _plain(name: str) -> str:
    """In lower case, without a last dot, and in ASCII."""
    name = name.lower().removesuffix(".")
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name


def _no_name(entry: str) -> str:
    return f"{entry!r} cannot be on an allow-list: write names, as pypi.org, *.example.org, example.org:8443"
