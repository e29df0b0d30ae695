"""Background processes of a sandbox, with their output and their ports."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import time
from collections.abc import Mapping

from ...errors import SandboxError
from .model import Driver

__all__ = ["BackgroundProcess"]

_FOLDER = "/tmp/.orsay"  # of the sandbox
_LISTENING = "0A"  # state TCP_LISTEN in /proc/net/tcp, proc(5)
_LOOK_S = 0.1
_MOST_BYTES = 10_000
_STOP_LIMIT_S = 30.0


class BackgroundProcess:
    """A command in the background, the leader of a process group; ends at the latest with its sandbox."""

    def __init__(self, sandbox: Driver, pid: int, log_path: str) -> None:
        self._sandbox = sandbox
        self.pid = pid
        self.log_path = log_path
        """File of the sandbox with its output."""

    @classmethod
    async def start(
        cls, sandbox: Driver, command: str, *, user: str, cwd: str, env: Mapping[str, str] | None
    ) -> BackgroundProcess:
        """Start a command of bash. Raises SandboxError where it cannot be started."""
        name = f"{_FOLDER}/{secrets.token_hex(6)}"
        await sandbox.write(f"{name}.sh", command.encode("utf-8", "surrogateescape"), mode=0o755)
        await sandbox.write(f"{name}.log", b"", mode=0o666)
        quoted = shlex.quote(name)
        script = f"setsid bash {quoted}.sh </dev/null >>{quoted}.log 2>&1 & echo $!"
        said = await sandbox.run(
            script, user=user, folder=cwd, variables=env, timeout_s=30, max_bytes=_MOST_BYTES
        )
        if said.return_code or not said.output.strip().isdigit():
            reason = said.output.decode("utf-8", "replace").strip()
            raise SandboxError(f"a background process could not be started: {reason}")
        return cls(sandbox, int(said.output), f"{name}.log")

    async def logs(self) -> str:
        """What it has written so far."""
        return await self._text(self.log_path)

    async def _text(self, path: str) -> str:
        return (await self._sandbox.read(path)).decode("utf-8", "replace")

    async def is_running(self) -> bool:
        """True until it ends."""
        try:
            status = await self._text(f"/proc/{self.pid}/stat")
        except OSError:
            return False
        return status.rpartition(")")[2].split()[:1] != ["Z"]

    async def wait_for_port(self, port: int, *, timeout_s: float = 30) -> None:
        """Wait until something listens on a TCP port. Raises TimeoutError; SandboxError if it ends first."""
        end = time.monotonic() + timeout_s
        while not await self._listens(port):
            if not await self.is_running():
                raise SandboxError(f"it ended before port {port} was open: {(await self.logs())[-2000:]}")
            if time.monotonic() > end:
                raise TimeoutError(f"nothing listens on port {port} after {timeout_s:g} s")
            await asyncio.sleep(_LOOK_S)

    async def _listens(self, port: int) -> bool:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            try:
                rows = (await self._text(table)).splitlines()[1:]
            except OSError:
                continue
            for row in rows:
                fields = row.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    return True
        return False

    async def stop(self) -> None:
        """Kill it with its group, and wait for its end; safe to call twice."""
        await self._sandbox.run(f"kill -KILL -- -{self.pid} 2>/dev/null || true", timeout_s=30)
        end = time.monotonic() + _STOP_LIMIT_S
        while await self.is_running():
            if time.monotonic() > end:
                raise SandboxError(f"process {self.pid} does not end")
            await asyncio.sleep(_LOOK_S)
