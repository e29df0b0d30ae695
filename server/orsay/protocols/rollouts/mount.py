"""Mount of the rollout endpoint: clients log rollouts that they play, here or anywhere, into the journal."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from orsay_protocol.redact import Redactor, redactor
from pydantic import BaseModel
from pydantic_core import to_json

from ...errors import JournalDown, TooLarge
from ...http.opening import secrets_of
from ...http.operations import Operation
from ...http.request import Endpoint, Request
from .events import Events

if TYPE_CHECKING:  # SQLAlchemy is loaded with a journal only
    from ...journal.write.writer import Writer
    from .recording import Outcome, Recording

__all__ = ["MOST_MESSAGES", "RolloutMount"]

MOST_MESSAGES = 10_000
"""Messages and updates of one rollout that are kept."""

_PATH = "/v1/rollouts"
_NAMED = 5
_OFF = "the journal is off, so no rollout is stored: start the server with ORSAY_JOURNAL=auto, or a path"


class Stored(BaseModel):
    """Answer to stored events: their number."""

    stored: int


class RolloutMount:
    """``POST /v1/rollouts``. ``secrets`` has the redactors of an owner's newest sessions.

    Without a ``journal`` it refuses all rollouts, with a status that clients do not retry.
    """

    operations = (
        Operation(
            "post",
            _PATH,
            "Store events of rollouts that the client plays; messages of a rollout follow its own event.",
            Stored,
            body=Events,
            session=False,
            errors=(400, 401, 404, 409, 413, 422, 503),
            tag="rollouts",
            name="log_rollouts",
        ),
    )

    def __init__(
        self,
        journal: Writer | None,
        secrets: Callable[[str], Sequence[Redactor]],
        *,
        max_body_bytes: int,
        most_messages: int = MOST_MESSAGES,
    ) -> None:
        self._journal = journal
        self._secrets = secrets
        self._max_body = max_body_bytes
        self._most = most_messages
        self._recording: Recording | None = None

    def find(self, path: str) -> Mapping[str, Endpoint]:
        return {"POST": self._post} if path == _PATH else {}

    def find_socket(self, path: str) -> Endpoint | None:
        return None

    async def close(self) -> None:
        """It holds nothing."""

    async def _post(self, request: Request) -> None:
        if self._journal is None:
            await _refuse(request, 409, "journal_off", _OFF)
            return
        body = await request.body(self._max_body)
        own = redactor([*(secrets_of(request) or {}).values(), *_key(request)])
        hides = [own, *self._secrets(request.owner)]
        recording = await self._recorder(self._journal)
        client = request.header(b"user-agent") or ""
        try:
            outcome = await recording.record(body, request.owner, client, hides)
        except JournalDown as down:
            await _refuse(request, 503, "journal_down", str(down), more=((b"retry-after", b"5"),))
        else:
            await self._answer(request, outcome)

    async def _recorder(self, journal: Writer) -> Recording:
        if self._recording is None:
            module = await asyncio.to_thread(importlib.import_module, ".recording", __package__)
            self._recording = module.Recording(journal, most_messages=self._most)
        return self._recording

    async def _answer(self, request: Request, outcome: Outcome) -> None:
        if outcome.unknown:
            text = (
                f"there is no rollout {_named(outcome.unknown)} of this key: send its event 'rollout' first."
                f" {outcome.stored} other events are stored"
            )
            await _refuse(request, 404, "unknown_rollout", text)
        elif outcome.full:
            raise TooLarge(
                f"rollout {_named(outcome.full)} has {self._most} messages, as many as are kept."
                f" {outcome.stored} other events are stored"
            )
        else:
            await request.send_json(to_json({"stored": outcome.stored}))


def _key(request: Request) -> list[str]:
    """The API key of the request, which must not be stored with what its client logs."""
    scheme, _, token = (request.header(b"authorization") or "").partition(" ")
    return [
        key.strip()
        for key in (request.header(b"x-api-key") or "", token if scheme.lower() == "bearer" else "")
        if key.strip()
    ]


def _named(events: Sequence[str]) -> str:
    more = f" and {len(events) - _NAMED} more" if len(events) > _NAMED else ""
    return ", ".join(events[:_NAMED]) + more


async def _refuse(
    request: Request, status: int, code: str, text: str, *, more: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    headers = ((b"x-orsay-code", code.encode()), *more)
    await request.send_json(to_json({"detail": text}), status=status, headers=headers)
