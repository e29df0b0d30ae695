"""Frames between the server and a worker process, over a socket pair.

A frame is a header (payload length, kind, number, session) and a payload of bytes. The number names the
request that a frame belongs to; the session is 0 in frames without one. Results are forwarded as the bytes
they were serialised to.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from orsay_protocol.faults import FaultClass
from pydantic import BaseModel
from pydantic_core import from_json, to_json

from ...errors import REFUSALS, Faulted, Refused
from ..outcome import Outcome

__all__ = [
    "FrameReader",
    "Kind",
    "Outbox",
    "WorkerConfig",
    "error_frame",
    "pack_outcome",
    "read_error",
    "unpack_outcome",
]


class Kind:
    """Kinds of frames: up to EXIT from server to worker, from HELLO on from worker to server.

    Plain integers: access to a member of an enum takes 0.2 us in Python 3.11, as long as to pack a frame.
    """

    OPEN: Final = 1
    CALL: Final = 2
    PROMPT: Final = 3
    MESSAGES: Final = 4
    TASK_TOOLS: Final = 5
    SCORE: Final = 6
    STOP: Final = 7
    CLOSE: Final = 8
    TASKS: Final = 9
    HEARTBEAT: Final = 10
    EXIT: Final = 11

    HELLO: Final = 32
    OUTCOME: Final = 33
    DATA: Final = 34
    ERROR: Final = 35
    SETUP_DONE: Final = 36
    SETUP_ERROR: Final = 37
    STATE: Final = 38
    SLOW: Final = 39


class WorkerConfig(BaseModel):
    """First frame that a worker reads: what to load and under which limits."""

    targets: list[str]
    sys_path: list[str]
    argv: list[str]
    call_time_limit_s: float
    setup_time_limit_s: float
    teardown_time_limit_s: float
    max_result_bytes: int
    threads: int
    slow_after_s: float = 0.02
    hash_seed: int | Literal["random"] = "random"
    """PYTHONHASHSEED of the worker, which Python reads only when it starts."""
    hidden_variables: list[str] = []
    """Environment variables that the worker must not have: keys of other servers."""
    variables: dict[str, str] = {}
    """Environment variables that the worker gets besides this process's."""
    folders: dict[str, str] = {}
    """Folders by the paths at which the worker alone sees them, read-only."""
    folders_required: bool = False
    """True if the worker must not load its code without them."""


Frame: TypeAlias = tuple[int, int, int, bytes]
"""Kind, number, session and payload."""

_HEADER = struct.Struct("<IBII")
_OUTCOME = struct.Struct("<Bdff")
_LENGTH = struct.Struct("<Q")
_FINISHED, _REWARD, _TIMED, _DISCARDED = 1, 2, 4, 8


class FrameReader:
    """Splits a byte stream into frames."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of an incomplete frame; joined once, when it is complete
        self._missing = 0

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes."""
        frames: list[Frame] = []
        if self._parts:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return frames
            data = b"".join(self._parts)
            self._parts.clear()
        at, end, wanted = 0, len(data), _HEADER.size
        while end - at >= _HEADER.size:
            size, kind, number, session = _HEADER.unpack_from(data, at)
            begin = at + _HEADER.size
            stop = begin + size
            if stop > end:
                wanted = _HEADER.size + size
                break
            frames.append((kind, number, session, data[begin:stop]))
            at = stop
        if at < end:
            self._parts.append(data[at:])
            self._missing = wanted - (end - at)
        return frames


class Outbox:
    """Sends frames; those of one turn of the loop leave in one write."""

    __slots__ = ("_frames", "_loop", "_write")

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._frames: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._write = write

    def send(self, kind: int, number: int, payload: bytes = b"", *, session: int = 0) -> None:
        if not self._frames:
            self._loop.call_soon(self._flush)
        self._frames.append(_HEADER.pack(len(payload), kind, number, session) + payload)

    def close(self) -> None:
        """Drop all unsent and later frames: the other end of the socket is closed."""
        self._write = _drop

    def _flush(self) -> None:
        frames, self._frames = self._frames, []
        self._write(b"".join(frames))


def _drop(_data: bytes) -> None:
    """Replacement for ``_write`` of a closed outbox."""


def pack_outcome(outcome: Outcome) -> bytes:
    """Payload of OUTCOME, for an outcome without a fault."""
    flags = (_FINISHED if outcome.finished else 0) | (_REWARD if outcome.reward is not None else 0)
    if outcome.run_s is not None:
        flags |= _TIMED
    rest = outcome.wire
    if outcome.discarded:
        flags |= _DISCARDED
        rest = _LENGTH.pack(len(outcome.wire)) + outcome.wire + outcome.discarded
    return _OUTCOME.pack(flags, outcome.reward or 0.0, outcome.queue_s or 0.0, outcome.run_s or 0.0) + rest


def unpack_outcome(payload: bytes) -> Outcome:
    flags, reward, queue_s, run_s = _OUTCOME.unpack_from(payload)
    wire, discarded = payload[_OUTCOME.size :], b""
    if flags & _DISCARDED:
        (size,) = _LENGTH.unpack_from(wire)
        wire, discarded = wire[_LENGTH.size : _LENGTH.size + size], wire[_LENGTH.size + size :]
    return Outcome(  # by position: names would double the time
        wire,
        reward if flags & _REWARD else None,
        bool(flags & _FINISHED),
        None,
        discarded,
        queue_s if flags & _TIMED else None,
        run_s if flags & _TIMED else None,
    )


def error_frame(error: Faulted | Refused) -> bytes:
    """Payload of ERROR and SETUP_ERROR."""
    if isinstance(error, Faulted):
        return to_json({"fault": error.fault, "message": error.message, "trace": error.trace})
    return to_json({"refused": error.code, "detail": error.detail})


def read_error(payload: bytes) -> Faulted | Refused:
    content = from_json(payload)
    if "fault" in content:
        fault: FaultClass = content["fault"]
        found = Faulted(fault, content["message"])
        found.trace = content["trace"]
        return found
    kind = REFUSALS.get(content["refused"], Refused)
    return kind(content["detail"])
