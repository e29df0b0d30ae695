"""Sandboxes of a server, over its endpoints ``/orsay/sandboxes/...``."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import errno
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import httpx
from pydantic_core import from_json, to_json

from ...errors import ImageMissing, OrsayError, SandboxError, SandboxGone, SandboxRefused
from .model import LARGEST_COMMAND, FileInfo, RunResult, SandboxOptions

__all__ = ["RemoteSandboxes"]

_WAIT_FOR_ROOM_S = 600.0
_PAUSE_S = 1.0
_LONGEST_PATH = 4096  # bytes, with the NUL at its end (PATH_MAX)
_LONG = httpx.Timeout(30, read=60)  # a line comes every 10 s


class RemoteSandboxes:
    """Makes sandboxes on the server at ``url``, with a key of it."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {"X-API-Key": key}

    async def create(self, options: SandboxOptions) -> RemoteSandbox:
        """A sandbox that answers; waits for room on a full server.

        Raises SandboxRefused and ImageMissing for what cannot be had; SandboxError, also after ten minutes
        without room.
        """
        body = to_json(dataclasses.asdict(options))
        sandbox = self._client()
        try:
            async with asyncio.timeout(_WAIT_FOR_ROOM_S):
                while not await sandbox.made(body):  # noqa: ASYNC110  # the server is another process
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            await sandbox.close()
            raise SandboxError("the server has had no room for a sandbox for ten minutes") from None
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise
        return sandbox

    async def drop(self, snapshot: str) -> None:
        client = self._client()
        try:
            await client.drop(snapshot)
        finally:
            await client.close()

    def _client(self) -> RemoteSandbox:
        http = httpx.AsyncClient(
            base_url=self._url, headers=self._headers, timeout=_LONG, trust_env=False, limits=_ONE_CLIENT
        )
        return RemoteSandbox(http)


_ONE_CLIENT = httpx.Limits(max_connections=256, max_keepalive_connections=8)


class _Full(SandboxError):
    """The server has no room at present."""


class RemoteSandbox:
    """A sandbox of a server; see ``Driver``."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.id = ""

    async def made(self, options: bytes) -> bool:
        """Make it; False where the server has no room at present."""
        try:
            async for line in self._lines("/orsay/sandboxes/create", options):
                if "id" in line:
                    self.id = line["id"]
                    self._http.headers["X-Session-ID"] = self.id
                elif "end" in line:
                    return True
        except _Full:
            return False
        raise SandboxError("the server ended its answer before the sandbox was made")

    async def run(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        stdin: bytes | None = None,
        user: str = "",
        folder: str = "",
        variables: Mapping[str, str] | None = None,
        on_output: Callable[[bytes], None] = lambda data: None,
    ) -> RunResult:
        words = {"script": command} if isinstance(command, str) else {"argv": list(command)}
        body = {
            **words,
            "timeout_s": timeout_s,
            "max_bytes": max_bytes,
            "stdin": None if stdin is None else base64.b64encode(stdin).decode(),
            "user": user,
            "folder": folder,
            "variables": dict(variables or {}),
        }
        request = _json(body)
        if len(request) > LARGEST_COMMAND:
            raise ValueError(
                f"a command with its standard input is {len(request)} bytes as a request, over"
                f" {LARGEST_COMMAND}: write larger input to a file of the sandbox"
            )
        kept: list[bytes] = []
        async for line in self._lines("/orsay/sandboxes/run", request):
            if "output" in line:
                kept.append(base64.b64decode(line["output"]))
                on_output(kept[-1])
            elif "end" in line:
                return RunResult(output=b"".join(kept), **line["end"])
        raise SandboxError("the server ended its answer before the command had ended")

    async def stat(self, path: str) -> FileInfo:
        return _described(from_json(await self._file("stat", path)))

    async def list(self, path: str) -> list[FileInfo]:
        return [_described(each) for each in from_json(await self._file("list", path))]

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        query = {"offset": str(offset)} if length is None else {"offset": str(offset), "length": str(length)}
        return await self._file("read", path, query)

    async def write(self, path: str, content: bytes, *, mode: int | None = None) -> None:
        await self._file("write", path, None if mode is None else {"mode": f"{mode:o}"}, content)

    async def remove(self, path: str) -> None:
        await self._file("remove", path)

    async def snapshot(self) -> str:
        return str((await self._post("/snapshot_sandbox"))["snapshot"])

    async def drop(self, snapshot: str) -> None:
        """Keep a snapshot no longer."""
        await self._post("/drop_snapshot", to_json({"snapshot": snapshot}))

    async def close(self) -> None:
        if not self._http.is_closed:
            if self.id:
                with contextlib.suppress(OrsayError):
                    await self._post("/delete_session")
            await self._http.aclose()

    async def _post(self, path: str, body: bytes = b"{}") -> Any:
        async with self._stream(path, body) as answer:
            return from_json(await answer.aread())

    async def _file(
        self, operation: str, path: str, query: Mapping[str, str] | None = None, content: bytes = b""
    ) -> bytes:
        try:
            raw = path.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise OSError(errno.EINVAL, "not a path of bytes", path) from None
        if len(raw) >= _LONGEST_PATH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        params: dict[str, Any] = {"path": raw, **(query or {})}
        try:
            async with self._stream(f"/orsay/sandboxes/{operation}", content, params) as answer:
                return await answer.aread()
        except OSError as exc:
            exc.filename = path
            raise

    async def _lines(self, path: str, body: bytes) -> AsyncIterator[dict[str, Any]]:
        async with self._stream(path, body) as answer:
            async for text in answer.aiter_lines():
                line = from_json(text)
                if "error" in line:
                    raise _error(line["error"])
                yield line

    @contextlib.asynccontextmanager
    async def _stream(
        self, path: str, body: bytes, params: dict[str, Any] | None = None
    ) -> AsyncIterator[httpx.Response]:
        if self._http.is_closed:
            raise SandboxGone(f"sandbox {self.id} was closed")
        try:
            url = path if params is None else f"{path}?{urlencode(params)}"
            async with self._http.stream("POST", url, content=body) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise _refused(answer.status_code, await answer.aread())
                yield answer
        except httpx.HTTPError as exc:
            raise SandboxError(
                f"the server of the sandbox does not answer: {exc or type(exc).__name__}"
            ) from None


def _described(fields: dict[str, Any]) -> FileInfo:
    if fields.pop("base64", False):  # a name that is no UTF-8
        fields["name"] = base64.b64decode(fields["name"]).decode("utf-8", "surrogateescape")
    return FileInfo(**fields)


def _json(body: Mapping[str, Any]) -> bytes:
    try:
        return to_json(body)
    except ValueError:
        raise ValueError("a command, its folder and its variables must be text in UTF-8") from None


def _error(error: Mapping[str, Any]) -> Exception:
    text = str(error["text"])
    match error["kind"]:
        case "gone":
            return SandboxGone(text)
        case "usage":
            return ValueError(text)
        case "refused":
            return SandboxRefused(text)
        case "image":
            return ImageMissing(text)
    return SandboxError(text)


def _refused(status: int, content: bytes) -> Exception:
    try:
        answer = from_json(content)
        text = str(answer["detail"])
    except (ValueError, KeyError, TypeError):
        answer, text = {}, f"status {status}"
    if "errno" in answer:
        return OSError(answer["errno"], text)
    match status:
        case 410 | 404 | 401:
            return SandboxGone(text)
        case 503 | 429:
            return _Full(text)
        case 400 | 413 | 422:
            return SandboxRefused(text)
    return SandboxError(f"{text} (status {status})")
