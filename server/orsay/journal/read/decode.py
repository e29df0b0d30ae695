"""Decoding of rows, with JSON in the row or, if large, in a row of ``large_values``.

Unreadable values are shown as text instead of failing the whole page.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import Row

from .models import Block, Image, SandboxItem, Score, Step, Text

__all__ = ["Large", "as_json", "read_blocks", "read_sandbox", "read_step", "read_tools"]

Large = Mapping[tuple[int, str], bytes]
"""Compressed values by the id of their row and the name of their field."""


def as_json(text: str | None, large: Large, row: int, field: str) -> Any:
    """The value of a field, or None."""
    if text is None:
        packed = large.get((row, field))
        if packed is None:
            return None
        try:
            data: str | bytes = zlib.decompress(packed)
        except zlib.error:
            return "(this value is damaged)"
    else:
        data = text
    try:
        return _finite(from_json(data), data)
    except ValueError:
        return data if isinstance(data, str) else data.decode(errors="replace")


def read_blocks(value: Any) -> list[Block]:
    """Blocks of an environment; a plain string becomes one text block."""
    if value is None:
        return []
    return [_block(each) for each in (value if isinstance(value, list) else [value])]


def read_tools(value: Any) -> list[dict[str, Any]] | None:
    """The tools of a session, from the answer of ``/task_tools``."""
    found = value.get("tools") if isinstance(value, dict) else value
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else None


def read_sandbox(row: Any, large: Large) -> SandboxItem:
    """One row of ``sandbox_events``."""
    output, detail = row.output, as_json(row.detail, large, row.id, "detail")
    if output is None and (packed := large.get((row.id, "output"))) is not None:
        output = _unpacked(packed)
    fields = {**row._mapping, "id": str(row.id), "output": output}
    del fields["session"]
    return SandboxItem(**{**fields, "detail": detail if isinstance(detail, dict) else None})


def _unpacked(packed: bytes) -> str:
    try:
        return zlib.decompress(packed).decode(errors="replace")
    except zlib.error:
        return "(this value is damaged)"


def read_step(
    row: Row[Any], large: Large, scores: Sequence[Row[Any]], sandbox: Sequence[SandboxItem] = ()
) -> Step:
    """One call, from its row in ``calls``, its rows in ``scores``, and what it did in sandboxes."""
    result = as_json(row.result, large, row.id, "result")
    output: dict[str, Any] = {}
    error = reason = None
    blocks: list[Block] = []
    if isinstance(result, dict):
        if result.get("ok") is False:
            error, reason = str(result.get("error", "")), result.get("reason")
        elif isinstance(result.get("output"), dict):
            output = result["output"]
            blocks = read_blocks(output.get("blocks"))
    elif result is not None:
        blocks = read_blocks(str(result))
    return Step(
        id=str(row.id),
        number=row.number,
        kind=row.kind,
        task_id=row.task_id,
        name=row.name,
        input=as_json(row.input, large, row.id, "input"),
        blocks=blocks,
        metadata=output.get("metadata"),
        error=error,
        reason=None if reason is None else str(reason),
        reward=row.reward,
        finished=row.finished,
        discarded=row.discarded,
        fault=row.fault,
        fault_id=row.fault_id,
        message=row.message,
        started_at=row.started_at,
        queue_s=row.queue_s,
        run_s=row.run_s,
        stream_s=row.stream_s,
        total_s=row.total_s,
        scores=[
            Score(
                candidate=each.candidate,
                reward=each.reward,
                detail=as_json(each.detail, large, row.id, f"detail {each.candidate}"),
            )
            for each in scores
        ],
        sandbox=list(sandbox),
    )


def _finite(value: Any, data: str | bytes) -> Any:
    """The JSON with null for NaN and Infinity, which some clients send although JSON has neither."""
    text = data if isinstance(data, str) else data.decode(errors="replace")
    if "NaN" in text or "Infinity" in text:
        return from_json(to_json(value, inf_nan_mode="null"))
    return value


def _block(value: Any) -> Block:
    if isinstance(value, dict):
        if isinstance(value.get("data"), str):
            return Image(data=value["data"], mimeType=str(value.get("mimeType", "image/png")))
        if isinstance(value.get("text"), str):
            return Text(text=value["text"])
    return Text(text=str(value))
