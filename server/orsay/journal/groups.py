"""Rows as they go into the tables: decoded, without secrets, large values apart, and by table."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from .rows import CallEnded, CallStarted, EvaluationSaved, Prompted, Row, SessionEnded, SessionOpened
from .values import LARGE_CHARS, input_of, is_large, pack, redactor, result_of

__all__ = ["COLUMNS", "Group", "Params", "encode", "writable"]

Params: TypeAlias = tuple[Any, ...]

COLUMNS = {
    "sessions": "id sid server environment split task_index task owner client run labelled step rollout"
    " labels trace digest replayable secrets started_at",
    "ends": "id ended_at end_reason fault calls faults reward reward_sum finished setup_s",
    "calls": "id session number kind task_id key name input result reward finished discarded fault fault_id"
    " message started_at queue_s run_s stream_s total_s",
    "prompts": "session kind text",
    "scores": "call candidate session reward detail",
    "large_values": "row field session data",
    "evaluations": "id name run owner environment split model started_at ended_at summary report",
}
"""The order of the columns in each list of a Group; ``ends`` are columns of sessions."""


@dataclass(slots=True)
class Group:
    """What is committed together. Rows of one key are there once: the last one."""

    sessions: dict[int, Params] = field(default_factory=dict)
    calls: dict[int, Params] = field(default_factory=dict)
    prompts: dict[tuple[int, str], Params] = field(default_factory=dict)
    scores: dict[tuple[int, int], Params] = field(default_factory=dict)
    large_values: dict[tuple[int, str], Params] = field(default_factory=dict)
    evaluations: dict[int, Params] = field(default_factory=dict)
    ends: dict[int, Params] = field(default_factory=dict)

    def keep(self, row: int, name: str, session: int, text: str | None) -> str | None:
        """The text for the row's own column; a large one goes beside the row, and None is for the column."""
        if text is None or not is_large(text):
            return text
        self.large_values[row, name] = (row, name, session, pack(text))
        return None


def encode(rows: Iterable[Row]) -> Group:
    """One group of rows. Order counts: what comes later of the same key is kept."""
    group = Group()
    for row in rows:
        _ADDERS[type(row)](group, row)
    return group


def _session_opened(group: Group, row: SessionOpened) -> None:
    request = row.request.decode(errors="replace")
    if row.hide:
        hide = redactor(row.hide)
        request = hide.json(request)
        row = row._replace(
            sid=hide.plain(row.sid),
            client=hide.plain(row.client),
            run=hide.plain(row.run),
            rollout=row.rollout and hide.plain(row.rollout),
            labels=row.labels and hide.json(row.labels),
        )
    group.sessions[row.id] = (*row[:17], bool(row.hide), row.started_at)
    group.large_values[row.id, "request"] = (row.id, "request", row.id, pack(request))


def _session_ended(group: Group, row: SessionEnded) -> None:
    if row.hide:
        row = row._replace(end_reason=redactor(row.hide).plain(row.end_reason))
    group.ends[row.id] = row[:10]


def _prompted(group: Group, row: Prompted) -> None:
    key = row.session, row.kind
    if key not in group.prompts:
        text = row.data.decode(errors="replace")
        if row.hide:
            text = redactor(row.hide).json(text)
        group.prompts[key] = (*key, group.keep(row.session, row.kind, row.session, text))


def _call_started(group: Group, row: CallStarted) -> None:
    id, session, kind, task_id, key, name, body, started_at, hidden = row
    given = input_of(kind, body)
    if hidden:
        hide = redactor(hidden)
        name, key, given = hide.plain(name), key and hide.plain(key), hide.json(given)
    given_here = group.keep(id, "input", session, given)
    rest = (None, False, False, None, None, None, started_at, None, None, None, None)
    group.calls[id] = (id, session, None, kind, task_id, key, name, given_here, None, *rest)


def _call_ended(group: Group, row: CallEnded) -> None:
    id, session, _, kind, *_ = row
    given, result = input_of(kind, row.body), result_of(row.wire)
    if row.hide:
        hide = redactor(row.hide)
        given, result = hide.json(given), result and hide.json(result)
        row = row._replace(
            name=hide.plain(row.name),
            key=row.key and hide.plain(row.key),
            message=row.message and hide.plain(row.message),
        )
    if kind == "score_group" and result:
        _scores(group, id, session, result)
    given_here = group.keep(id, "input", session, given)
    result_here = group.keep(id, "result", session, result)
    group.calls[id] = (*row[:7], given_here, result_here, *row[9:20])


def _scores(group: Group, call: int, session: int, result: str) -> None:
    try:
        found = json.loads(result)
    except ValueError:
        return
    scores = found.get("scores") if isinstance(found, dict) else None
    for candidate, score in enumerate(scores if isinstance(scores, list) else ()):
        if isinstance(score, dict):
            reward = score.pop("reward", None)
            text = json.dumps(score, ensure_ascii=False, separators=(",", ":"))
            detail = text if any(score.values()) and len(text) <= LARGE_CHARS else None
            number = reward if isinstance(reward, int | float) else None
            group.scores[call, candidate] = (call, candidate, session, number, detail)


def _evaluation_saved(group: Group, row: EvaluationSaved) -> None:
    group.evaluations[row.id] = (*row[:10], zlib.compress(row.report, 6))


def writable(group: Group) -> Group:
    """Without what databases do not take in a text: halves of characters, and zeros."""
    for each in fields(group):
        rows = getattr(group, each.name)
        for key, row in rows.items():
            rows[key] = tuple(_text(value) if isinstance(value, str) else value for value in row)
    return group


def _text(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


_ADDERS: dict[type, Callable[[Group, Any], None]] = {
    SessionOpened: _session_opened,
    SessionEnded: _session_ended,
    Prompted: _prompted,
    CallStarted: _call_started,
    CallEnded: _call_ended,
    EvaluationSaved: _evaluation_saved,
}
