"""Reader of the reward and the end of the episode from forwarded results."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

__all__ = ["NotANumber", "NotAResult", "check_scores", "read_result"]

# Inside a JSON string a quote is escaped, so it never follows a comma directly: no text can match this.
_TAIL = re.compile(rb',"reward":(null|-?[0-9][0-9.eE+-]*),"finished":(true|false)\}\}\Z')
_TAIL_BYTES = 128
_SUCCESS = b'{"ok":true,"output":{'
_REFUSAL = b'{"ok":false,'


class NotAResult(ValueError):
    """The data is not the JSON of a call's result."""


class NotANumber(ValueError):
    """The reward is NaN or infinite; the text is the reward."""


def read_result(pieces: Sequence[bytes], *, ours: bool) -> tuple[float | None, bool]:
    """Reward and ``finished`` of the result in ``pieces``. Raises NotAResult and NotANumber.

    Orsay servers write both at the end, where they are read without the rest; other results are parsed
    completely.
    """
    if ours:
        if pieces[0].startswith(_REFUSAL):
            return None, False
        tail = pieces[-1][-_TAIL_BYTES:]
        if len(tail) < _TAIL_BYTES and len(pieces) > 1:
            tail = pieces[-2][-_TAIL_BYTES:] + tail
        found = _TAIL.search(tail) if pieces[0].startswith(_SUCCESS) else None
        if found is not None:
            reward = found.group(1)
            return None if reward == b"null" else _finite(float(reward)), found.group(2) == b"true"
    result = _parsed(pieces)
    if not isinstance(result, dict) or "ok" not in result:
        raise NotAResult("JSON that is no result of a call")
    output = result.get("output")
    if not isinstance(output, dict):
        return None, False
    return _number(output.get("reward")), output.get("finished") is True


def check_scores(pieces: Sequence[bytes]) -> None:
    """Raises NotAResult, and NotANumber for a non-finite score."""
    result = _parsed(pieces)
    scores = result.get("scores") if isinstance(result, dict) else None
    for score in scores if isinstance(scores, list) else ():
        if isinstance(score, dict):
            _number(score.get("reward"))


def _parsed(pieces: Sequence[bytes]) -> Any:
    try:
        return from_json(b"".join(pieces))
    except ValueError as exc:
        raise NotAResult(f"no JSON: {exc}") from exc


def _number(raw: Any) -> float | None:
    if not isinstance(raw, int | float) or isinstance(raw, bool):
        return None
    try:
        return _finite(float(raw))
    except OverflowError:
        raise NotANumber("a number beyond all bounds") from None


def _finite(reward: float) -> float:
    if not math.isfinite(reward):
        raise NotANumber(str(reward))
    return reward
