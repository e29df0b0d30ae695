"""Answer of a call, parsed as strictly as the strictest client does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
from orsay_protocol.sse import Event

from .failures import expect
from .strict import read_json, utf8

__all__ = ["Reply"]

_KNOWN = ("task_id", "chunk", "end", "error")


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of ``/call`` or ``/score_group``, read to its end."""

    status: int
    headers: httpx.Headers
    body: bytes
    events: list[Event]

    @property
    def kinds(self) -> list[str]:
        """Names of the events that the standard defines."""
        return [event.event for event in self.events if event.event in _KNOWN]

    @property
    def task_id(self) -> str:
        found = [event.data for event in self.events if event.event == "task_id"]
        expect(len(found) == 1, f"the stream holds {len(found)} task_id events, not one: {self.body[:200]!r}")
        return found[0]

    @property
    def raised(self) -> str | None:
        """The text of the error event if there is no result: the tool raised, or the task is unknown."""
        if self.status != 200 or self.kinds not in (["task_id", "error"], ["error"]):
            return None
        return next(event.data for event in self.events if event.event == "error")

    @property
    def pieces(self) -> list[str]:
        """Data of the ``chunk`` and ``end`` events, which together are the result."""
        return [event.data for event in self.events if event.event in ("chunk", "end")]

    @property
    def result(self) -> dict[str, Any]:
        """The JSON result from ``chunk`` and ``end``. Raises Failed if the stream is incomplete."""
        expect(self.status == 200, f"a call answered {self.status}: {self.body[:200]!r}")
        kind = self.headers.get("content-type", "")
        expect(kind.startswith("text/event-stream"), f"a call answered with the content type {kind!r}")
        utf8(self.body, "the stream")
        kinds = self.kinds
        expect(kinds[-1:] == ["end"], f"the stream does not end with end: {self.body[-200:]!r}")
        expect(
            kinds[0] == "task_id" and set(kinds[1:-1]) <= {"chunk"},
            f"the stream is not task_id, chunks and one end, but {kinds[:4]} to {kinds[-2:]}",
        )
        result = read_json("".join(self.pieces), "what chunk and end carry together")
        expect(isinstance(result, dict), f"the result of a call is no JSON object: {result!r:.200}")
        return dict(result)

    @property
    def output(self) -> dict[str, Any]:
        """The output of a successful call. Raises Failed for a refusal."""
        result = self.result
        expect(result.get("ok") is True, f"the call is refused: {result!r:.200}")
        expect(isinstance(result.get("output"), dict), f"the result has no output: {result!r:.200}")
        return dict(result["output"])

    @property
    def text(self) -> str:
        """All text of the output."""
        return "".join(str(block.get("text", "")) for block in self.output.get("blocks", []))
