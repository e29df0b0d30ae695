"""The name of a Space, ``owner/name``, and the host name that the hub derives from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import SpaceError

__all__ = ["SpaceName"]

_PAGE = re.compile(r"https?://[^/]+/spaces/")
_PART = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,94}[A-Za-z0-9_])?", re.ASCII)


@dataclass(frozen=True)
class SpaceName:
    """Name of a Space on the hub."""

    owner: str
    name: str

    @classmethod
    def parse(cls, text: str) -> SpaceName:
        """Name of a Space from ``owner/name``, or from the address of its page. Raises SpaceError."""
        owner, slash, name = _PAGE.sub("", text.strip()).rstrip("/").partition("/")
        if not slash or not owner or not name:
            raise SpaceError(
                f"{text!r} names no Space: give the user or organisation too, such as --space my-name/my-env"
            )
        for part in (owner, name):
            if not _PART.fullmatch(part) or "--" in part or ".." in part or part.endswith(".git"):
                raise SpaceError(
                    f"{part!r} in {text!r} cannot be part of a Space's name: letters, digits, '-', '_' and"
                    " '.' only, at most 96, no '-' or '.' at an end, none twice in a row, no '.git' as its"
                    " end"
                )
        return cls(owner, name)

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def url(self) -> str:
        """URL of its server, whose host name is one label: in lower case and without dots.

        The hub has the last word: it shortens names that are too long for a label in its own way.
        """
        label = re.sub(r"[^a-z0-9]+", "-", f"{self.owner}-{self.name}".lower()).strip("-")
        return f"https://{label}.hf.space"
