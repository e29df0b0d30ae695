"""Opening of a session at an upstream: session id, request, and cleanup after a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from typing import Any

from orsay_protocol.headers import RUN, SECRETS, SESSION_ID, STATE, encode_secrets
from orsay_protocol.sse import Decoder
from orsay_protocol.trace import TRACEPARENT
from pydantic_core import from_json, to_json

from ...errors import BadTask, Faulted, OpeningLost, Refused, Starting, UnknownEnvironment
from ..base import Listener, OpenSession
from .answers import detail_of, error_of
from .backoff import Backoff
from .discovery import env_path
from .handle import RemoteHandle
from .http import Answer, Broken
from .upstream import Upstream

__all__ = ["open_session"]


async def open_session(upstream: Upstream, request: OpenSession, listener: Listener) -> RemoteHandle:
    """Open a session, as ``Runtime.open`` does; raises Starting while the server is down."""
    if not upstream.up:
        raise Starting(f"{upstream.name} is not up: {upstream.problem}; it is tried again")
    upstream.remember_secrets(request.secrets)
    headers, answer = await _new_session(upstream, request)
    handle = RemoteHandle(upstream, env_path(request.key), headers, upstream.hide(request.secrets), listener)
    upstream.sessions.add(handle)
    if answer.headers.get(STATE, "") == "ready":
        listener.setup_ended(None)
    else:
        upstream.spawn(handle.watch_setup())
    return handle


async def _new_session(upstream: Upstream, request: OpenSession) -> tuple[dict[str, str], Answer]:
    """Open a session; returns its headers and the answer of ``/create``.

    A cancellation leaves no session behind. Raises as ``Runtime.open``.
    """
    sid = str(uuid.uuid4()) if upstream.ours else await _new_sid(upstream, request)
    headers = {**upstream.headers, SESSION_ID: sid}
    if request.run is not None:
        headers[RUN] = _as_header(request.run)
    if request.onward is not None:
        headers[TRACEPARENT] = request.onward
    creating = upstream.spawn(_create(upstream, request, headers))
    try:
        return headers, await asyncio.shield(creating)
    except asyncio.CancelledError:
        upstream.spawn(_give_up(upstream, creating, headers))
        raise


def _as_header(text: str) -> str:
    """The header decoded so that the client's bytes are forwarded unchanged."""
    with contextlib.suppress(UnicodeError):
        text = text.encode("latin-1").decode()
    return "".join(char for char in text if char.isprintable())


async def _new_sid(upstream: Upstream, request: OpenSession) -> str:
    """A session id from the server, which sends it as JSON or as a stream."""
    headers = {**upstream.json_headers, "Accept": "text/event-stream"}
    if request.secrets and not upstream.secrets_in_body:  # some hosted servers construct the environment here
        headers[SECRETS] = encode_secrets(request.secrets)
    try:
        answer = await upstream.send("POST", "/create_session", headers, b"{}")
    except Broken as broken:
        raise upstream.starting(broken) from broken
    if answer.status != 200:
        raise error_of(answer, upstream.name, upstream.hide(request.secrets))
    sid = _sid_of(answer)
    if not sid:
        raise upstream.deviates("answered POST /create_session without a session id")
    return sid


async def _create(upstream: Upstream, request: OpenSession, headers: Mapping[str, str]) -> Answer:
    sent = {**headers, "Content-Type": "application/json"}
    body = _body(request)
    if request.secrets and upstream.secrets_in_body:
        body["secrets"] = request.secrets
    elif request.secrets:
        sent[SECRETS] = encode_secrets(request.secrets)
    content = to_json(body)
    backoff = Backoff()
    may_exist = False
    while True:
        try:
            limit_s = upstream.options.hook_limit_s
            answer = await upstream.send("POST", "/create", sent, content, silence_s=limit_s)
        except Broken as broken:
            may_exist = may_exist or broken.may_have_run
            delay = None if broken.unreachable and not may_exist else backoff.next_s()
            if delay is None:
                raise _lost(upstream, broken, headers, may_exist=may_exist) from broken
            await asyncio.sleep(delay)
            continue
        if answer.status == 200 or (may_exist and _already_exists(answer)):
            return answer
        hide = upstream.hide(request.secrets)
        error = error_of(answer, upstream.name, hide, fault="setup_error", refusal=BadTask)
        if isinstance(error, UnknownEnvironment):
            upstream.look_again()
        raise error


def _body(request: OpenSession) -> dict[str, Any]:
    body: dict[str, Any] = {"env_name": request.key}
    if request.task_spec is not None:
        body["task_spec"] = request.task_spec
    else:
        body |= {"split": request.split, "index": request.index}
    if request.toolset_name is not None:
        body["toolset_name"] = request.toolset_name
    return body


def _lost(upstream: Upstream, broken: Broken, headers: Mapping[str, str], *, may_exist: bool) -> Refused:
    if not may_exist:
        return upstream.starting(broken)
    upstream.spawn(_delete_quietly(upstream, headers))
    return OpeningLost(
        f"{upstream.name} did not finish opening the session: {broken}; send the request again"
    )


async def _give_up(upstream: Upstream, creating: asyncio.Task[Answer], headers: Mapping[str, str]) -> None:
    """End a session that is no longer needed, at any stage of its opening."""
    await _delete_quietly(upstream, headers)
    await asyncio.wait([creating])
    if creating.cancelled() or creating.exception() is None:
        await _delete_quietly(upstream, headers)  # it was opened after all


async def _delete_quietly(upstream: Upstream, headers: Mapping[str, str]) -> None:
    with contextlib.suppress(Broken, Faulted):
        await upstream.delete(headers)


def _already_exists(answer: Answer) -> bool:
    return answer.status in (400, 409) and "already exists" in detail_of(answer).lower()


def _sid_of(answer: Answer) -> str:
    if "event-stream" not in answer.headers.get("content-type", ""):
        return _sid(answer.json())
    sid = ""
    for event in Decoder().feed(answer.body):
        if event.event == "task_id":
            sid = event.data.strip()
        elif event.event == "end" and event.data.strip():
            with contextlib.suppress(ValueError):
                sid = _sid(from_json(event.data)) or sid
    return sid


def _sid(raw: Any) -> str:
    sid = raw.get("sid") if isinstance(raw, dict) else None
    return sid if isinstance(sid, str) and sid.isascii() and sid.isprintable() else ""
