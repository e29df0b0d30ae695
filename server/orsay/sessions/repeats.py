"""Comparison of a request with an earlier call, independent of the spelling of JSON."""

from __future__ import annotations

import json
from hashlib import blake2b

from pydantic_core import from_json, to_json

from ..journal.values import input_of
from ..runtimes.base import Operation
from .call import Call

__all__ = ["is_repeated"]

_SORTED_BYTES = 100_000


def is_repeated(call: Call, operation: Operation, body: bytes) -> bool:
    """True if the request equals the one that made the call, independent of the spelling of JSON."""
    if call.operation != operation or call.body is None:
        return False
    if call.body == body:
        return True
    if call.meaning is None:
        call.meaning = _meaning(operation, call.body)
    return call.meaning == _meaning(operation, body)


def _meaning(operation: Operation, body: bytes) -> bytes:
    """Digest of a request's canonical form, equal for bodies that differ only in spelling (client, journal).

    In large bodies the order of names counts, since sorting them would take long.
    """
    try:
        found = from_json(body)
        asked = [found["name"], found["input"]] if operation == "call" else {**found, "task_id": None}
        text = to_json(asked)
        if len(text) <= _SORTED_BYTES:
            text = json.dumps(json.loads(text), sort_keys=True).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        text = _unusual(operation, body)
    return blake2b(text, digest_size=16).digest()


def _unusual(operation: Operation, body: bytes) -> bytes:
    """Text to compare for a body without input, or with a lone surrogate."""
    try:
        found = json.loads(body)
        if operation == "call":
            found = [found["name"], json.loads(input_of("call", body))]
        else:
            found.pop("task_id", None)
        return json.dumps(found, sort_keys=True).encode()
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return body
