"""The attribute ``sandbox`` of environments: makes sandboxes, and stands for the first one in toolsets."""

from __future__ import annotations

import errno
import posixpath
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import SandboxError
from .opening import Opening, sandbox
from .sandbox import Sandbox

__all__ = ["EnvironmentSandbox", "SandboxAttribute"]

_TIMEOUT_S = 300
_MOST_BYTES = 50_000
_LARGEST_DOWNLOAD = 256 << 20
_ESCAPES = re.compile(r"\x1b(?:[@-Z\\-_]|\[[0-?]*[ -/]*[@-~])")
_CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160)])


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
        """Run a command of bash. White space at the end of its output is dropped; ``sanitise`` also drops
        escape sequences and control characters, and writes bytes that are no UTF-8 as ``\\udc80``.
        """
        with _lost_for_toolsets():
            result = await self._made.run(cmd, timeout_s=timeout or None, max_bytes=max_bytes)
        output = result.raw.decode("utf-8", "surrogateescape").rstrip()
        if sanitise:
            output = _ESCAPES.sub("", output.encode("utf-8", "backslashreplace").decode()).translate(
                _CONTROLS
            )
        return _Ran(output, result.return_code, result.truncated, result.timed_out, sanitise)

    async def check_run(self, cmd: str, **options: Any) -> str:
        """Output of a command. Raises RuntimeError where it fails."""
        result = await self.run(cmd, **options)
        if result.return_code:
            raise RuntimeError(f"the command ended with {result.return_code}: {result.output}")
        return result.output

    async def upload(self, local_path: str | Path, container_path: str) -> None:
        """Copy a file of this machine into the sandbox."""
        await self._made.upload(local_path, container_path)

    async def download(self, container_path: str, max_size: int | None = _LARGEST_DOWNLOAD) -> bytes:
        """Content of a file, whose path may be relative or lead through links, as in a command.

        Raises ValueError over ``max_size`` bytes, and OSError.
        """
        with _lost_for_toolsets():
            path = await self._resolved(container_path)
            size = (await self._made.stat(path)).size
            if max_size is not None and size > max_size:
                raise ValueError(f"{container_path} has {size} bytes, over {max_size}")
            return await self._made.read(path)

    async def _resolved(self, path: str) -> str:
        plain = posixpath.isabs(path) and posixpath.normpath(path) == path
        if plain and (await self._made.stat(path)).kind != "link":
            return path
        found = await self._made.run(["readlink", "-e", "--", path])
        if not found.ok:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return found.output.removesuffix("\n")


@contextmanager
def _lost_for_toolsets() -> Iterator[None]:
    """SandboxError as one that toolsets of ``openreward`` raise on, where they make text of any other."""
    try:
        yield
    except SandboxError as exc:
        errors = sys.modules.get("openreward.api.errors")
        if errors is None:
            raise
        both = type(type(exc).__name__, (type(exc), errors.SessionTerminatedError), {"__init__": _init})
        raise both(str(exc)) from exc


def _init(self: Any, reason: str) -> None:
    self.reason, self.sid, self.kind = reason, None, "sandbox"
    Exception.__init__(self, reason)


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
