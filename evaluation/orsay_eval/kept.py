"""Append-only log of ended episodes, one JSON line each, from which an interrupted evaluation resumes.

The first line describes the evaluation. An incomplete last line is ignored; the later of two lines of one
attempt counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from orsay_protocol.evaluation import EvaluatedEpisode

from .errors import EvaluationError
from .play import Attempt, Played

__all__ = ["Kept", "lines_beside"]


def lines_beside(output: Path) -> Path:
    """Path of the file with the episodes of the report ``output``."""
    return output.with_name(f"{output.stem}.episodes.jsonl")


class Kept:
    """The file of one evaluation. Open it with ``begin``, and close it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.played: dict[Attempt, Played] = {}
        self.header: dict[str, Any] = {}
        self.seconds = 0.0
        self._file: IO[str] | None = None

    def begin(self, header: Mapping[str, Any], *, resume: bool) -> None:
        """Create the file, or read it to resume; ``header["measured"]`` must be equal then.

        Raises EvaluationError where that is not possible, OSError where the file cannot be written.
        """
        exists = self.path.exists() and self.path.stat().st_size > 0
        if exists and not resume:
            raise EvaluationError(
                f"{self.path} exists already: resume that evaluation (--resume), or write to another file"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Lone surrogates are written as JSON escapes.
        self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")
        try:
            self._lock()
            whole = self._read() if exists else True
            if not self.header and self.played:
                raise EvaluationError(
                    f"{self.path} does not begin with what was measured; write to another file"
                )
            if not self.header:
                self.header = dict(header)
                self._file.truncate(0)
                self._write({"header": self.header})
                return
            self._check(header)
            if not whole:
                self._file.write("\n")
        except BaseException:
            self.close()
            raise

    def add(self, played: Played) -> None:
        """Append an episode; it is in the file when this returns."""
        episode = played.episode
        self.played[Attempt(episode.index, episode.attempt)] = played
        latencies = [round(seconds, 4) for seconds in played.latencies]
        self._write({"episode": episode.model_dump(mode="json"), "latencies": latencies})

    def part(self, seconds: float) -> None:
        """Record the duration of one part of the evaluation."""
        self.seconds += seconds
        self._write({"part": {"seconds": seconds}})

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
            self._file.flush()

    def _read(self) -> bool:
        """Read the file; False where the last line was cut off."""
        data = self.path.read_bytes()
        for line in data.split(b"\n"):  # the only line end: JSON strings may contain others
            try:
                self._take(json.loads(line.decode(errors="replace")))
            except (ValueError, KeyError, TypeError, RecursionError):
                continue  # incomplete; its episode is played again
        return data.endswith(b"\n")

    def _take(self, line: Mapping[str, Any]) -> None:
        if "header" in line:
            self.header = dict(line["header"])
        elif "part" in line:
            self.seconds += float(line["part"]["seconds"])
        else:
            episode = EvaluatedEpisode.model_validate(line["episode"])
            latencies = tuple(float(seconds) for seconds in line.get("latencies", ()))
            self.played[Attempt(episode.index, episode.attempt)] = Played(episode, latencies)

    def _check(self, header: Mapping[str, Any]) -> None:
        was, now = self.header.get("measured") or {}, json.loads(json.dumps(header["measured"]))
        changed = [name for name in {**was, **now} if not _same(was.get(name), now.get(name))]
        if changed:
            changes = "; ".join(f"{name} was {was.get(name)!r}, is {now.get(name)!r}" for name in changed)
            raise EvaluationError(
                f"{self.path} is of another evaluation ({changes}): give the same options, or another file"
            )

    def _lock(self) -> None:
        assert self._file is not None
        try:
            import fcntl  # not on every platform
        except ImportError:
            return
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise EvaluationError(f"{self.path}: another process (not {os.getpid()}) writes to it") from exc


def _same(was: Any, now: Any) -> bool:
    return was == now or json.dumps(was, sort_keys=True) == json.dumps(now, sort_keys=True)  # NaN is not NaN
