"""Search for a tool that returns the text it is sent, as a check for lost parts of a stream.

If a tool returns short texts unchanged but not a long one, then either the tool shortens it (to a prefix, or
with a mark in place of the rest), or the stream lost a part.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from .failures import Failed
from .reply import Reply

__all__ = ["Echo", "find_echo", "require"]

Call: TypeAlias = Callable[[str, dict[str, str]], Awaitable[Reply]]
"""Calls a tool in a fresh session."""

_ODD = "  \t\u2028\u00a0\u00e9e\u0301\u2603\U0001f600 <&> \"'\\ \r\n\n."
_SHORT = f"{_ODD}{_ODD} 0123456789 word {_ODD}"
_LONG = _ODD + "".join(f"{number:06d} word{_ODD}" for number in range(7_000)) + _ODD
_ENOUGH = 40_000
"""Text length above any server's piece size; a tool that returns less proves nothing about streams."""


@dataclass(frozen=True, slots=True)
class Echo:
    """A tool that returns its only argument, ``field``, up to ``limit`` characters.

    ``ends``: its answer ends the episode, so that a session takes one call.
    """

    tool: str
    field: str
    limit: int | None = None
    ends: bool = False

    def cut(self, text: str) -> str:
        """The part of the text that the tool returns."""
        return text[: self.limit]


def require(text: str, reply: Reply) -> None:
    """Raises Failed unless the answer contains the whole text."""
    got = reply.text
    if text not in got:
        raise Failed(_difference(text, got, reply))


async def find_echo(tools: list[tuple[str, str]], call: Call) -> tuple[Echo | None, str]:
    """The best echo tool, or None and the reason. ``tools`` are names with their free text argument.

    Raises Failed if an answer lacks a part that the tool did not remove.
    """
    second: Echo | None = None
    reasons = []
    for name, field in tools:
        token = f"conformance check {uuid.uuid4().hex}"
        if token not in (_text_of(await call(name, {field: token})) or ""):
            continue
        if _SHORT not in (_text_of(await call(name, {field: _SHORT})) or ""):
            reasons.append(
                f"{name} gives back words, and white space or odd characters not; if the tool itself changes "
                f"nothing, use --echo-tool {name} and this is a failure"
            )
            continue
        reply = await call(name, {field: _LONG})
        limit = _limit_of(name, reply)
        ends = reply.raised is None and (reply.result.get("output") or {}).get("finished") is True
        found = Echo(name, field, limit, ends)
        if limit is None and not ends:
            return found, ""
        if limit is None or limit >= _ENOUGH:
            second = second or found
            continue
        reasons.append(
            f"{name} gives back {limit} of {len(_LONG)} characters; if the tool itself shortens nothing, use "
            f"--echo-tool {name} and this is a failure"
        )
    if second is not None:
        return second, ""
    return None, "; ".join(reasons) or "no tool of this environment gives back the text it is sent"


def _text_of(reply: Reply) -> str | None:
    """The text of the answer; None if the tool refused or raised. Raises Failed for a broken stream."""
    if reply.status == 413 or reply.raised is not None or reply.result.get("ok") is False:
        return None
    return reply.text


def _limit_of(name: str, reply: Reply) -> int | None:
    """Length that a tool returns; None for everything. Raises Failed if the stream lost a part."""
    got = _text_of(reply)
    if got is None:
        return 0
    if _LONG in got:
        return None
    begin = got.find(_ODD)
    came = got[begin:] if begin >= 0 else got
    kept = _shared(came, _LONG)
    rest = came[kept:]
    tail = _shared(rest[::-1], _LONG[::-1])
    notice = rest[: len(rest) - tail]
    shortened = kept >= len(_ODD) and (not rest or (notice.strip() and not _of_text(notice)))
    if not shortened:
        raise Failed(f"{name} gives back short texts to the letter, but {_difference(_LONG, got, reply)}")
    return kept


def _of_text(notice: str) -> bool:
    """True for a gap filled with parts of the text itself (moved, repeated, cut), which no tool's mark is."""
    return notice in _LONG or any(notice[at : at + 24] in _LONG for at in range(0, len(notice) - 24, 24))


def _difference(text: str, got: str, reply: Reply) -> str:
    begin = max(0, got.find(text[:16]))
    same = _shared(got[begin:], text)
    pieces = reply.pieces
    words = f"{len(text)} characters sent, {len(got)} came back; they part after {same}"
    if len(pieces) > 1:
        words += f", in a stream of {len(pieces)} pieces"
    return f"{words}: sent {text[same : same + 24]!r}, got {got[begin + same : begin + same + 24]!r}"


def _shared(one: str, other: str) -> int:
    """Length of the common prefix."""
    differing = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))
