"""Languages of solutions: where the source lies, and which commands build and run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["LANGUAGES", "PLAIN", "WORK", "Language"]

WORK = "/work"

_SOURCE = "{source}"


@dataclass(frozen=True, kw_only=True)
class Language:
    """A language. ``build`` and ``run`` are words of commands, run in a folder that they may write to."""

    title: str
    extension: str
    needs: str
    """Program that an image with this language has."""
    run: tuple[str, ...]
    build: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where the solution lies in the model's sandbox."""
        return f"{WORK}/solution.{self.extension}"

    def commands(self, source: str) -> tuple[list[str], list[str]]:
        """Words that build and run the solution at ``source``; nothing to build: no words."""
        build, run = ([word.replace(_SOURCE, source) for word in words] for words in (self.build, self.run))
        return build, run


LANGUAGES: Mapping[str, Language] = {
    "python": Language(title="Python", extension="py", needs="python3", run=("python3", "-B", _SOURCE)),
    "bash": Language(title="bash", extension="sh", needs="bash", run=("bash", _SOURCE)),
    "awk": Language(title="awk", extension="awk", needs="awk", run=("awk", "-f", _SOURCE)),
    "perl": Language(title="Perl", extension="pl", needs="perl", run=("perl", _SOURCE)),
    "c": Language(
        title="C",
        extension="c",
        needs="gcc",
        build=("gcc", "-O2", "-std=c17", "-o", "program", _SOURCE, "-lm"),
        run=("./program",),
    ),
}

PLAIN = ("python", "bash", "awk", "perl")
"""Those of the plain image."""
