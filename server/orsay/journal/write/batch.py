"""Batches of rows for the tables: decoded, redacted, grouped by table, with large values apart."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

from orsay_protocol.redact import Redactor

from ..records import (
    CallEnded,
    CallStarted,
    EvaluationSaved,
    Prompted,
    RolloutLogged,
    RolloutOpened,
    Row,
    SandboxUsed,
    SessionEnded,
    SessionOpened,
)
from ..values import LARGE_CHARS, input_of, is_large, pack, result_of

__all__ = [
    "COLUMNS",
    "FIRST_STAYS",
    "SANDBOX_COMMAND_CHARS",
    "SANDBOX_OUTPUT_CHARS",
    "Batch",
    "Params",
    "encode",
    "single",
    "without",
    "writable",
]

Params: TypeAlias = tuple[Any, ...]

COLUMNS = {
    "sessions": "id sid server environment split task_index task owner client run labelled step rollout"
    " labels trace digest replayable secrets hash_seed started_at",
    "calls": "id session number kind task_id key name input result reward finished discarded fault fault_id"
    " message started_at queue_s run_s stream_s total_s after",
    "prompts": "session kind text",
    "asks": "session number kind after digest fault",
    "scores": "call candidate session reward detail",
    "large_values": "row field session data",
    "evaluations": "id name run owner environment split model started_at ended_at summary report",
    "ends": "id ended_at end_reason fault calls faults reward reward_sum finished setup_s",
    "sandbox_events": "id session sandbox kind call what output exit_code timed_out duration_s size_bytes"
    " reason detail started_at",
    "rollouts": "id event owner run name environment variant split step task_spec metadata run_info client"
    " started_at",
    "rollout_messages": "rollout event number kind content summary reference name call reward finished"
    " metadata at",
}
"""The tables in the order of a Batch, and the columns of their rows; ``ends`` are columns of sessions."""

SANDBOX_OUTPUT_CHARS = 16_384
SANDBOX_COMMAND_CHARS = 4_096
"""Characters that are kept of a command in a sandbox, and of its output."""

_OF_NO_SESSION = frozenset({"evaluations", "rollouts", "rollout_messages"})
_FIELDS = {name: tuple(columns.split()) for name, columns in COLUMNS.items()}
_tables = attrgetter(*COLUMNS)
_end = attrgetter(*_FIELDS["ends"])
_ask = attrgetter(*_FIELDS["asks"])
_evaluation = attrgetter(*_FIELDS["evaluations"])
_INPUT = _FIELDS["calls"].index("input")
assert _FIELDS["calls"][_INPUT : _INPUT + 2] == ("input", "result")
_call_before = itemgetter(*map(CallEnded._fields.index, _FIELDS["calls"][:_INPUT]))
_call_after = itemgetter(*map(CallEnded._fields.index, _FIELDS["calls"][_INPUT + 2 :]))
_SECRETS = _FIELDS["sessions"].index("secrets")
_session_before = itemgetter(*map(SessionOpened._fields.index, _FIELDS["sessions"][:_SECRETS]))
_session_after = itemgetter(*map(SessionOpened._fields.index, _FIELDS["sessions"][_SECRETS + 1 :]))

FIRST_STAYS = frozenset(
    {
        "sessions",
        "prompts",
        "asks",
        "large_values",
        "sandbox_events",
        "rollouts",
        "rollout_messages",
    }
)
"""Tables that keep the first row of a key; others keep the last one."""


@dataclass(slots=True)
class Batch:
    """Rows that are committed together, one for each key: the last one, or the first in ``FIRST_STAYS``."""

    sessions: dict[int, Params] = field(default_factory=dict)
    calls: dict[int, Params] = field(default_factory=dict)
    prompts: dict[tuple[int, str], Params] = field(default_factory=dict)
    asks: dict[tuple[int, int], Params] = field(default_factory=dict)
    scores: dict[tuple[int, int], Params] = field(default_factory=dict)
    large_values: dict[tuple[int, str], Params] = field(default_factory=dict)
    evaluations: dict[int, Params] = field(default_factory=dict)
    ends: dict[int, Params] = field(default_factory=dict)
    sandbox_events: dict[int, Params] = field(default_factory=dict)
    rollouts: dict[int, Params] = field(default_factory=dict)
    rollout_messages: dict[tuple[int, str], Params] = field(default_factory=dict)

    def keep(self, row: int, name: str, session: int, text: str | None) -> str | None:
        """The text for the row's column; None for a large one, which is stored in ``large_values``."""
        if text is None or not is_large(text):
            return text
        self.large_values[row, name] = (row, name, session, pack(text))
        return None

    def tables(self) -> tuple[dict[Any, Params], ...]:
        """The rows by their keys, as ``COLUMNS`` orders them; ``Batch(*tables)`` is the batch again."""
        found: tuple[dict[Any, Params], ...] = _tables(self)
        return found

    def take(self, later: Batch) -> int:
        """Merge the rows of a later batch; returns their number."""
        count = 0
        for name, rows in zip(COLUMNS, later.tables(), strict=True):
            if not rows:
                continue
            count += len(rows)
            mine = getattr(self, name)
            if name not in FIRST_STAYS:
                mine.update(rows)
                continue
            for key, row in rows.items():
                mine.setdefault(key, row)
        return count


