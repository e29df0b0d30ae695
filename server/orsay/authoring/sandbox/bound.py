"""The attribute ``sandbox`` of environments: makes sandboxes, and stands for the first one in toolsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .opening import Opening, sandbox
from .sandbox import Sandbox

__all__ = ["EnvironmentSandbox", "SandboxAttribute"]

_TIMEOUT_S = 300
_MOST_BYTES = 50_000
_LARGEST_DOWNLOAD = 256 << 20


@dataclass(frozen=True, slots=True)
class _Ran:
    """``RunResult`` of ``openreward.api.sandboxes``, which unpacks as output and code."""

    output: str
    return_code: int
    truncated: bool
    timed_out: bool
    sanitised: bool

    def __iter__(self) -> Iterator[Any]:
        return iter((self.output, self.return_code))


class EnvironmentSandbox:
    """``env.sandbox``: called, it makes a sandbox of the session.

    Its methods are those that toolsets of ``openreward`` call; they use the first sandbox that was made so,
    and raise ValueError before there is one.
    """

    def __init__(self) -> None:
        self.first: Sandbox | None = None

    def __call__(self, **options: Any) -> Opening:
        """Parameters and errors as of ``orsay.sandbox``."""
        return sandbox(**options).then(self._note)

    def _note(self, made: Sandbox) -> None:
        if self.first is None:
            self.first = made

    @property
    def _made(self) -> Sandbox:
        if self.first is None:
            raise ValueError("the environment has made no sandbox yet: await self.sandbox() in its setup")
        return self.first

    async def run(
        self,
        cmd: str,
        timeout: float | None = _TIMEOUT_S,  # the name is the SDK's
        max_bytes: int | None = _MOST_BYTES,
        sanitise: bool = True,
    ) -> _Ran:
        """Run a command of bash."""
        result = await self._made.run(cmd, timeout_s=timeout or None, max_bytes=max_bytes)
        output = result.output
        clean = output.replace("\0", "") if sanitise else output
        return _Ran(
            clean.rstrip("\n"), result.return_code, result.truncated, result.timed_out, clean != output
        )

    async def check_run(self, cmd: str, **options: Any) -> str:
        """Output of a command. Raises RuntimeError where it fails."""
        result = await self.run(cmd, **options)
        if result.return_code:
            raise RuntimeError(f"the command ended with {result.return_code}: {result.output}")
        return result.output

    async def upload(self, local_path: str | Path, container_path: str) -> None:
        """Copy a file of this machine into the sandbox."""
        await self._made.upload(local_path, container_path)

    async def download(self, container_path: str, max_size: int = _LARGEST_DOWNLOAD) -> bytes:
        """Content of a file. Raises ValueError over ``max_size`` bytes."""
        content = await self._made.read(container_path)
        if len(content) > max_size:
            raise ValueError(f"{container_path} has {len(content)} bytes, over {max_size}")
        return content


class SandboxAttribute:
    """Non-data descriptor: an ``EnvironmentSandbox`` for each instance, unless that assigns its own value."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object | None, owner: type) -> EnvironmentSandbox:
        found = EnvironmentSandbox()
        if instance is not None:
            instance.__dict__[self._name] = found
        return found

    if TYPE_CHECKING:

        def __set__(self, instance: object, value: Any) -> None: ...
