"""Which files stay out of an image: by the project's .dockerignore, as clutter, or as secrets."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import LoadError

__all__ = ["CLUTTER", "SECRETS", "Patterns"]

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
"""Never of use inside an image."""

SECRETS = (
    *("**/.env", "**/.env.*", "!**/.env.example", "!**/.env.sample", "!**/.env.template", "**/*.env"),
    *("**/*.pem", "**/*.key", "**/*.p12", "**/*.pfx", "**/*.kdbx"),
    *("**/id_rsa*", "**/id_ecdsa*", "**/id_ed25519*", "!**/id_*.pub"),
    *("**/.netrc", "**/.pypirc", "**/.npmrc", "**/.git-credentials", "**/.dockercfg", "**/.docker"),
    *("**/.aws", "**/.ssh", "**/.gnupg", "**/.kube", "**/.huggingface"),
    *(
        "**/credentials.json",
        "**/service-account*.json",
        "**/secrets.toml",
        "**/secrets.json",
        "**/secrets.y*ml",
    ),
)
"""What mostly holds passwords and keys; whoever can pull an image can read them."""


@dataclass(frozen=True)
class _Rule:
    matches: re.Pattern[str]
    keeps: bool


class Patterns:
    """Lines of a .dockerignore, read as Docker reads them.

    The last line that matches a path, or a folder above it, wins.
    """

    def __init__(self, lines: Sequence[str], *, source: str = "") -> None:
        """Raises LoadError, with ``source`` and the line, for a pattern that means nothing."""
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
                self._rules.append(_Rule(re.compile(_expression(cleaned)), keeps))
            except re.error as exc:
                raise LoadError(f"{source}:{number}: {text!r} is no pattern: {exc}") from exc

    def verdict(self, path: str) -> bool | None:
        """True: ``path``, with slashes, stays out; False: a line with ``!`` keeps it; None: no line."""
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for rule in reversed(self._rules):
            if any(rule.matches.fullmatch(each) for each in above):
                return not rule.keeps
        return None

    @property
    def has_exceptions(self) -> bool:
        """Whether a folder that stays out may still hold files that do not."""
        return any(rule.keeps for rule in self._rules)


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