def encode(rows: Iterable[Row], batch: Batch | None = None) -> Batch:
    """A batch of these rows, or ``batch`` with them. Later rows of the same key replace earlier ones."""
    batch = Batch() if batch is None else batch
    for row in rows:
        _ADDERS[type(row)](batch, row)
    return batch


def _params(table: str, values: Mapping[str, Any]) -> Params:
    """A row of the table, with NULL in columns without a value."""
    return tuple(map(values.get, _FIELDS[table]))


def _session_opened(batch: Batch, row: SessionOpened) -> None:
    request = row.request.decode(errors="replace")
    if row.hide:
        hide = row.hide
        request = hide.json(request)
        row = row._replace(
            sid=hide.plain(row.sid),
            split=row.split and hide.plain(row.split),
            task=hide.plain(row.task),
            client=hide.plain(row.client),
            run=hide.plain(row.run),
            step=None if row.step is not None and hide.hides(row.step) else row.step,
            rollout=row.rollout and hide.plain(row.rollout),
            labels=row.labels and hide.json(row.labels),
        )
    secrets = isinstance(row.hide, Redactor)
    batch.sessions[row.id] = (*_session_before(row), secrets, *_session_after(row))
    batch.large_values[row.id, "request"] = (row.id, "request", row.id, pack(request))


def _session_ended(batch: Batch, row: SessionEnded) -> None:
    if row.hide:
        row = row._replace(end_reason=row.hide.plain(row.end_reason))
    batch.ends[row.id] = _end(row)


def _prompted(batch: Batch, row: Prompted) -> None:
    key = row.session, row.kind
    if row.number:
        batch.asks[row.session, row.number] = _ask(row)
    if row.data and key not in batch.prompts:
        text = row.data.decode(errors="replace")
        if row.hide:
            text = row.hide.json(text)
        batch.prompts[key] = (row.session, row.kind, batch.keep(row.session, row.kind, row.session, text))


def _call_started(batch: Batch, row: CallStarted) -> None:
    given = input_of(row.kind, row.body)
    if row.hide:
        hide = row.hide
        given = hide.json(given)
        row = row._replace(name=hide.plain(row.name), key=row.key and hide.plain(row.key))
    given_here = batch.keep(row.id, "input", row.session, given)
    unknown = {"input": given_here, "finished": False, "discarded": False}
    batch.calls[row.id] = _params("calls", {**row._asdict(), **unknown})


def _call_ended(batch: Batch, row: CallEnded) -> None:
    id, session, kind = row.id, row.session, row.kind
    given, result = input_of(kind, row.body), result_of(row.wire)
    if row.hide:
        hide = row.hide
        given, result = hide.json(given), result and hide.json(result)
        row = row._replace(
            name=hide.plain(row.name),
            key=row.key and hide.plain(row.key),
            message=row.message and hide.plain(row.message),
        )
    if kind == "score_group" and result:
        _scores(batch, id, session, result)
    given_here = batch.keep(id, "input", session, given)
    result_here = batch.keep(id, "result", session, result)
    batch.calls[id] = (*_call_before(row), given_here, result_here, *_call_after(row))


