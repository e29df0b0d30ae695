"""The socket by which one sandbox reaches the proxy, and what it takes inside."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ...authoring.sandbox.allow_list import AllowList
from ...errors import EngineError, SandboxError, SandboxGone, SandboxRefused
from ...logs import get_logger
from ..base import SandboxSpec
from ..sandbox import Sandbox
from .outside import Outside
from .proxy import Proxy

__all__ = ["Create", "Gate", "through_gate"]

_PORT = 3128
_PAUSE_S = 1.0
_READY_LIMIT_S = 20.0
_TOLD = 20  # refusals of one sandbox in the log
_BACKLOG = 512

_log = get_logger(__name__)


class Create(Protocol):
    """What makes a sandbox: see ``Sandboxes.create``."""

    async def __call__(self, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox: ...


async def through_gate(
    create: Create, spec: SandboxSpec, sandbox_id: str = "", *, outside: Outside | None = None
) -> Sandbox:
    """A sandbox whose network is the allow-list of ``spec``; ``create`` makes one without a network.

    Raises as ``create`` does, ValueError for what cannot be on an allow-list, and SandboxRefused where
    sandboxes do not see sockets of this machine.
    """
    assert not isinstance(spec.network, str)
    sandbox_id = sandbox_id or f"sb-{uuid.uuid4().hex}"
    gate = Gate(sandbox_id, spec.network, outside=outside)
    sandbox: Sandbox | None = None
    try:
        path = await gate.open()
        inner = replace(
            spec,
            network="none",
            variables={**gate.variables(), **spec.variables},
            folders={**spec.folders, gate.INSIDE: path},
        )
        try:
            sandbox = await create(inner, sandbox_id=sandbox_id)
        except (EngineError, SandboxRefused) as exc:
            if path not in str(exc):
                raise
            raise SandboxRefused(
                "an allow-list needs a Docker engine on the server's own machine, which has the same files:"
                " write none or open"
            ) from exc
        sandbox.afterwards(gate.close)
        await gate.enter(sandbox)
    except BaseException:
        await asyncio.shield(gate.close() if sandbox is None else sandbox.close())
        raise
    return sandbox


class Gate:
    """A way out for one sandbox that has no network.

    The proxy listens at ``path``, a socket of this machine that the sandbox must see at ``INSIDE``. In the
    sandbox, its agent listens on a port of the loopback and carries connections to that socket.
    """

    INSIDE = "/.orsay-proxy"

    def __init__(self, sandbox_id: str, names: Sequence[str], *, outside: Outside | None = None) -> None:
        """Raises ValueError for what cannot be on an allow-list."""
        self._sandbox_id = sandbox_id
        self._proxy = Proxy(AllowList(names), self._note, outside)
        self._folder: Path | None = None
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._carrying: asyncio.Task[None] | None = None
        self.refused = 0
        """Connections that were refused."""

    @classmethod
    def variables(cls) -> Mapping[str, str]:
        """Variables by which programs in the sandbox find the proxy."""
        url = f"http://127.0.0.1:{_PORT}"
        found = {"http_proxy": url, "https_proxy": url, "no_proxy": "localhost,127.0.0.1,::1"}
        return found | {name.upper(): value for name, value in found.items()}

    async def open(self) -> str:
        """Begin to listen, and return the path of the socket. Raises OSError."""
        self._folder = Path(tempfile.mkdtemp(prefix="orsay-egress-"))  # of this user alone
        path = self._folder / "proxy"
        starting = asyncio.ensure_future(
            asyncio.start_unix_server(self._connected, path, backlog=_BACKLOG, start_serving=False)
        )
        try:
            self._server = await asyncio.shield(starting)
        except asyncio.CancelledError:
            (await starting).close()
            raise
        await self._server.start_serving()
        path.chmod(0o666)  # root of a sandbox may be another user here
        return str(path)

    async def enter(self, sandbox: Sandbox) -> None:
        """Have the sandbox reach the proxy, as long as it lives. Raises SandboxError."""
        ready = asyncio.Event()
        self._carrying = asyncio.create_task(self._carry(sandbox, ready))
        try:
            async with asyncio.timeout(_READY_LIMIT_S):
                await ready.wait()
        except TimeoutError:
            raise SandboxError("the sandbox did not begin to carry connections to its proxy") from None

    async def _carry(self, sandbox: Sandbox, ready: asyncio.Event) -> None:
        """Commands run as root and may kill what carries their connections; then it begins anew."""
        while sandbox.gone is None:
            try:
                await sandbox.relay(_PORT, self.INSIDE, on_ready=ready.set)
            except SandboxGone:
                return
            except (OSError, SandboxError) as exc:
                _log.info("sandbox_egress_ended", sandbox=self._sandbox_id, error=str(exc))
            await asyncio.sleep(_PAUSE_S)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._proxy.serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    def _note(self, reason: str) -> None:
        self.refused += 1
        if self.refused <= _TOLD:
            _log.warning("sandbox_egress_refused", sandbox=self._sandbox_id, reason=reason[:300])

    async def close(self) -> None:
        """End all connections; safe to call twice."""
        if self._server is not None:
            self._server.close()
        tasks = [*self._serving, *([self._carrying] if self._carrying else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(shutil.rmtree, self._folder)
