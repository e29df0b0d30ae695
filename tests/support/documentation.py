"""The documentation as tests see it: files, code blocks, tables, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EXAMPLES", "ROOT", "Block", "anchors", "blocks", "cells", "texts"]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of code. ``file`` is what it claims to show."""

    page: Path
    line: int
    language: str
    file: str | None
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def texts() -> list[Path]:
    """Every page of prose in the repository."""
    top = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "docker").glob("*.md"))]


def blocks() -> Iterator[Block]:
    for page in texts():
        text = page.read_text(encoding="utf-8")
        for found in _FENCE.finditer(text):
            language, _, rest = found["info"].partition(" ")
            file = rest.removeprefix("file=") if rest.startswith("file=") else None
            yield Block(page, text.count("\n", 0, found.start()) + 1, language, file, found["code"])


def cells(page: str, heading: str = "") -> list[list[str]]:
    """Rows of the tables of a page, or below one of its headings, without their header lines."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    if heading:
        level = heading.partition(" ")[0]
        _, found, text = text.partition(f"\n{heading}\n")
        assert found, f"docs/{page} has no heading {heading!r}"
        text = re.split(rf"^#{{1,{len(level)}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]
    lines = text.splitlines()
    rows = []
    for number, line in enumerate(lines):
        if line.startswith("|") and not line.startswith("|---"):
            if number + 1 < len(lines) and lines[number + 1].startswith("|---"):
                continue
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may say after the #."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
