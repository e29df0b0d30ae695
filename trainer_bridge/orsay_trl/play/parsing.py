"""Wrapper of a tokenizer's parser, which raises only exceptions that TRL handles.

Without it, deeply nested arguments stop a training: json raises RecursionError, TRL catches ValueError and
TypeError.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["guard", "unguarded"]

_NAME = "parse_response"
_LEVELS = 100  # stack levels between here and the rendering of a chat template, with a margin


class _Guarded:
    """``parse_response`` of one tokenizer. Raises ValueError for an invalid message."""

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

    ``rendered``: parsed messages go through the chat template again, and must be serializable.
    """
    if hasattr(type(tokenizer), _NAME) and not isinstance(tokenizer.__dict__.get(_NAME), _Guarded):
        tokenizer.__dict__[_NAME] = _Guarded(tokenizer, rendered)


def unguarded(tokenizer: Any) -> None:
    """Remove the wrapper from a copied tokenizer, where it would still call the original's parser."""
    tokenizer.__dict__.pop(_NAME, None)


def _write(found: Any) -> None:
    """Serialize. Raises RecursionError, or UnicodeEncodeError for a lone surrogate."""
    for _ in range(_LEVELS):
        found = [found]
    json.dumps(found, ensure_ascii=False).encode()
