"""Ignore patterns for an image: the project's .dockerignore, and built-in ones for caches."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import LoadError

__all__ = ["CLUTTER", "Patterns", "line_for"]

CLUTTER = (
    *("**/.git", "**/.hg", "**/.svn", "**/.DS_Store"),
    *("**/__pycache__", "**/*.pyc", "**/*.egg-info"),
    *("**/.venv", "**/venv", "**/.tox", "**/.nox", "**/node_modules"),
    *(
        "**/.pytest_cache",
        "**/.mypy_cache",
        "**/.ruff_cache",
        "**/.hypothesis",
        "**/.cache",
        "**/.ipynb_checkpoints",
    ),
)
"""Built-in patterns of files that no image needs."""


@dataclass(frozen=True)
class _Rule:
    matches: re.Pattern[str]
    keeps: bool
    literal: str | None
    """The path, if the pattern has no wildcard."""
    begins: tuple[str, ...]
    """Leading folders of every path that the pattern matches."""


class Patterns:
    """Lines of a .dockerignore, with Docker's semantics.

    The last line that matches a path, or a folder above it, wins.
    """

    def __init__(self, lines: Sequence[str], *, source: str = "") -> None:
        """Raises LoadError, with ``source`` and the line, for an invalid pattern."""
        self._rules: list[_Rule] = []
        for number, line in enumerate(lines, 1):
            if line.startswith("#") or not line.strip():
                continue
            text = line.strip()
            keeps = text.startswith("!")
            cleaned = posixpath.normpath(text.removeprefix("!").strip() or ".").lstrip("/")
            if cleaned in (".", ""):
                if keeps:
                    raise LoadError(f"{source}:{number}: '!' needs a pattern")
                continue
            try:
                expression = re.compile(_expression(cleaned), re.DOTALL)
                self._rules.append(_Rule(expression, keeps, _literal(cleaned), _begins(cleaned)))
            except re.error as exc:
                raise LoadError(f"{source}:{number}: {text!r} is no pattern: {exc}") from exc

    def verdict(self, path: str) -> bool | None:
        """True: ``path`` (with slashes) is ignored; False: a line with ``!`` keeps it; None: no match."""
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for rule in reversed(self._rules):
            if any(rule.matches.fullmatch(each) for each in above):
                return not rule.keeps
        return None

    def names(self, path: str) -> bool:
        """True if a line ``!path`` names this file without a wildcard, and no later line ignores it again.

        An allow-list (``*``, ``!my_env``) names folders, so it does not name the files in them.
        """
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for rule in reversed(self._rules):
            if rule.keeps and rule.literal == path:
                return True
            if not rule.keeps and any(rule.matches.fullmatch(each) for each in above):
                return False
        return False

    def may_keep_below(self, folder: str) -> bool:
        """True if a line with ``!`` may keep a file in this ignored folder."""
        parts = folder.split("/")
        return any(all(map(str.__eq__, rule.begins, parts)) for rule in self._rules if rule.keeps)

    def names_below(self, folder: str) -> bool:
        """True if a line ``!path`` without a wildcard names a file in this folder."""
        return any(rule.keeps and (rule.literal or "").startswith(f"{folder}/") for rule in self._rules)


def line_for(path: str) -> str | None:
    """The .dockerignore line that keeps this file; None if its name cannot be written in a line."""
    if path != path.strip() or not path.isprintable():
        return None
    return "!" + re.sub(r"([*?\[\]\\])", r"\\\1", path)


def _literal(pattern: str) -> str | None:
    if re.search(r"(?<!\\)(?:\\\\)*[*?\[]", pattern):
        return None
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def _begins(pattern: str) -> tuple[str, ...]:
    return tuple(itertools.takewhile(lambda part: not re.search(r"[*?\[\\]", part), pattern.split("/")))


def _expression(pattern: str) -> str:
    """A regular expression for a pattern with ``*``, ``?``, ``[…]``, ``\\`` and ``**``."""
    found: list[str] = []
    position = 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("**/"):
            found.append("(?:.*/)?")
            position += 3
        elif rest.startswith("**"):
            found.append(".*")
            position += 2
        elif rest[0] == "*":
            found.append("[^/]*")
            position += 1
        elif rest[0] == "?":
            found.append("[^/]")
            position += 1
        elif rest[0] == "[":
            end = rest.find("]", 2)
            if end < 0:
                raise re.error("'[' without ']'")
            found.append("[" + rest[1:end].replace("[", r"\[") + "]")
            position += end + 1
        elif rest[0] == "\\" and len(rest) > 1:
            found.append(re.escape(rest[1]))
            position += 2
        else:
            found.append(re.escape(rest[0]))
            position += 1
    return "".join(found)
