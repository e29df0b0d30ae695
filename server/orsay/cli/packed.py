"""Listing of the files that are sent, and of the files that are left out, with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.filesize import decimal

from ..packaging.context import Contents, LeftOut
from ..plain import one_line

__all__ = ["left_out_lines", "sent_lines"]

_MANY_FILES = 20
_LARGEST = 5
_MANY = 8


def sent_lines(sizes: Mapping[str, int], *, everything: bool) -> list[str]:
    """Number and size of the files; their names if they are few, or with ``everything``."""
    lines = [f"sends {_files(len(sizes))}, {decimal(sum(sizes.values()))}"]
    named = sorted(sizes)
    if not everything and len(sizes) > _MANY_FILES:
        named = sorted(sizes, key=lambda relpath: (-sizes[relpath], relpath))[:_LARGEST]
        lines[0] += "; --list names all, the largest are"
    return lines + [f"  {decimal(sizes[relpath]):>9}  {one_line(relpath)}" for relpath in named]


def left_out_lines(contents: Contents, *, everything: bool) -> list[str]:
    """A line for each reason, with the .dockerignore lines that include the files."""
    reasons: dict[str, list[LeftOut]] = {}
    for each in contents.left_out:
        reasons.setdefault(each.reason, []).append(each)
    lines = [_because(reason, found, everything) for reason, found in reasons.items()]
    if contents.ignored:
        lines.append(f"left out by .dockerignore: {_listed(contents.ignored, everything)}")
    return lines


def _because(reason: str, found: Sequence[LeftOut], everything: bool) -> str:
    text = f"left out, since it {one_line(reason)}: {_listed([each.relpath for each in found], everything)}"
    lines = list(dict.fromkeys(each.line for each in found if each.line is not None))
    if not lines:
        return text
    if len(lines) > _MANY and not everything:
        return f"{text} (a line '!PATH' in .dockerignore, with its whole path, lets a file in)"
    named = ", ".join(f"'{one_line(line)}'" for line in lines)
    if len(lines) == 1:
        return f"{text} (the line {named} in .dockerignore lets it in)"
    return f"{text} (lines in .dockerignore let them in: {named})"


def _listed(relpaths: Sequence[str], everything: bool) -> str:
    if len(relpaths) > _MANY and not everything:
        relpaths = _by_folder(relpaths)
    shown = relpaths if everything else relpaths[:_MANY]
    more = f" and {len(relpaths) - len(shown)} more (--list names all)" if len(shown) < len(relpaths) else ""
    return ", ".join(map(one_line, shown)) + more


def _by_folder(relpaths: Sequence[str]) -> list[str]:
    """Files of one folder at the top count together."""
    folders: dict[str, list[str]] = {}
    for relpath in relpaths:
        folders.setdefault(relpath.partition("/")[0], []).append(relpath)
    return [
        found[0] if len(found) == 1 else f"{folder}/ ({_files(len(found))})"
        for folder, found in folders.items()
    ]


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"
