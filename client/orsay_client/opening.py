"""Opening and closing of a session on the wire: /create_session, /create, /delete."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from orsay_protocol.headers import IDEMPOTENCY_KEY, SECRETS, TRACE, encode_secrets
from orsay_protocol.sse import Decoder
from orsay_protocol.trace import TRACEPARENT, read_traceparent

from . import errors
from .answers import detail_of, error_for, is_orsay
from .connection import Connection
from .redact import Redact
from .retry import Attempts
from .streams import EVENT_STREAM
from .transport import Answer

__all__ = ["Created", "Opening", "create", "delete", "env_path", "new_sid"]

_log = logging.getLogger("orsay_client")
_AMBIGUOUS = frozenset({502, 504})


def env_path(env_name: str | None, path: str) -> str:
    """``/<env>/x`` for a named environment, ``/x`` for the server's default one."""
    return path if env_name is None else f"/{quote(env_name, safe='')}{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Request for a session. ``body`` holds the task source; secrets are in no repr."""

    env_name: str | None
    body: Mapping[str, Any] = field(repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets_in_body: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    def path(self, path: str) -> str:
        return env_path(self.env_name, path)

    @property
    def trace(self) -> str:
        """Trace id of the requested ``traceparent``, or ""."""
        found = read_traceparent(self.headers.get(TRACEPARENT))
        return "" if found is None else found.trace


class Created(NamedTuple):
    """``at_most_once``: the server runs calls once per idempotency key. ``trace`` is its header, or ""."""

    at_most_once: bool
    trace: str


async def new_sid(connection: Connection, opening: Opening, redact: Redact) -> str:
    """A session id from the server, which sends it as JSON or as a stream."""
    headers = {**opening.headers, **EVENT_STREAM}
    answer = await connection.request("POST", "/create_session", body={}, headers=headers, redact=redact)
    sid = (
        _sid_of_stream(answer, redact)
        if "event-stream" in answer.headers.get("content-type", "")
        else _sid(answer.json())
    )
    if not sid:
        raise errors.ProtocolError(
            "POST /create_session: the answer holds no session id; is this an ORS server?"
        )
    return sid


async def create(
    connection: Connection, opening: Opening, headers: Mapping[str, str], redact: Redact
) -> Created:
    """Open the session: POST /create.

    The session id makes a repeated /create harmless: a server that has the session answers as before.
    """
    body = dict(opening.body)
    sent = {**headers, IDEMPOTENCY_KEY: uuid.uuid4().hex}
    if opening.env_name is not None:
        body["env_name"] = opening.env_name
    if opening.secrets and opening.secrets_in_body:
        body["secrets"] = dict(opening.secrets)
    elif opening.secrets:
        sent[SECRETS] = encode_secrets(opening.secrets)
    attempts = Attempts(connection.settings.retry)
    may_exist = False
    while True:
        try:
            answer = await connection.transport.send("POST", "/create", body=body, headers=sent)
        except errors.ConnectionLost as lost:
            may_exist = may_exist or lost.may_have_run
            delay = attempts.after_break()
            if delay is None:
                raise errors.ConnectionLost(redact(lost.message), may_have_run=may_exist) from lost
        else:
            if answer.status == 200 or (may_exist and _already_exists(answer)):
                return Created(is_orsay(answer), answer.headers.get(TRACE, ""))
            may_exist = may_exist or answer.status in _AMBIGUOUS
            delay = attempts.after_answer(answer.status, answer.headers)
            if delay is None:
                raise error_for(answer, "POST /create", in_session=False, redact=redact)
        _log.debug("POST /create: trying again in %.2f s", delay)
        await asyncio.sleep(delay)


async def delete(connection: Connection, headers: Mapping[str, str], *, also_sid: bool) -> None:
    """End the session on the server, within the client's time for closing; never raises.

    ``also_sid`` sends /delete_session too, which means something on some hosted servers.
    """
    attempts = Attempts(connection.settings.retry)
    with suppress(TimeoutError):
        async with asyncio.timeout(connection.settings.close_timeout_s):
            while not await _deleted(connection, "/delete", headers):
                delay = attempts.after_break()
                if delay is None:
                    return
                await asyncio.sleep(delay)
            if also_sid:
                await _deleted(connection, "/delete_session", headers)
            return
    _log.warning("the server did not confirm the end of a session within the time for closing")


async def _deleted(connection: Connection, path: str, headers: Mapping[str, str]) -> bool:
    try:
        answer = await connection.transport.send("POST", path, headers=headers)
    except (errors.OrsayClientError, RuntimeError) as exc:  # RuntimeError: the interpreter is shutting down
        _log.debug("POST %s failed: %s", path, exc)
        return False
    return answer.status < 500 and answer.status != 429


def _already_exists(answer: Answer) -> bool:
    return answer.status in (400, 409) and "already exists" in detail_of(answer).lower()


def _sid(raw: Any) -> str:
    sid = raw.get("sid") if isinstance(raw, dict) else None
    return sid if isinstance(sid, str) else ""


def _sid_of_stream(answer: Answer, redact: Redact) -> str:
    sid = ""
    for event in Decoder().feed(answer.body):
        if event.event == "task_id":
            sid = event.data.strip()
        elif event.event == "end" and event.data.strip():
            with suppress(ValueError):
                sid = _sid(json.loads(event.data)) or sid
        elif event.event == "error":
            raise errors.ServerError(redact(f"POST /create_session: {event.data}"))
    return sid
