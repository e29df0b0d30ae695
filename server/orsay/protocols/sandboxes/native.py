"""Endpoints of a sandbox that code written for this server uses: ``orsay.sandbox`` is their client.

Commands answer with lines of JSON as they go on; files with their content. An error of the file system has
its errno.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from ...authoring.sandbox.allow_list import network_of
from ...authoring.sandbox.model import LARGEST_COMMAND, Network
from ...errors import (
    BadRequest,
    ImageMissing,
    OrsayError,
    Refused,
    SandboxGone,
    SandboxRefused,
    SessionGone,
)
from ...http.operations import Operation
from ...http.request import Endpoint, Request
from ...sandboxes.base import SandboxSpec
from ...sandboxes.sandbox import FileInfo, RunResult, Sandbox
from ...sandboxes.service import TOLD_BYTES, HostedSandbox, SandboxService
from .backlog import Backlog
from .query import number_of, path_of, query_of
from .settings import Catalogue

__all__ = ["NativeEndpoints"]

_LARGEST_BODY = 256 << 20
_LARGEST_OPTIONS = 1 << 20
_LOOK_S = 1.0
_PING_S = 10.0
_HEADERS = ((b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-cache"))
_CONTENT = ((b"content-type", b"application/octet-stream"),)
_OK = b"{}"
_MODE = re.compile("0?[0-7]{1,4}")
_LINE = 256 * 1024  # bytes of output
_DECODED_AT_ONCE = 1 << 20  # characters; a multiple of 4
FileOperation = Callable[[HostedSandbox, Request, str, Mapping[str, str]], Awaitable[bytes]]


class _Options(BaseModel):
    """Body of ``/orsay/sandboxes/create``: ``SandboxOptions`` of ``orsay.sandbox``."""

    model_config = ConfigDict(extra="forbid")

    image: str | None = None
    cpus: float = Field(1, gt=0, le=1024)
    memory_bytes: int = Field(1 << 30, ge=16 << 20)
    disk_bytes: int | None = Field(None, ge=1 << 20)
    processes: int = Field(1024, ge=1)
    network: Annotated[Network, BeforeValidator(network_of)] = "none"
    variables: dict[str, str] = {}
    data: dict[str, str] = {}
    snapshot: str = ""
    beside: str = ""


class _Run(BaseModel):
    """Body of ``/orsay/sandboxes/run``: a script of bash, or a program with its arguments."""

    model_config = ConfigDict(extra="forbid")

    script: str = ""
    argv: list[str] | None = None
    timeout_s: float | None = Field(None, gt=0, le=1e9)
    max_bytes: int | None = Field(None, ge=0)
    stdin: str | None = None
    user: str = ""
    folder: str = ""
    variables: dict[str, str] = {}


class NativeEndpoints:
    """The endpoints; ``lives_long`` tells of an owner whether its sandboxes end with its session alone."""

    operations = tuple(
        Operation(
            "post",
            f"/orsay/sandboxes/{name}",
            summary,
            session=name != "create",
            tag="sandboxes",
            name=f"sandbox_{name}",
        )
        for name, summary in (
            ("create", "Make a sandbox; lines of JSON, its id first."),
            ("run", "Run a command; lines of JSON with its output, then its end."),
            ("stat", "Description of a file, folder or link."),
            ("list", "Descriptions of what a folder holds."),
            ("read", "Content of a file."),
            ("write", "Write a file, whole or not at all."),
            ("remove", "Remove a file or link."),
        )
    )

    def __init__(
        self,
        service: SandboxService,
        catalogue: Catalogue,
        *,
        default_image: str,
        output_bytes: int,
        lives_long: Callable[[str], bool],
    ) -> None:
        self._service = service
        self._catalogue = catalogue
        self._default_image = default_image
        self._output_bytes = output_bytes
        self._lives_long = lives_long
        self._backlog = Backlog()
        self.endpoints: dict[str, Endpoint] = {
            "/orsay/sandboxes/create": self._create,
            "/orsay/sandboxes/run": self._run,
            **{f"/orsay/sandboxes/{name}": self._file(operation) for name, operation in _FILES.items()},
        }

    async def _create(self, request: Request) -> None:
        wanted = _read(_Options, await request.body(_LARGEST_OPTIONS))
        hosted = self._service.create(
            self._spec(wanted),
            request.owner,
            stays=self._lives_long(request.owner),
            beside=wanted.beside,
        )
        answer = _Lines(request)
        await answer.send({"id": hosted.id})
        try:
            while not hosted.creating.done():
                await asyncio.wait([hosted.creating], timeout=_LOOK_S)
                await answer.ping()
            hosted.creating.result()
        except _Left:
            await self._service.delete(hosted.id, request.owner)
        except asyncio.CancelledError:
            await answer.end({"error": {"kind": "gone", "text": "it was ended while it was made"}})
        except (OrsayError, ValueError) as exc:
            await answer.end({"error": _told(exc)})
        else:
            await answer.end({"end": {}})

    def _spec(self, wanted: _Options) -> SandboxSpec:
        image = wanted.image or self._default_image
        folders = {
            os.path.normpath(path): self._catalogue.folder(name, path) for path, name in wanted.data.items()
        }
        try:
            return SandboxSpec(
                image=self._catalogue.images.get(image, image),
                snapshot=wanted.snapshot,
                variables=wanted.variables,
                cpus=wanted.cpus,
                memory_bytes=wanted.memory_bytes,
                disk_bytes=wanted.disk_bytes,
                processes=wanted.processes,
                network=wanted.network,
                folders=folders,
            )
        except SandboxRefused as exc:
            raise BadRequest(str(exc)) from None

    async def _run(self, request: Request) -> None:
        hosted = self._service.get(request.session_id(), request.owner)
        wanted = _read(_Run, await request.body(LARGEST_COMMAND))
        await _ready(hosted)
        arrived = asyncio.Event()
        waiting: deque[bytes] = deque()
        dropped = False

        def on_output(data: bytes) -> None:
            nonlocal dropped
            dropped = dropped or not self._backlog.add(request.owner, len(data))
            if not dropped:
                waiting.append(data)
                arrived.set()

        work = asyncio.ensure_future(self._result(hosted, wanted, on_output))
        work.add_done_callback(lambda _: arrived.set())
        answer = _Lines(request)
        hosted.readers += 1
        try:
            while not work.done() or waiting:
                try:
                    async with asyncio.timeout(_LOOK_S):
                        await arrived.wait()
                except TimeoutError:
                    await answer.ping()
                    continue
                arrived.clear()
                while waiting:
                    piece = _taken(waiting)
                    try:
                        await answer.send({"output": base64.b64encode(piece).decode("ascii")})
                    finally:
                        self._backlog.remove(request.owner, len(piece))
                    await asyncio.sleep(0)  # others have their turn, however fast this one reads
            result = work.result()
        except _Left:
            return
        except (OrsayError, ValueError) as exc:
            await answer.end({"error": _told(exc)})
        else:
            end = dataclasses.asdict(result)
            del end["output"]
            end["truncated"] = end["truncated"] or dropped
            await answer.end({"end": end})
        finally:
            hosted.readers -= 1
            hosted.touch()
            work.cancel()
            dropped = True
            self._backlog.remove(request.owner, sum(map(len, waiting)))

    async def _result(
        self, hosted: HostedSandbox, wanted: _Run, on_output: Callable[[bytes], None]
    ) -> RunResult:
        limit = self._output_bytes if wanted.max_bytes is None else min(wanted.max_bytes, self._output_bytes)
        stdin = None if wanted.stdin is None else await asyncio.to_thread(_decoded, wanted.stdin)
        return await hosted.run(
            wanted.script if wanted.argv is None else wanted.argv,
            timeout_s=wanted.timeout_s,
            max_bytes=limit,
            stdin=stdin,
            user=wanted.user,
            folder=wanted.folder,
            variables=wanted.variables,
            on_output=on_output,
            kept_bytes=TOLD_BYTES,
        )

    def _file(self, operation: FileOperation) -> Endpoint:
        async def endpoint(request: Request) -> None:
            query = query_of(request)
            hosted = self._service.get(request.session_id(), request.owner)
            path = path_of(query)
            await _ready(hosted)
            hosted.readers += 1
            try:
                content = await operation(hosted, request, path, query)
            except SandboxGone as exc:
                raise SessionGone(str(exc)) from None
            except OSError as exc:
                told = {"detail": exc.strerror or str(exc), "errno": exc.errno}
                await request.send_json(to_json(told), status=400)
            else:
                await request.send_once(200, content, _CONTENT)
            finally:
                hosted.readers -= 1
                hosted.touch()

        return endpoint


async def _stat(hosted: HostedSandbox, _request: Request, path: str, _query: Mapping[str, str]) -> bytes:
    return _described(await (await hosted.sandbox()).stat(path))


async def _list(hosted: HostedSandbox, _request: Request, path: str, _query: Mapping[str, str]) -> bytes:
    found = await (await hosted.sandbox()).list(path)
    return await asyncio.to_thread(_all_described, found)


async def _read_file(hosted: HostedSandbox, _request: Request, path: str, query: Mapping[str, str]) -> bytes:
    length = number_of(query, "length", _LARGEST_BODY + 1)
    offset = number_of(query, "offset", 0)
    content = await (await hosted.sandbox()).read(path, offset=offset, length=length)
    if offset == 0:  # else it is a later part of the same file
        hosted.file_used("read", path, len(content))
    return content


async def _write(hosted: HostedSandbox, request: Request, path: str, query: Mapping[str, str]) -> bytes:
    content = await request.body(_LARGEST_BODY)
    mode = query.get("mode")
    if mode is not None and _MODE.fullmatch(mode) is None:
        raise BadRequest("mode must be from one to four octal digits")
    await (await hosted.sandbox()).write(path, content, mode=None if mode is None else int(mode, 8))
    hosted.file_used("write", path, len(content))
    return _OK


async def _remove(hosted: HostedSandbox, _request: Request, path: str, _query: Mapping[str, str]) -> bytes:
    await (await hosted.sandbox()).remove(path)
    return _OK


_FILES: Mapping[str, FileOperation] = {
    "stat": _stat,
    "list": _list,
    "read": _read_file,
    "write": _write,
    "remove": _remove,
}


class _Left(Exception):
    """The client has gone."""


class _Lines:
    """An answer of lines of JSON. Raises _Left once the client has gone."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._begun = False
        self._pings = 0.0

    async def send(self, line: Mapping[str, Any], *, more: bool = True) -> None:
        if self._request.has_gone():
            raise _Left
        send = self._request.send
        if not self._begun:
            self._begun = True
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": to_json(line) + b"\n", "more_body": more})

    async def ping(self) -> None:
        """Note that the work goes on; called every second, it writes a line every ten."""
        self._pings += _LOOK_S
        if self._request.has_gone():
            raise _Left
        if self._pings >= _PING_S:
            self._pings = 0.0
            await self.send({"ping": True})

    async def end(self, line: Mapping[str, Any]) -> None:
        if not self._request.has_gone():
            await self.send(line, more=False)


