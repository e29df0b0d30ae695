"""One MCP session: an episode, the ``mcp`` package's server for it, and its transport."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import StreamableHTTPServerTransport
from orsay_protocol.blocks import ImageBlock, TextBlock

from ...errors import Faulted, Refused, ShuttingDown
from ...faults import FaultLog
from ...logs import get_logger
from ..session_driver import SessionDriver
from .models import PROMPT, failed, messages, result, text_of_prompt, tool

__all__ = ["Conversation"]

_log = get_logger(__name__)


class Conversation:
    """An MCP session and its episode's session. ``start`` comes first; both end by the client or ``end``."""

    def __init__(self, driver: SessionDriver, prompt: list[TextBlock | ImageBlock], faults: FaultLog) -> None:
        self.driver = driver
        self.gone_at: float | None = None
        """Time when the end of the session was noticed, if it ended by itself."""
        self.answering = 0
        """Requests without an answer so far."""
        self.transport = StreamableHTTPServerTransport(mcp_session_id=driver.sid)
        self._server = _server(driver, text_of_prompt(prompt), faults)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server task; returns when the transport takes requests. Raises ShuttingDown."""
        started = asyncio.Event()
        self._task = asyncio.create_task(self._run(started))
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not started.is_set():
            raise ShuttingDown("the session ended while it was being opened")

    async def _run(self, started: asyncio.Event) -> None:
        try:
            async with self.transport.connect() as (reading, writing):
                started.set()
                await self._server.run(reading, writing, self._server.create_initialization_options())
        except Exception:
            _log.exception("mcp_session_failed", session=self.driver.sid)
        finally:
            await self.driver.close()

    @property
    def ended(self) -> bool:
        return self.transport.is_terminated or (self._task is not None and self._task.done())

    async def end(self) -> None:
        """End both sessions; safe to call twice."""
        await self.driver.close()
        await self.transport.terminate()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _server(driver: SessionDriver, instructions: str, faults: FaultLog) -> Server[Any, Any]:
    """Server of the package, with handlers by request type: its decorators would turn faults into results."""
    server: Server[Any, Any] = Server(driver.info.name, version("orsay"), instructions)

    async def list_tools(request: types.ListToolsRequest) -> types.ServerResult:
        try:
            tools = await driver.tools()
        except (Refused, Faulted) as exc:
            raise failed(exc, faults) from exc
        return types.ServerResult(types.ListToolsResult(tools=[tool(spec) for spec in tools]))

    async def call_tool(request: types.CallToolRequest) -> types.ServerResult:
        try:
            answer = await driver.call(request.params.name, request.params.arguments or {})
        except (Refused, Faulted) as exc:
            raise failed(exc, faults) from exc
        return types.ServerResult(result(answer))

    async def list_prompts(request: types.ListPromptsRequest) -> types.ServerResult:
        prompt = types.Prompt(name=PROMPT, description=f"The task of this session of {driver.info.name}.")
        return types.ServerResult(types.ListPromptsResult(prompts=[prompt]))

    async def get_prompt(request: types.GetPromptRequest) -> types.ServerResult:
        try:
            return types.ServerResult(messages(await driver.messages()))
        except (Refused, Faulted) as exc:
            raise failed(exc, faults) from exc

    server.request_handlers |= {
        types.ListToolsRequest: list_tools,
        types.CallToolRequest: call_tool,
        types.ListPromptsRequest: list_prompts,
        types.GetPromptRequest: get_prompt,
    }
    return server
