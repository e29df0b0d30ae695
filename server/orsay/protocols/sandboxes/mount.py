"""Mount of the sandbox endpoints: paths, and the parsing of requests."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from orsay_protocol.sse import encode_event, encode_result
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from ...authoring.sandbox.model import LARGEST_COMMAND
from ...errors import BadRequest, OrsayError, Refused, SandboxGone, SessionGone, Unauthorized
from ...http.mounts import Pairs
from ...http.operations import Operation
from ...http.request import Endpoint, Request
from ...sandboxes.keys import SandboxKeys
from ...sandboxes.runs import Run, digest_of
from ...sandboxes.sandbox import RunResult
from ...sandboxes.service import HostedSandbox, SandboxService
from .files import PastTheEnd, commit_file, file_size, read_range, sha256_of, write_range
from .native import NativeEndpoints
from .query import FULL, number_of, path_of, query_of
from .secrets import sandbox_secrets
from .settings import Catalogue, read_settings
from .stream import answer_later, send_failure

__all__ = ["SandboxMount"]

_Model = TypeVar("_Model", bound=BaseModel)
_TAG = "sandboxes"
_LARGEST_PART = 16 << 20
_OTHER_METHODS = ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")
_OK = b'{"status":"ok"}'
_ENCODED_AT_ONCE = 768 * 1024  # bytes; a multiple of 3


class _RunBody(BaseModel):
    """Body of ``/run``."""

    model_config = ConfigDict(extra="ignore")

    cmd: str
    timeout_s: float | None = Field(None, ge=0, le=1e9)
    max_bytes: int | None = Field(None, ge=0)
    shell: str = "/bin/bash"
    task_id: str | None = None


class _DropBody(BaseModel):
    """Body of ``/drop_snapshot``."""

    snapshot: str


class SandboxMount:
    """Endpoints of a sandbox service; ``output_bytes`` bounds output for which no bound is asked."""

    operations: Sequence[Operation] = NativeEndpoints.operations + tuple(
        Operation("post", path, summary, session=session, tag=_TAG, stream=stream, name=path[1:])
        for path, summary, session, stream in (
            ("/create_sandbox", "Make a sandbox; its id comes first.", False, True),
            ("/run", "Run a command in a sandbox.", True, True),
            ("/stat_file", "Size of a file, and its digest.", True, False),
            ("/read_file", "Part of a file.", True, False),
            ("/write_file", "Write part of a file, or commit it.", True, False),
            ("/set_network", "Refused: networks do not change.", True, False),
            ("/snapshot_sandbox", "Keep the files of a sandbox, for others to begin with.", True, False),
            ("/drop_snapshot", "Keep a snapshot no longer.", False, False),
        )
    )

    def __init__(
        self,
        service: SandboxService,
        catalogue: Catalogue,
        keys: SandboxKeys,
        *,
        keys_required: Callable[[], bool],
        for_sessions_only: bool = False,
        default_image: str,
        output_bytes: int = 64 << 20,
    ) -> None:
        self._keys = keys
        self._keys_required = keys_required
        self._for_sessions_only = for_sessions_only
        if for_sessions_only:
            self.operations = ()
        self._service = service
        self._catalogue = catalogue
        self._output_bytes = output_bytes
        native = NativeEndpoints(
            service,
            catalogue,
            default_image=default_image,
            output_bytes=output_bytes,
            lives_long=keys.is_of_session,
        )
        endpoints = {
            "/create_sandbox": self._create,
            "/run": self._run,
            "/ping": self._ping,
            "/delete_session": self._delete,
            "/stat_file": self._stat,
            "/read_file": self._read,
            "/write_file": self._write,
            "/set_network": self._set_network,
            "/snapshot_sandbox": self._snapshot,
            "/drop_snapshot": self._drop_snapshot,
            **native.endpoints,
        }
        self._endpoints: dict[str, Mapping[str, Endpoint]] = {
            path: {
                "POST": partial(self._as_owner, endpoint),
                **dict.fromkeys(_OTHER_METHODS, partial(self._as_owner, _only_post)),
            }
            for path, endpoint in endpoints.items()
        }

    def find(self, path: str) -> Mapping[str, Endpoint]:
        return self._endpoints.get(path, {})

    def is_open(self, path: str) -> bool:
        """True where requests come with the key of a session, which only this mount knows."""
        return path in self._endpoints and self._keys_required()

    def headers(self, path: str) -> Pairs:
        return ()

    def find_socket(self, path: str) -> Endpoint | None:
        return None

    async def close(self) -> None:
        await self._service.close()

    async def _as_owner(self, endpoint: Endpoint, request: Request) -> None:
        """Answer for the owner of a session's key, else of the server's own."""
        owner = self._keys.owner(request.headers)
        if owner is not None:
            request.owner = owner
        elif self._for_sessions_only:
            raise Unauthorized(
                "sandboxes are for sessions of this server only: --sandboxes docker opens them to its clients"
            )
        elif self._keys_required() and not request.owner:
            raise Unauthorized("the API key is not known to this server, or its session has ended")
        await endpoint(request)

    def _hosted(self, request: Request) -> HostedSandbox:
        return self._service.get(request.session_id(), request.owner)

    # life

    async def _create(self, request: Request) -> None:
        body = await request.body(_LARGEST_PART)
        task_id = _task_id(body)
        if task_id is not None:
            hosted = self._service.get(task_id, request.owner)
        else:
            spec = read_settings(body, sandbox_secrets(request), self._catalogue)
            hosted = self._service.create(spec, request.owner)

        async def events(work: asyncio.Future[Any]) -> bytes:
            if work.cancelled():
                return encode_event("error", f"sandbox {hosted.id} was ended while it was made")
            if (error := work.exception()) is not None:
                return encode_event("error", _said(error))
            return encode_result(to_json({"sid": hosted.id}))

        await answer_later(request, hosted.id, hosted.creating, events)
        hosted.touch()

    async def _ping(self, request: Request) -> None:
        self._hosted(request)
        await request.send_json(_OK)

    async def _delete(self, request: Request) -> None:
        sid = request.session_id()
        await self._service.delete(sid, request.owner)
        await request.send_json(to_json({"sid": sid}))

    async def _set_network(self, request: Request) -> None:
        self._hosted(request)
        raise BadRequest("the network of a sandbox does not change here: nothing was applied")

    async def _snapshot(self, request: Request) -> None:
        snapshot = await self._service.snapshot(request.session_id(), request.owner)
        await request.send_json(to_json({"snapshot": snapshot}))

    async def _drop_snapshot(self, request: Request) -> None:
        wanted = _body(_DropBody, await request.body(_LARGEST_PART), "/drop_snapshot")
        await self._service.drop_snapshot(wanted.snapshot, request.owner)
        await request.send_json(_OK)

    # commands

    async def _run(self, request: Request) -> None:
        hosted = self._hosted(request)
        body = await request.body(LARGEST_COMMAND)
        wanted = _body(_RunBody, body, "/run")
        if wanted.task_id is not None:
            run = hosted.runs.find(wanted.task_id)
            if run is None and hosted.runs.was_forgotten(wanted.task_id):
                await send_failure(
                    request, f"the command {wanted.task_id} has run, and its result is kept no longer"
                )
                return
            if run is None:
                await send_failure(request, f"unknown task_id {wanted.task_id}")
                return
        else:
            digest = await digest_of(body)
            run = hosted.runs.left_behind(digest) or self._start(hosted, wanted, digest)
        await self._follow(request, hosted, run)

    def _start(self, hosted: HostedSandbox, wanted: _RunBody, digest: bytes) -> Run:
        if wanted.shell != "/bin/bash":
            raise BadRequest(f"commands are run by /bin/bash here, not by {wanted.shell}")
        if "\0" in wanted.cmd:
            raise BadRequest("a command cannot hold a NUL")
        limit = self._output_bytes if wanted.max_bytes is None else min(wanted.max_bytes, self._output_bytes)

        async def work() -> RunResult:
            return await hosted.run(wanted.cmd, timeout_s=wanted.timeout_s or None, max_bytes=limit)

        return hosted.runs.start(digest, work())

    async def _follow(self, request: Request, hosted: HostedSandbox, run: Run) -> None:
        """Answer with the result of a command."""
        run.readers.append(request.has_gone)
        hosted.readers += 1
        complete = False
        try:
            complete = await answer_later(request, run.id, run.result, _run_events)
        finally:
            run.readers.remove(request.has_gone)
            hosted.readers -= 1
            hosted.touch()
            if complete:
                run.delivered()
            else:
                run.left()

    # files

    async def _stat(self, request: Request) -> None:
        query = query_of(request)
        hosted = self._hosted(request)
        path = path_of(query)
        sandbox = await hosted.sandbox()
        answer: dict[str, Any] = {"size": await file_size(sandbox, path)}
        if query.get("sha256") == "1":
            answer["sha256"] = await sha256_of(sandbox, path)
        await request.send_json(to_json(answer))

    async def _read(self, request: Request) -> None:
        query = query_of(request)
        hosted = self._hosted(request)
        path, offset = path_of(query), number_of(query, "offset", 0)
        length = number_of(query, "length", FULL)
        try:
            content, size = await read_range(await hosted.sandbox(), path, offset, length)
        except PastTheEnd as exc:
            text = f"{path} has {exc.size} bytes, and no more at offset {offset}"
            headers = ((b"x-file-size", b"%d" % exc.size),)
            await request.send_json(to_json({"detail": text}), status=416, headers=headers)
            return
        if offset == 0:  # else it is a later part of the same file
            hosted.file_used("read", path, size)
        answered = ((b"content-type", b"application/octet-stream"), (b"x-file-size", b"%d" % size))
        await request.send_once(200, content, answered)

    async def _write(self, request: Request) -> None:
        query = query_of(request)
        hosted = self._hosted(request)
        path = path_of(query)
        if query.get("commit") == "1":
            size = number_of(query, "size", None)
            await request.body(_LARGEST_PART)
            digest = await commit_file(hosted, path, size)
            hosted.file_used("write", path, size)
            await request.send_json(to_json({"sha256": digest, "size": size}))
            return
        offset = number_of(query, "offset", 0)
        content = await request.body(_LARGEST_PART)
        await write_range(hosted, path, offset, content, folders=query.get("mkdirs") == "1")
        await request.send_json(to_json({"written": len(content)}))


async def _only_post(request: Request) -> None:
    text = b'{"detail":"Method Not Allowed"}'
    await request.send_json(text, status=405, headers=((b"allow", b"POST"),))


async def _run_events(work: asyncio.Future[Any]) -> bytes:
    """Events of a command's end.

    Raises SessionGone, which breaks the stream off: the client asks again, and has a 410, which says more to
    it than an error of the stream.
    """
    if work.cancelled():
        return encode_event("error", "the sandbox was ended while the command ran")
    if (error := work.exception()) is not None:
        if isinstance(error, SandboxGone):
            raise SessionGone(str(error))
        return encode_event("error", _said(error))
    result: RunResult = work.result()
    if len(result.output) > _ENCODED_AT_ONCE:
        return await asyncio.to_thread(_encoded, result)
    return _encoded(result)


def _encoded(result: RunResult) -> bytes:
    """Events with a result, whose output is encoded in parts: each holds up all other threads."""
    output = result.output
    rest = to_json({"return_code": result.return_code, "timed_out": result.timed_out})
    parts = (
        base64.b64encode(output[at : at + _ENCODED_AT_ONCE]) for at in range(0, len(output), _ENCODED_AT_ONCE)
    )
    return encode_result(b"".join((b'{"output":"', *parts, b'",', rest[1:])))


def _said(error: BaseException) -> str:
    if isinstance(error, Refused):
        return error.detail
    return str(error) if isinstance(error, (OrsayError, ValueError)) else f"it failed: {type(error).__name__}"


def _body(model: type[_Model], body: bytes, path: str) -> _Model:
    try:
        return model.model_validate_json(body)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        raise BadRequest(f"{path}, {'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}") from None


def _task_id(body: bytes) -> str | None:
    class Resumed(BaseModel):
        model_config = ConfigDict(extra="ignore")
        task_id: str | None = None

    try:
        return Resumed.model_validate_json(body or b"{}").task_id
    except ValidationError:
        return None