async def _ready(hosted: HostedSandbox) -> Sandbox:
    try:
        return await hosted.sandbox()
    except SandboxGone as exc:
        raise SessionGone(str(exc)) from None


def _read(model: type[Any], body: bytes) -> Any:
    try:
        return model.model_validate_json(body)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        raise BadRequest(f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}") from None


def _taken(waiting: deque[bytes]) -> bytes:
    """The first of what waits, joined up to the length of a line."""
    pieces = [waiting.popleft()]
    size = len(pieces[0])
    while waiting and size + len(waiting[0]) <= _LINE:
        pieces.append(waiting.popleft())
        size += len(pieces[-1])
    return b"".join(pieces)


def _decoded(text: str) -> bytes:
    """Content of base64, decoded in parts: each holds up all other threads. Raises ValueError."""
    try:
        return b"".join(
            base64.b64decode(text[at : at + _DECODED_AT_ONCE], validate=True)
            for at in range(0, len(text), _DECODED_AT_ONCE)
        )
    except binascii.Error:
        raise ValueError("stdin is no base64") from None


def _all_described(found: list[FileInfo]) -> bytes:
    try:
        return to_json(found)
    except ValueError:
        return b"[" + b",".join(map(_described, found)) + b"]"


def _described(info: FileInfo) -> bytes:
    fields = dataclasses.asdict(info)
    try:
        return to_json(fields)
    except ValueError:  # a name that is no UTF-8
        raw = info.name.encode("utf-8", "surrogateescape")
        return to_json({**fields, "name": base64.b64encode(raw).decode("ascii"), "base64": True})


def _told(error: Exception) -> dict[str, str]:
    if isinstance(error, SandboxGone):
        return {"kind": "gone", "text": str(error)}
    if isinstance(error, ImageMissing):
        return {"kind": "image", "text": str(error)}
    if isinstance(error, SandboxRefused):
        return {"kind": "refused", "text": str(error)}
    if isinstance(error, ValueError):
        return {"kind": "usage", "text": str(error)}
    if isinstance(error, Refused):
        return {"kind": "refused", "text": error.detail}
    return {"kind": "machinery", "text": str(error)}
