"""Mistakes of the server itself, on a real socket: what a client is told, and that nothing looks complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from orsay.errors import BadRequest, Faulted
from orsay.http.app import HttpApp
from orsay.http.asgi import break_off
from orsay.http.cycle import _head
from orsay.http.request import Request
from structlog.testing import capture_logs

from ..support.gateways import gateway_of
from ..support.sessions import ScriptedRuntime

_START: Any = {"type": "http.response.start", "status": 200, "headers": []}
"""Of a chunked answer: only its last chunk, or the end of the connection, tells whether it is complete."""


async def _asked(url: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.get(f"{url}/health")


@pytest.fixture
def health(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make ``/health`` raise that error, before its answer begins or after."""

    def fails(error: Exception, *, begun: bool) -> None:
        async def broken(_app: HttpApp, request: Request) -> None:
            if begun:
                await request.send(_START)
                await request.send({"type": "http.response.body", "body": b"half", "more_body": True})
            raise error

        monkeypatch.setattr(HttpApp, "_health", broken)

    return fails


async def test_a_mistake_is_answered_as_an_internal_fault_and_logged(health: Callable[..., None]) -> None:
    health(ZeroDivisionError("a mistake"), begun=False)
    with capture_logs() as lines:
        async with gateway_of(ScriptedRuntime(), journal="off") as running:
            answer = await _asked(running.url)
    assert answer.status_code == 500
    assert answer.headers["x-orsay-fault"] == "internal"
    assert "ZeroDivisionError" in answer.json()["detail"]
    assert [line["path"] for line in lines if line["event"] == "request_failed"] == ["/health"]


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (Faulted("internal", "a fault"), True),
        (BadRequest("a refusal"), True),
        (ValueError("a mistake"), False),
    ],
    ids=["fault", "refusal", "mistake"],
)
async def test_an_answer_that_breaks_off_never_looks_complete(
    health: Callable[..., None], error: Exception, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[object] = []

    async def noted(*channels: Any) -> None:
        broken.append(channels)
        await break_off(*channels)

    monkeypatch.setattr("orsay.http.app.break_off", noted)
    health(error, begun=True)
    async with gateway_of(ScriptedRuntime(), journal="off") as running:
        with pytest.raises(httpx.RemoteProtocolError):
            await _asked(running.url)
    assert bool(broken) == ours  # else uvicorn does it, which misses the end of the answer


@pytest.mark.parametrize("value", [b"a\r\nb: c", b"a\nb", b"a\rb", b"a\0b"])
def test_no_header_of_an_answer_can_begin_another(value: bytes) -> None:
    with pytest.raises(RuntimeError, match="Invalid HTTP header"):
        _head(200, ((b"a", value),))
