"""Non-blocking structured logs: a bounded queue, and a thread that writes its lines.

A log pipe that is not drained must not stop the server: when the queue is full, lines are dropped and
counted, and the count is logged when there is room again.
"""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Literal, TextIO, cast

import structlog
from pydantic_core import to_json

from .plain import one_line, safe
from .tracing import current_hide, current_trace

__all__ = ["LogWriter", "configure", "get_logger", "set_level"]

_QUEUE_LINES = 10_000
_dumps = partial(json.dumps, default=repr, ensure_ascii=False, separators=(",", ":"))
_PLAIN = {str, int, float, bool, type(None)}
_PAUSE_S = 0.01  # between writes: each wakes a thread, which costs more than a line
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Logger:
    """A logger that is bound once for each configuration; structlog's own is bound for each line."""

    __slots__ = ("_bound", "_module", "_processors", "_wrapper")

    def __init__(self, module: str) -> None:
        self._module = module
        self._processors = self._wrapper = None

    def __getattr__(self, name: str) -> Any:
        now = structlog.get_config()
        if now["wrapper_class"] is not self._wrapper or now["processors"] is not self._processors:
            self._bound = structlog.get_logger(module=self._module).bind()  # first: other threads log too
            self._wrapper, self._processors = now["wrapper_class"], now["processors"]
        return getattr(self._bound, name)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger of the server; its lines go where ``configure`` directs them."""
    return cast("structlog.typing.FilteringBoundLogger", _Logger(name))


class LogWriter:
    """Thread that writes queued lines to a stream, in batches."""

    def __init__(self, stream: TextIO, *, lines: int = _QUEUE_LINES) -> None:
        self._stream = stream
        self._most = lines
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._dropped = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orsay-log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue a line without blocking."""
        if self._queue.qsize() < self._most:
            self._queue.put(line)
        else:
            self._dropped += 1

    # the names under which structlog calls its logger
    msg = log = debug = info = warning = error = critical = exception = failure = fatal = write

    def close(self, timeout_s: float = 2.0) -> None:
        """Write the queued lines, within the time limit."""
        self._queue.put(None)
        self._closed.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        lines: list[str | None] = []
        cut = ""
        while None not in lines:
            lines = [self._queue.get(), *(self._queue.get() for _ in range(self._queue.qsize()))]
            dropped, self._dropped = self._dropped, 0
            text = "".join(f"{line}\n" for line in lines if line is not None)
            if dropped:
                text = json.dumps({"event": "log_lines_dropped", "lines": dropped}) + "\n" + text
            try:
                self._stream.write(cut + text)
                self._stream.flush()
                cut = ""
            except BlockingIOError:  # a full pipe that another process made non-blocking
                self._dropped += len(lines)
                cut = "\n"  # ends the line that was cut
            except (OSError, ValueError):  # the stream is closed: it cannot be reported
                return
            self._closed.wait(_PAUSE_S)


def configure(
    level: Literal["debug", "info", "warning", "error"] = "info",
    style: Literal["auto", "console", "json"] = "auto",
    stream: TextIO | None = None,
) -> LogWriter:
    """Send the server's log to ``stream`` (standard error), readable on a terminal, else as JSON."""
    target = stream if stream is not None else sys.stderr
    writer = LogWriter(target)
    on_terminal = style == "console" or (style == "auto" and target.isatty())
    processors: list[Any] = (
        [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            _spell_out,
            structlog.dev.ConsoleRenderer(colors=target.isatty(), sort_keys=False),
        ]
        if on_terminal
        else [_json_line]
    )
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_Relay()], force=True)
    return writer


def set_level(level: Literal["debug", "info", "warning", "error"]) -> None:
    """Log from that level on; the rest stays as ``configure`` made it."""
    structlog.configure(
        **{**structlog.get_config(), "wrapper_class": structlog.make_filtering_bound_logger(_LEVELS[level])}
    )


def _json_line(logger: object, method: str, event: structlog.typing.EventDict) -> str:
    """The line of an event: one processor, since a session's end is logged, and four would take longer.

    Control characters are spelled as JSON spells them, so that it stays the same JSON.
    """
    structlog.processors.add_log_level(logger, method, event)
    now = time.time()
    event["timestamp"] = f"{_second(int(now))}.{int(now % 1 * 1e6):06d}Z"
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(logger, method, event)
    return safe(_as_json(event))


def _as_json(event: Mapping[str, Any]) -> str:
    """Values that JSON does not know as their repr, into which to_json would look: it may hide a field."""
    if _PLAIN.issuperset(map(type, event.values())):
        with suppress(ValueError):  # a lone surrogate
            return to_json(event, inf_nan_mode="constants").decode()
    try:
        return _dumps(event)
    except (TypeError, ValueError, RecursionError):  # keys that are no text, a cycle
        return _dumps(
            {name: value if type(value) in _PLAIN else repr(value) for name, value in event.items()}
        )


@lru_cache(2)
def _second(number: int) -> str:
    """A second since 1970, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(number))


def _spell_out(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape control characters: untrusted text can neither control the terminal nor forge a line.

    Tracebacks are plain, since rich's show the values of variables, such as keys. Their lines are indented,
    unlike lines of the log.
    """
    rendered = structlog.processors.format_exc_info(logger, method, event)
    traceback = rendered.pop("exception", None)
    found = {one_line(key): _spelled(value) for key, value in rendered.items()}
    if traceback:
        found["exception"] = "\n".join(f"  {line}" for line in safe(str(traceback)).split("\n"))
    return found


def _spelled(value: Any) -> Any:
    """A text with control characters escaped; other values unchanged unless their repr contains some."""
    if isinstance(value, str):
        return one_line(value)
    shown = repr(value)
    return value if shown.isprintable() else one_line(shown)


class _Relay(logging.Handler):
    """Handler that sends log records of libraries through the same queue, so that they cannot block."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = get_logger(record.name)
        log = logger.error if record.levelno >= logging.ERROR else logger.warning
        trace, hide = current_trace(), current_hide()
        more: dict[str, Any] = {"trace": trace} if trace else {}
        if hide and record.exc_info:  # environment code in this process
            more["exception"] = hide.plain("".join(traceback.format_exception(*record.exc_info)))
        elif record.exc_info:
            more["exc_info"] = record.exc_info
        log("library", message=hide.plain(record.getMessage()), **more)
