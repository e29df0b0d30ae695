"""OpenEnv servers: described over HTTP, played over the WebSocket of the released client.

Imports openenv, so it is itself imported only where such an environment is made or played.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import httpx
from openenv.core.generic_client import GenericEnvClient
from websockets.exceptions import WebSocketException

from ..errors import Faulted, InvalidSplit, LoadError
from .openenv_offer import MCP_ACTIONS, ActionRefused, Offer, ToolOffer
from .openenv_results import Reply

__all__ = ["RemotePlay", "ask", "describe"]

T = TypeVar("T")
_ASK_LIMIT_S = 20.0
_CLOSE_LIMIT_S = 5.0
_CODE = re.compile(r"\(code: (\w+)\)\s*$")


class _Pinned(GenericEnvClient):  # type: ignore[misc]  # openenv has no types
    """Client without reconnection: a new connection would silently be another episode."""

    async def _ensure_connected(self) -> None:
        if self._ws is None:
            raise ConnectionError("the connection of the episode is closed")

    async def mcp(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A JSON-RPC request on the connection of the episode."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self._send_and_receive({"type": "mcp", "data": request})
        data: dict[str, Any] = answer.get("data", {})
        return data


class RemotePlay:
    """One session on an OpenEnv server. Faults: worker_lost, overloaded, time_limit, tool_error."""

    def __init__(self, url: str, offer: Offer, *, limit_s: float, headers: Mapping[str, str] | None) -> None:
        extra = {"headers": dict(headers)} if headers else {}
        self._url = url
        self._beside_steps = offer.action is not None
        self._broken = ""
        self._client: Any = _Pinned(base_url=url, message_timeout_s=limit_s, **extra)
        self._lock = asyncio.Lock()  # one request at a time: answers carry no number

    async def reset(self, **settings: Any) -> Reply:
        async with self._lock:
            await self._guarded(self._client.connect)
            result = await self._guarded(lambda: self._client.reset(**settings))
        return _reply(result)

    async def step(self, action: dict[str, Any]) -> Reply:
        async with self._lock:
            return _reply(await self._guarded(lambda: self._client.step(action)))

    async def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        """Call an MCP tool: as a step, or outside of steps if the environment has actions of its own."""
        if not self._beside_steps:
            return await self.step({"type": "call_tool", "tool_name": name, "arguments": arguments})
        async with self._lock:
            params = {"name": name, "arguments": arguments}
            data = await self._guarded(lambda: self._client.mcp("tools/call", params))
        error = data.get("error")
        if error:
            failed = {"error_type": "execution_error", "message": error.get("message", "unknown error")}
            return Reply({"tool_name": name, "error": failed})
        return Reply({"tool_name": name, "result": data.get("result")})

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._client.close(), _CLOSE_LIMIT_S)
        except (TimeoutError, OSError, WebSocketException, RuntimeError):
            return  # the server is gone, and the session with it

    async def _guarded(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self._broken:
            raise Faulted("worker_lost", f"the session on {self._url} was given up: {self._broken}")
        # A late answer of an abandoned request would be mistaken for the answer of the next one.
        self._broken = "an answer of it never came"
        try:
            found = await ask()
        except TimeoutError as exc:
            raise Faulted("time_limit", f"the OpenEnv server at {self._url} did not answer in time") from exc
        except (OSError, WebSocketException, AssertionError) as exc:
            text = f"the OpenEnv server at {self._url} is gone: {type(exc).__name__}: {exc}"
            raise Faulted("worker_lost", text) from exc
        except RuntimeError as exc:
            self._broken = ""  # the answer is there, and describes the error
            raise _refused(self._url, exc) from exc
        self._broken = ""
        return found


def _reply(result: Any) -> Reply:
    return Reply.of(result.observation, result.reward, result.done, getattr(result, "metadata", None))


def _refused(url: str, exc: RuntimeError) -> Exception:
    found = _CODE.search(str(exc))
    if found and found[1] == "VALIDATION_ERROR":
        return ActionRefused(str(exc))
    if found and found[1] == "CAPACITY_REACHED":
        return Faulted("overloaded", f"the OpenEnv server at {url} takes no more sessions: {exc}")
    return Faulted("tool_error", f"the OpenEnv server at {url} answered with an error: {exc}")


def describe(url: str, headers: Mapping[str, str] | None) -> Offer:
    """Offer of the server at ``url``. Raises LoadError unless an OpenEnv server answers."""
    try:
        with httpx.Client(base_url=url, headers=dict(headers or {}), timeout=_ASK_LIMIT_S) as http:
            schema = http.get("/schema").raise_for_status().json()
            metadata = http.get("/metadata")
            listed = http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
            name, splits = _splits(http)
    except httpx.HTTPStatusError as exc:
        raise LoadError(
            f"{url} is no OpenEnv server: GET /schema answered {exc.response.status_code}"
        ) from exc
    except (httpx.HTTPError, ValueError) as exc:
        raise LoadError(f"no OpenEnv server answers at {url}: {type(exc).__name__}: {exc}") from exc
    about = metadata.json() if metadata.is_success else {}
    tools = (listed.json().get("result") or {}).get("tools", []) if listed.is_success else []
    action = schema.get("action") or {}
    return Offer(
        name=str(about.get("name") or name or "openenv"),
        description=str(about.get("description") or ""),
        action=None if action.get("title") in MCP_ACTIONS and tools else action,
        tools=tuple(ToolOffer.of(each) for each in tools),
        task_name=name if splits else None,
        splits=splits,
    )


def _splits(http: httpx.Client) -> tuple[str | None, tuple[str, ...]]:
    """The server's name for its tasks, and its splits; empty if it has no tasks or predates them."""
    named = http.get("/list_environments")
    names = named.json() if named.is_success else []
    if not isinstance(names, list) or not names:
        return None, ()
    answer = http.get(f"/{names[0]}/splits")
    return str(names[0]), tuple(str(each["name"]) for each in answer.json()) if answer.is_success else ()


async def ask(url: str, path: str, body: dict[str, Any], headers: Mapping[str, str] | None) -> Any:
    """One request about tasks. Raises IndexError for an unknown task."""
    async with httpx.AsyncClient(base_url=url, headers=dict(headers or {}), timeout=_ASK_LIMIT_S) as http:
        answer = await http.post(path, json=body)
    if answer.status_code == 400:
        raise IndexError(f"the OpenEnv server has no task {body}")
    if answer.status_code == 404:
        raise InvalidSplit(f"the OpenEnv server has no tasks at {path}")
    return answer.raise_for_status().json()
