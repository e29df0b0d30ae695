"""Docstring of a Gymnasium environment: introduction, sections, names of actions."""

from __future__ import annotations

import inspect
import re

__all__ = ["action_names", "introduction", "section"]

_HEADING = re.compile(r"^[ \t]*#+[ \t]+(.+?)[ \t]*$", re.MULTILINE)
_ACTION = re.compile(r"^\s*[-*]\s*`?(-?\d+)`?\s*[:=]\s*(.+?)\s*$", re.MULTILINE)


def introduction(text: str | None) -> str:
    """Text before the first heading, or else under ``## Description``."""
    text = inspect.cleandoc(text or "")
    return _HEADING.split(text, maxsplit=1)[0].strip() or section(text, "Description")


def section(text: str | None, title: str) -> str:
    """The text under the heading ``title``, without headings; empty where there is none."""
    parts = _HEADING.split(inspect.cleandoc(text or ""))
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return found.get(title, "").strip()


def action_names(text: str | None, first: int, count: int) -> list[str]:
    """Meanings of ``count`` actions from ``first`` on, where the section on actions lists each of them."""
    named = dict(_ACTION.findall(section(text, "Action Space")))
    wanted = [str(number) for number in range(first, first + count)]
    return [named[number] for number in wanted] if all(number in named for number in wanted) else []
