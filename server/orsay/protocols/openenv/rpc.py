"""OpenEnv's JSON-RPC interface for its MCP clients: lists and calls tools, without observations.

It shares its path with the streamable HTTP of the Model Context Protocol but is another protocol: requests
are plain JSON, and OpenEnv's own methods create and close sessions.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from ...errors import Faulted, Refused, UnknownSession
from ...runtimes.base import EnvironmentInfo
from ..failures import fault_of, text_of
from ..session_driver import Choice, SessionDriver, SessionDrivers
from .models import called, schema_of
from .session import OpenEnvSession

__all__ = ["Rpc"]

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_NO_METHOD = -32601
_INVALID_PARAMS = -32602
_SERVER_ERROR = -32000


class _Request(BaseModel):
    model_config = ConfigDict(extra="ignore")

    jsonrpc: str
    method: str
    params: dict[str, Any] = {}
    id: str | int | None = None


class _Problem(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Rpc:
    """Handler of requests for one environment, in the session of a WebSocket or in a named session."""

    def __init__(
        self,
        drivers: SessionDrivers,
        owner: str,
        info: EnvironmentInfo,
        secrets: dict[str, str],
        session: OpenEnvSession | None,
    ) -> None:
        self._drivers = drivers
        self._owner = owner
        self._info = info
        self._secrets = secrets
        self._session = session

    async def answer(self, body: bytes | str | dict[str, Any]) -> dict[str, Any]:
        """The response; errors are part of it."""
        try:
            data = body if isinstance(body, dict) else from_json(body)
        except ValueError:
            return _error(None, _PARSE_ERROR, "Parse error")
        try:
            request = _Request.model_validate(data)
        except ValidationError as exc:
            return _error(None, _INVALID_REQUEST, f"Invalid request: {exc.errors(include_input=False)}")
        try:
            return {"jsonrpc": "2.0", "id": request.id, "result": await self._run(request)}
        except _Problem as exc:
            return _error(request.id, exc.code, str(exc))
        except (Refused, Faulted) as exc:
            fault = fault_of(exc, self._drivers.faults)
            detail = None if fault is None else fault.model_dump(by_alias=True)
            return _error(request.id, _SERVER_ERROR, text_of(exc, self._drivers.faults), detail)

    async def _run(self, request: _Request) -> dict[str, Any]:
        params = request.params
        match request.method:
            case "openenv/session/create":
                return {"session_id": (await self._create()).sid}
            case "openenv/session/close":
                return await self._close(params)
            case "tools/list":
                return await self._list(params)
            case "tools/call":
                return await self._call(params)
            case method:
                raise _Problem(_NO_METHOD, f"Method not found: {method}")

    async def _create(self) -> SessionDriver:
        if self._session is not None:
            return await self._session.open()
        return await self._drivers.open(self._owner, self._info, Choice(), self._secrets)

    async def _close(self, params: dict[str, Any]) -> dict[str, Any]:
        if not params.get("session_id"):
            raise _Problem(_INVALID_PARAMS, "Invalid params - 'session_id' is required")
        driver = self._find(params)
        own = None if self._session is None else self._session.driver
        if own is not None and own.sid == driver.sid:
            raise _Problem(_INVALID_REQUEST, "this session ends with its WebSocket")
        await driver.close()
        return {"session_id": driver.sid, "closed": True}

    async def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        tools = await self._session_for(params).tools()
        return {
            "tools": [
                {"name": tool.name, "description": tool.description, "inputSchema": schema_of(tool)}
                for tool in tools
            ]
        }

    async def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise _Problem(_INVALID_PARAMS, "Invalid params - 'name' is a text and 'arguments' an object")
        session = self._session_for(params)
        try:
            step = called(name, await session.call(name, arguments))
        finally:
            if session is not self._session and not params.get("session_id"):
                await session.close()  # no request can refer to it
        observation = step["observation"]
        if observation["error"] is not None:
            raise _Problem(_INVALID_PARAMS, observation["error"]["message"])
        return {
            **observation["result"],
            "reward": step["reward"],
            "done": step["done"],
            "metadata": observation["metadata"],
        }

    def _session_for(self, params: dict[str, Any]) -> OpenEnvSession:
        if self._session is not None:
            return self._session
        driver = self._find(params) if params.get("session_id") else None
        info = self._info if driver is None else driver.info
        return OpenEnvSession(self._drivers, self._owner, info, self._secrets, driver=driver)

    def _find(self, params: dict[str, Any]) -> SessionDriver:
        sid = str(params["session_id"])
        try:
            return self._drivers.find(self._owner, sid)
        except UnknownSession:
            raise _Problem(_INVALID_PARAMS, f"Unknown session_id: {sid}") from None


def _error(
    request_id: str | int | None, code: int, message: str, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": request_id, "error": error}
