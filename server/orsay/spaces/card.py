"""Front matter of a Space's README, with the metadata for the hub.

An existing front matter is completed line by line, so that comments and unknown keys stay. It is YAML of one
level, which is sufficient for the hub's keys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["TAGS", "Card", "complete", "split"]

TAGS = ("openreward", "ors", "reinforcement-learning")
"""Tags for the hub's search."""

_BLOCK = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?$")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/()+-]*[A-Za-z0-9)+]|[A-Za-z0-9]")
_LONGEST_DESCRIPTION = 60  # the hub refuses more
# The hub's licence ids that differ from the SPDX name in lower case.
_LICENSES = {
    **{
        name: name
        for name in ("apache-2.0", "mit", "isc", "unlicense", "mpl-2.0", "zlib", "bsl-1.0", "wtfpl")
    },
    **{
        name: name
        for name in ("bsd-2-clause", "bsd-3-clause", "epl-2.0", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0")
    },
    **{
        f"{name}{suffix}": name
        for name in ("gpl-2.0", "gpl-3.0", "lgpl-2.1", "lgpl-3.0", "agpl-3.0")
        for suffix in ("", "-only", "-or-later")
    },
}


@dataclass(frozen=True)
class Card:
    """Values for the front matter. ``port`` and ``sdk`` override existing ones, others are defaults."""

    title: str
    description: str = ""
    license: str = ""
    port: int = 8080


def split(text: str) -> tuple[str, str]:
    """The lines of the front matter, without the lines that enclose it, and what follows it."""
    found = _BLOCK.match(text)
    return (found.group(1), text[found.end() :]) if found else ("", text)


def complete(front_matter: str, card: Card) -> str:
    """The whole front matter, with the lines that enclose it."""
    entries = _entries(front_matter)
    _put(entries, "title", _scalar(card.title))
    _put(entries, "emoji", "🎮")
    _put(entries, "colorFrom", "blue")
    _put(entries, "colorTo", "green")
    _put(entries, "sdk", "docker", always=True)
    _put(entries, "app_port", str(card.port), always=True)
    _put(entries, "base_path", "/docs")
    _put(entries, "pinned", "false")
    if card.license.lower() in _LICENSES:
        _put(entries, "license", _LICENSES[card.license.lower()])
    if card.description and len(card.description) <= _LONGEST_DESCRIPTION:
        _put(entries, "short_description", _scalar(card.description.rstrip(".")))
    entries["tags"] = [
        "tags:",
        *(f"- {_scalar(tag)}" for tag in _with_ours(_listed(entries.get("tags", ())))),
    ]
    lines = [line for entry in entries.values() for line in entry]
    return "\n".join(["---", *lines, "---", ""])


def _entries(text: str) -> dict[str, list[str]]:
    """Lines by key, in order; lines before the first key are under ``""``."""
    entries: dict[str, list[str]] = {}
    key = ""
    for line in text.splitlines():
        if found := _KEY.match(line):
            key = found.group(1)
            entries[key] = [line]  # YAML uses the last duplicate too
        else:
            entries.setdefault(key, []).append(line)
    return entries


def _put(entries: dict[str, list[str]], key: str, value: str, *, always: bool = False) -> None:
    if always or key not in entries:
        entries[key] = [f"{key}: {value}"]


def _listed(lines: Sequence[str]) -> list[str]:
    """Items of a list in either notation of YAML."""
    if not lines:
        return []
    found = _KEY.match(lines[0])
    inline = (found.group(2) or "").strip() if found else ""
    if inline.startswith("["):
        items = " ".join([inline, *(line.strip() for line in lines[1:])]).strip("[] ").split(",")
    elif inline and not inline.startswith("#"):
        items = [inline]
    else:
        items = [line.strip()[1:] for line in lines[1:] if line.strip().startswith("-")]
    return [item for each in items if (item := re.sub(r"\s+#.*$", "", each).strip().strip("\"'"))]


def _with_ours(tags: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*tags, *TAGS]))


def _scalar(text: str) -> str:
    """YAML of a string, plain if that is unambiguous."""
    if _PLAIN.fullmatch(text) and text.lower() not in ("true", "false", "yes", "no", "on", "off", "null"):
        return text if not re.fullmatch(r"[\d._+e-]+", text, re.IGNORECASE) else f'"{text}"'
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'
