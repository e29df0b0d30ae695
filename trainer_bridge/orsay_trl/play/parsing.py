"""A guard around the parser of a tokenizer: TRL takes most of what it raises for plain text, but not all.

Without it, arguments that are nested without end stop a training: json raises RecursionError, TRL catches
ValueError and TypeError.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["guard", "unguarded"]

_NAME = "parse_response"
_LEVELS = 100  # of the calls between here and where a chat template writes a message again, and some more


class _Guarded:
    """``parse_response`` of one tokenizer. Raises ValueError for a turn that is no message."""

    def __init__(self, tokenizer: Any, rendered: bool) -> None:
        self._tokenizer, self._rendered = tokenizer, rendered

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            found = getattr(type(self._tokenizer), _NAME)(self._tokenizer, *args, **kwargs)
            if self._rendered:
                _write(found)
        except (RecursionError, LookupError) as exc:
            raise ValueError(f"a turn of the model cannot be read: {exc}") from exc
        return found


def guard(tokenizer: Any, *, rendered: bool) -> None:
    """Wrap the parser of ``tokenizer``, once; a tokenizer without a parser stays as it is.

    ``rendered``: what is parsed goes through the chat template again, so it must be possible to write it.
    """
    if hasattr(type(tokenizer), _NAME) and not isinstance(tokenizer.__dict__.get(_NAME), _Guarded):
        tokenizer.__dict__[_NAME] = _Guarded(tokenizer, rendered)


def unguarded(tokenizer: Any) -> None:
    """Take it from a copy of a tokenizer, where it would go on to read with the original."""
    tokenizer.__dict__.pop(_NAME, None)


def _write(found: Any) -> None:
    """Raises RecursionError, or UnicodeEncodeError for half of a surrogate pair."""
    for _ in range(_LEVELS):
        found = [found]
    json.dumps(found, ensure_ascii=False).encode()