def _scores(batch: Batch, call: int, session: int, result: str) -> None:
    try:
        found = json.loads(result)
    except (ValueError, RecursionError):
        return
    scores = found.get("scores") if isinstance(found, dict) else None
    for candidate, score in enumerate(scores if isinstance(scores, list) else ()):
        if isinstance(score, dict):
            reward = score.pop("reward", None)
            text = json.dumps(score, ensure_ascii=False, separators=(",", ":"))
            detail = text if any(score.values()) and len(text) <= LARGE_CHARS else None
            number = reward if isinstance(reward, int | float) else None
            batch.scores[call, candidate] = (call, candidate, session, number, detail)


def _evaluation_saved(batch: Batch, row: EvaluationSaved) -> None:
    batch.evaluations[row.id] = _evaluation(row._replace(report=zlib.compress(row.report, 6)))


def _sandbox_used(batch: Batch, row: SandboxUsed) -> None:
    hide = row.hide
    what, detail = row.what, row.detail
    output = None if row.output is None else row.output.decode(errors="replace")
    if hide:
        what = hide.plain(what)
        output = output and hide.plain(output)
        detail = detail and hide.json(detail)
    output = output if output is None else _text(output)[:SANDBOX_OUTPUT_CHARS]
    values = {
        **row._asdict(),
        "what": _shortened(_text(what), SANDBOX_COMMAND_CHARS),
        "output": batch.keep(row.id, "output", row.session, output),
        "detail": detail,
    }
    batch.sandbox_events[row.id] = _params("sandbox_events", values)


def _rollout_opened(batch: Batch, row: RolloutOpened) -> None:
    kept = {
        name: batch.keep(row.id, name, row.id, getattr(row, name))
        for name in ("task_spec", "metadata", "run_info")
    }
    batch.rollouts[row.id] = _params("rollouts", {**row._asdict(), **kept})


def _rollout_logged(batch: Batch, row: RolloutLogged) -> None:
    kept = {
        name: batch.keep(row.rollout, f"{name} {row.event}", row.rollout, getattr(row, name))
        for name in ("content", "summary", "reference", "metadata")
    }
    batch.rollout_messages[row.rollout, row.event] = _params("rollout_messages", {**row._asdict(), **kept})


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def without(batch: Batch, sessions: Container[int]) -> tuple[Batch, int]:
    """The batch without the rows of these sessions, and the number of removed rows."""
    others = {name: getattr(batch, name) for name in _OF_NO_SESSION}
    kept, lost = Batch(**others), 0
    for name in COLUMNS.keys() - _OF_NO_SESSION:
        columns = _FIELDS[name]
        at = columns.index("session" if "session" in columns else "id")
        rows, mine = getattr(batch, name), getattr(kept, name)
        mine.update((key, row) for key, row in rows.items() if row[at] not in sessions)
        lost += len(rows) - len(mine)
    return kept, lost


def single(batch: Batch) -> Iterator[Batch]:
    """One batch for each row."""
    for each in fields(batch):
        for key, row in getattr(batch, each.name).items():
            yield Batch(**{each.name: {key: row}})


def writable(batch: Batch) -> Batch:
    """The batch with its texts freed of characters that databases refuse: lone surrogates, and NUL."""
    for each in fields(batch):
        rows = getattr(batch, each.name)
        for key, row in rows.items():
            rows[key] = tuple(_text(value) if isinstance(value, str) else value for value in row)
    return batch


def _text(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


_ADDERS: dict[type, Callable[[Batch, Any], None]] = {
    SessionOpened: _session_opened,
    SessionEnded: _session_ended,
    Prompted: _prompted,
    CallStarted: _call_started,
    CallEnded: _call_ended,
    EvaluationSaved: _evaluation_saved,
    SandboxUsed: _sandbox_used,
    RolloutOpened: _rollout_opened,
    RolloutLogged: _rollout_logged,
}
