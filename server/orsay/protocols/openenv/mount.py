"""Mount for OpenEnv clients: paths, and the parsing of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from ...errors import BadRequest, Faulted, Overloaded, Refused, exception_text
from ...http.opening import secrets_of, traceparent_of
from ...http.operations import OPENING_ERRORS, Operation
from ...http.request import Endpoint, Request
from ...logs import get_logger
from ...runtimes.base import EnvironmentInfo
from ..session_driver import SessionDrivers, all_tools
from .actions import action_schema
from .models import ResetRequest, StepRequest, StepResponse, failure
from .rpc import Rpc
from .session import OpenEnvSession
from .websocket import serve_socket

__all__ = ["OpenEnvMount"]

_log = get_logger(__name__)
_TAG = "openenv"
_SESSION = ("X-Session-ID",)
_LEAST_SOCKETS = 64
_DOCUMENT = "openapi.json"


class Metadata(BaseModel):
    """Description of an environment."""

    name: str
    description: str
    version: str | None = None


class Schemas(BaseModel):
    """JSON schemas of actions, observations and the state."""

    action: dict[str, Any]
    observation: dict[str, Any]
    state: dict[str, Any]


class State(BaseModel):
    """State of an episode; ``episode_id`` is null before its beginning."""

    episode_id: str | None = None
    step_count: int = 0
    environment: str
    session_id: str | None = None
    split: str | None = None
    index: int | None = None
    reward: float | None = None
    done: bool = False


class OpenEnvMount:
    """Endpoints of OpenEnv: each path exists at the root, for the first environment, and under each
    environment's name.
    """

    operations = (
        Operation(
            "post",
            "/{env}/reset",
            "OpenEnv: the first observation of an episode. With X-Session-ID the session stays open.",
            StepResponse,
            body=ResetRequest,
            session=False,
            headers=(*_SESSION, "X-Secrets"),
            errors=OPENING_ERRORS,
            tag=_TAG,
        ),
        Operation(
            "post",
            "/{env}/step",
            "OpenEnv: one action, in the session of X-Session-ID or else on a fresh episode.",
            StepResponse,
            body=StepRequest,
            session=False,
            headers=(*_SESSION, "X-Secrets"),
            errors=OPENING_ERRORS,
            tag=_TAG,
        ),
        Operation(
            "get",
            "/{env}/state",
            "OpenEnv: state of a session.",
            State,
            session=False,
            headers=_SESSION,
            tag=_TAG,
        ),
        Operation(
            "get", "/{env}/metadata", "OpenEnv: name and description.", Metadata, session=False, tag=_TAG
        ),
        Operation("get", "/{env}/schema", "OpenEnv: JSON schemas.", Schemas, session=False, tag=_TAG),
        Operation(
            "get",
            "/{env}/openapi.json",
            "OpenEnv: the endpoints of one environment.",
            session=False,
            tag=_TAG,
            name="environment_openapi",
        ),
        Operation(
            "get",
            "/{env}/ws",
            "OpenEnv: a WebSocket, one episode after the other; ends with its session.",
            session=False,
            headers=("X-Secrets",),
            tag=_TAG,
        ),
    )

    def __init__(self, drivers: SessionDrivers, *, max_body_bytes: int) -> None:
        self._drivers = drivers
        self._max_body = max_body_bytes
        self._sockets: Counter[str] = Counter()
        self._table: dict[str, dict[str, Endpoint]] = {
            "reset": {"POST": self._reset},
            "step": {"POST": self._step},
            "state": {"GET": self._state},
            "metadata": {"GET": self._metadata},
            "schema": {"GET": self._schema},
            "health": {"GET": self._health},
            _DOCUMENT: {"GET": self._document},
            "mcp": {"POST": self.answer_rpc},
        }

    def find(self, path: str) -> Mapping[str, Endpoint]:
        environment, action = _split(path)
        if not environment and action == _DOCUMENT:
            return {}  # the server has its own endpoint of that path
        return self._table.get(action, {})

    def find_socket(self, path: str) -> Endpoint | None:
        _, action = _split(path)
        if action == "ws":
            return partial(self._seated, self._answer_socket)
        return partial(self._seated, self._answer_rpc_socket) if action == "mcp" else None

    async def close(self) -> None:
        """Do nothing: sessions are closed by the server, connections by uvicorn."""

    # HTTP

    async def _reset(self, request: Request) -> None:
        body = await request.body(self._max_body)
        data = _as_object(body) if body else {}
        ResetRequest.model_validate(data)
        keep = b"x-session-id" in request.headers
        sid = request.session_id() if keep else None
        session = self._new_session(request, sid)
        try:
            await request.send_json(to_json(await session.reset(data)))
        finally:
            if not keep:
                await session.close()

    async def _step(self, request: Request) -> None:
        body = await request.body(self._max_body)
        step = StepRequest.model_validate_json(body or b"null")
        if b"x-session-id" in request.headers:
            session = self._session_of(request, request.session_id())
            await request.send_json(to_json(await session.step(step.action, step.request_id)))
            return
        session = self._new_session(request)
        try:
            await session.reset(step.model_extra or {})
            await request.send_json(to_json(await session.step(step.action)))
        finally:
            await session.close()

    async def _state(self, request: Request) -> None:
        if b"x-session-id" in request.headers:
            session = self._session_of(request, request.session_id())
        else:
            session = OpenEnvSession(self._drivers, request.owner, self._info(request), {})
        await request.send_json(to_json(session.state()))

    async def _metadata(self, request: Request) -> None:
        info = self._info(request)
        answer = Metadata(name=info.name, description=info.description, version=version("orsay"))
        await request.send_json(answer.model_dump_json().encode())

    async def _schema(self, request: Request) -> None:
        answer = Schemas(
            action=action_schema(all_tools(self._info(request).listing)),
            observation=StepResponse.model_json_schema(),
            state=State.model_json_schema(),
        )
        await request.send_json(answer.model_dump_json().encode())

    async def _health(self, request: Request) -> None:
        self._info(request)
        await request.send_json(b'{"status":"healthy"}')

    async def _document(self, request: Request) -> None:
        """OpenAPI document of these endpoints without the environment's name, for OpenEnv's tools."""
        info = self._info(request)
        paths: dict[str, dict[str, Any]] = {}
        for each in self.operations:
            entry = {"summary": each.summary, "responses": {"200": {"description": "done"}}}
            paths.setdefault(each.path.removeprefix("/{env}"), {})[each.method] = entry
        about = {"title": info.name, "description": info.description, "version": version("orsay")}
        await request.send_json(to_json({"openapi": "3.1.0", "info": about, "paths": paths}))

    async def answer_rpc(self, request: Request) -> None:
        """One JSON-RPC request."""
        body = await request.body(self._max_body)
        rpc = Rpc(self._drivers, request.owner, self._info(request), secrets_of(request) or {}, None)
        await request.send_json(to_json(await rpc.answer(body)))

    # WebSocket

    async def _seated(self, endpoint: Endpoint, request: Request) -> None:
        """Count a WebSocket, which may hold a session. Raises Overloaded.

        The limit is that of sessions, with a minimum: clients of a small server should read
        ``CAPACITY_REACHED`` on a connection of their own.
        """
        limits, sockets = self._drivers.sessions.limits, self._sockets
        in_all = max(limits.max_sessions, _LEAST_SOCKETS)
        if sockets.total() >= in_all:
            raise Overloaded(f"server at maximum capacity: {in_all} WebSockets")
        most = limits.max_sessions_per_owner
        if most is not None and sockets[request.owner] >= most:
            raise Overloaded(
                f"this key is at maximum capacity: {most} WebSockets; ORSAY_MAX_SESSIONS_PER_KEY bounds it"
            )
        sockets[request.owner] += 1
        try:
            await endpoint(request)
        finally:
            sockets[request.owner] -= 1
            if not sockets[request.owner]:
                del sockets[request.owner]

    async def _answer_socket(self, request: Request) -> None:
        named = parse_qs(request.scope["query_string"].decode("latin-1")).get("session_id")
        # A named session was made by openenv/session/create; openenv/session/close or expiry ends it.
        session = self._session_of(request, named[0]) if named else self._new_session(request)
        rpc = Rpc(self._drivers, request.owner, session.info, secrets_of(request) or {}, session)

        async def answer(text: str) -> str | None:
            try:
                return await self._answer_message(session, rpc, text)
            except ValidationError as exc:
                problems = exc.errors(include_url=False, include_context=False, include_input=False)
                return _message("error", message="Invalid message", code="VALIDATION_ERROR", errors=problems)
            except (Refused, Faulted) as exc:
                return _message("error", **failure(exc, self._drivers.faults))
            except Exception as exc:
                _log.exception("message_failed", environment=session.info.name)
                fault = Faulted("internal", exception_text(exc))
                return _message("error", **failure(fault, self._drivers.faults))

        try:
            await serve_socket(request.receive, request.send, answer)
        finally:
            if not named:
                await session.close()

    async def _answer_message(self, session: OpenEnvSession, rpc: Rpc, text: str) -> str | None:
        try:
            message = _as_object(text)
        except BadRequest as exc:
            return _message("error", message=f"Invalid JSON: {exc.detail}", code="INVALID_JSON")
        data = message.get("data", {})
        kind = message.get("type")
        if not isinstance(data, dict):
            raise BadRequest("'data' is a JSON object")
        match kind:
            case "reset":
                return _message("observation", **await session.reset(data))
            case "step":
                return _message("observation", **await session.step(data))
            case "state":
                return _message("state", **session.state())
            case "mcp":
                return _message("mcp", **await rpc.answer(data))
            case "close":
                return None
            case _:
                return _message("error", message=f"Unknown message type: {kind}", code="UNKNOWN_TYPE")

    async def _answer_rpc_socket(self, request: Request) -> None:
        session = self._new_session(request)
        rpc = Rpc(self._drivers, request.owner, session.info, secrets_of(request) or {}, session)

        async def answer(text: str) -> str:
            return to_json(await rpc.answer(text)).decode()

        try:
            await serve_socket(request.receive, request.send, answer)
        finally:
            await session.close()

    def _info(self, request: Request) -> EnvironmentInfo:
        return self._drivers.environment(_split(request.path)[0])

    def _new_session(self, request: Request, sid: str | None = None) -> OpenEnvSession:
        """A session that is not opened yet."""
        secrets, trace = secrets_of(request) or {}, traceparent_of(request)
        return OpenEnvSession(
            self._drivers, request.owner, self._info(request), secrets, sid=sid, traceparent=trace
        )

    def _session_of(self, request: Request, sid: str) -> OpenEnvSession:
        """The session of that id, if it is the caller's. Raises UnknownSession."""
        driver = self._drivers.find(request.owner, sid)
        return OpenEnvSession(
            self._drivers, request.owner, driver.info, secrets_of(request) or {}, driver=driver
        )


def _split(path: str) -> tuple[str, str]:
    """Environment and action of ``/{env}/{action}`` or ``/{action}``; no action for any other path."""
    parts = path.strip("/").split("/")
    if len(parts) > 2:
        return "", ""
    return ("" if len(parts) == 1 else parts[0]), parts[-1]


def _as_object(body: bytes | str) -> dict[str, Any]:
    try:
        data = from_json(body)
    except ValueError as exc:
        raise BadRequest(str(exc)) from None
    if not isinstance(data, dict):
        raise BadRequest("expected a JSON object")
    return data


def _message(kind: str, /, **data: Any) -> str:
    return to_json({"type": kind, "data": data}).decode()
