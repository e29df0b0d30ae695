"""A small ORS server that keeps the contract, except for the one thing that its arguments break.

Its arguments may also make it peculiar in a way that the contract allows.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import httpx
import uvicorn
from fastapi import APIRouter, FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["KEY", "SmallServer", "small_server", "stop_small_servers"]

KEY = "the-key-of-this-server"
_TASKS = [{"id": number, "goal": f"say {number}"} for number in range(5)]
_OTHERS = [{"id": number, "goal": f"say {number}"} for number in range(10, 13)]
_SPLITS: dict[str, list[dict[str, Any]]] = {"train": _TASKS, "validation": _OTHERS, "test": []}
_PIECE = 4096
_OURS = {"X-Orsay": "1"}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _OfSplit(_Body):
    split: str


class _OneTask(_OfSplit):
    index: int


class _Range(_OfSplit):
    start: int | None = None
    stop: int | None = None


class _Create(_Body):
    env_name: str | None = None
    task_spec: dict[str, Any] | None = None
    split: str | None = None
    index: int | None = None
    toolset_name: str | None = None
    secrets: dict[str, str | None] | None = None


class _Call(_Body):
    name: str
    input: dict[str, Any]
    task_id: str | None = None


class _Text(BaseModel):
    text: str


class _Seconds(BaseModel):
    seconds: float = Field(ge=0, examples=[0.05])


class _Answer(BaseModel):
    answer: str


@dataclass
class _Env:
    """One episode."""

    pressed: int = 0
    finished: bool = False

    async def press(self, given: Any) -> dict[str, Any]:
        self.pressed += 1
        return _output(f"pressed {self.pressed} times", reward=0.5)

    async def say(self, given: _Text) -> dict[str, Any]:
        return _output(given.text)

    async def rest(self, given: _Seconds) -> dict[str, Any]:
        await asyncio.sleep(given.seconds)
        return _output("rested")

    async def fail(self, given: Any) -> dict[str, Any]:
        raise ValueError("it failed")

    async def answer(self, given: _Answer) -> dict[str, Any]:
        self.finished = True
        return _output("over", reward=1.0, finished=True)

    async def _reset(self, given: Any) -> dict[str, Any]:
        """No tool."""
        return _output("as new")


def _output(text: str, *, reward: float | None = None, finished: bool = False) -> dict[str, Any]:
    blocks = [{"text": text, "detail": None, "type": "text"}]
    return {"blocks": blocks, "metadata": None, "reward": reward, "finished": finished}


def _block(given: Any) -> None:
    """As a tool does that sleeps on the event loop."""
    time.sleep(given.seconds)


_TOOLS: dict[str, type[BaseModel] | None] = {"press": None, "say": _Text, "rest": _Seconds, "fail": None}
_TERMINAL = {"name": "answer", "arg": "answer", "description": "The last message."}


@dataclass
class _Session:
    body: dict[str, Any]
    task: dict[str, Any]
    env: _Env = field(default_factory=_Env)
    results: dict[str, asyncio.Task[str]] = field(default_factory=dict)
    keys: dict[str, tuple[str, _Call]] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Small:
    """``broken`` names the defect, or the peculiarity; each is in one line of its own."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, broken: str) -> None:
        """Forget everything, and have this defect from now on."""
        self.broken = broken
        self.sessions: dict[str, _Session] = {}
        self.gone: set[str] = set()
        self.calls = 0
        self.last = "text number 0"
        self.turn = asyncio.Lock()
        self.cache: dict[tuple[str, str], str] = {}
        self.old: dict[str, _Session] = {}

    def is_(self, defect: str) -> bool:
        return self.broken == defect

    # sessions

    def session(self, sid: str | None) -> _Session:
        if sid is None or not sid.strip():
            raise HTTPException(400, "X-Session-ID is missing")
        if self.is_("all sessions are one") and self.sessions:
            sid = next(iter(self.sessions))
        if sid in self.sessions:
            return self.sessions[sid]
        if self.is_("an unknown session answers 200") and sid not in self.gone:
            return _Session({}, _TASKS[0])
        if sid in self.gone and not self.is_("a deleted session answers 404"):
            raise HTTPException(410, "the session was deleted", {"X-Orsay-Fault": "session_gone"})
        if self.is_("an unknown session answers 410"):
            raise HTTPException(410, "the session was deleted", {"X-Orsay-Fault": "session_gone"})
        raise HTTPException(404, "no such session")

    def create(self, sid: str | None, body: _Create, secrets: str | None) -> None:
        if sid is None or not sid.strip():
            raise HTTPException(400, "X-Session-ID is missing")
        _check_secrets(secrets)
        if (body.env_name or "small").lower() != "small":
            raise HTTPException(404, "no such environment")
        task = body.task_spec
        if (task is None) == (body.split is None and body.index is None):
            raise HTTPException(422, "one task, please")
        if task is None:
            if body.split is None or body.index is None:
                raise HTTPException(422, "split and index, please")
            task = _task(body.split, 0 if self.is_("create opens the first task") else body.index)
            if self.is_("create opens tasks of train"):
                task = _task("train", body.index)
        if body.toolset_name is not None:
            raise HTTPException(400, "no such toolset")
        asked = body.model_dump()
        there = self.sessions.get(sid)
        if there is not None and there.body != asked and not self.is_("create takes another body"):
            raise HTTPException(409, "the session has another task")
        if there is not None and self.is_("create twice is refused"):
            raise HTTPException(400, "Session already exists")
        if there is not None and self.is_("create makes it anew"):
            there = None
        if there is None:
            self.gone.discard(sid)
            self.sessions[sid] = _Session(asked, task)
            if self.is_("results outlive their session") and sid in self.old:
                self.sessions[sid].results = self.old[sid].results
            if self.is_("keys outlive their session") and sid in self.old:
                self.sessions[sid].results = self.old[sid].results
                self.sessions[sid].keys = self.old[sid].keys

    def delete(self, sid: str | None) -> None:
        if sid is None or not sid.strip():
            raise HTTPException(400, "X-Session-ID is missing")
        if self.is_("delete leaves the session"):
            return
        session = self.sessions.pop(sid, None)
        if session is not None:
            self.gone.add(sid)
            self.old[sid] = session
            for task in session.results.values():
                if not self.is_("delete leaves calls running"):
                    task.cancel()

    # calls

    async def call(self, sid: str | None, body: _Call, key: str | None) -> AsyncIterator[bytes]:
        session = self.session(sid)
        results = session.results
        if self.is_("results are everybody's"):
            results = {name: each for other in self.sessions.values() for name, each in other.results.items()}
        task_id = body.task_id
        if task_id is None and key is not None and not self.is_("keys are ignored"):
            task_id, first = session.keys.get(key, (None, body))
            if first != body and not self.is_("a key takes another body"):
                raise HTTPException(409, "this Idempotency-Key came with another body")
            if task_id and not results[task_id].done() and self.is_("the key of a running call runs again"):
                task_id = None
        known = task_id in results
        if known and body.task_id and not results[body.task_id].done():
            known = not self.is_("a running call is unknown")
            if self.is_("reading a running call runs it again"):
                results[body.task_id] = asyncio.create_task(self._run(session, body))
        if task_id is not None and not known:
            return _stream([("error", "unknown task_id")])
        if task_id is not None and body.task_id and self.is_("reading again runs again"):
            results[task_id] = asyncio.create_task(self._run(session, body))
        if task_id is not None and not body.task_id and self.is_("the same key runs again"):
            await self._run(session, body)
        if task_id is None:
            task_id = "0" * 32 if self.is_("task ids are all the same") else uuid.uuid4().hex
            session.results[task_id] = asyncio.create_task(self._run(session, body))
            results = {**results, task_id: session.results[task_id]}
            if key is not None:
                session.keys[key] = task_id, body
        return self._answer(task_id, results[task_id])

    async def _run(self, session: _Session, body: _Call) -> str:
        """The result, as JSON. Raises what the tool raises."""
        over = session.env.finished and not self.is_("calls go on after the end")
        if over and not (self.is_("other tools go on after the end") and body.name == "press"):
            return _refusal("the episode is over", "episode_finished")
        model = _Answer if body.name == "answer" else _TOOLS.get(body.name)
        public = body.name in (*_TOOLS, "answer")
        if self.is_("private methods are tools") and body.name == "_reset":
            public = True
        if self.is_("dunders are tools") and hasattr(session.env, body.name):
            return json.dumps({"ok": True, "output": _output("done")})
        if not public:
            return _refusal("no such tool", "not_found")
        given: BaseModel | None = None
        if model is not None:
            try:
                given = model.model_validate(body.input)
            except ValidationError as exc:
                if self.is_("refused calls run"):
                    await session.env.press(None)
                return _refusal(str(exc), "input_validation")
        return await self._play(session, body.name, given)

    async def _play(self, session: _Session, name: str, given: BaseModel | None) -> str:
        self.calls += 1
        if self.is_("every call takes long"):
            await asyncio.sleep(2.6)
        if self.is_("every tool counts") and name != "press":
            session.env.pressed += 1
        if self.is_("press counts by two") and name == "press":
            session.env.pressed += 1
        if self.is_("calls of one tool overlap") and name == "press":
            before = session.env.pressed
            await asyncio.sleep(0.03)
            session.env.pressed = before
        if self.is_("calls are cached") and (name, repr(given)) in self.cache:
            return self.cache[name, repr(given)]
        tool: Callable[[Any], Awaitable[dict[str, Any]]] = getattr(session.env, name)
        if self.is_("tools block the loop") and name == "rest":
            _block(given)
            return self._encode(name, _output("rested"))
        try:
            async with self.turn if self.is_("one call at a time") else contextlib.nullcontext():
                output = await tool(given)
        except ValueError:
            if self.is_("what raises begins the episode anew"):
                session.env = _Env()
            if self.is_("what raises is tried three times"):
                session.env.pressed += 3
            raise
        if self.is_("press is concurrent and answers late") and name == "press":
            await asyncio.sleep(0.03)
            output = _output(f"pressed {session.env.pressed} times", reward=0.5)
        if self.is_("the fourth press ends the episode") and name == "press":
            output["finished"] = session.env.finished = session.env.pressed >= 4
        if self.is_("each call runs twice"):
            output = await tool(given)
        if self.is_("each call runs again after its answer"):
            await tool(given)
        if self.is_("every third call runs twice") and self.calls % 3 == 0:
            await tool(given)
        self.cache[name, repr(given)] = self._encode(name, output)
        return self.cache[name, repr(given)]

    def _encode(self, name: str, output: dict[str, Any]) -> str:
        text = output["blocks"][0]["text"]
        if self.is_("answers change places") and text.startswith("text number"):
            output["blocks"][0]["text"], self.last = self.last, text
        if self.is_("long results are cut off"):
            output["blocks"][0]["text"] = text[:3_000]
        if self.is_("long results are cut and joined"):
            output["blocks"][0]["text"] = text[:5_000] + text[9_000:]
        if self.is_("digits are lost in long texts") and len(text) > 10_000:
            output["blocks"][0]["text"] = text.replace("3", "")
        if self.is_("metadata and texts speak of rewards") and name == "press":
            output["metadata"] = {"reward": "gold coins", "quest": {"reward": True}}
            output["blocks"][0]["text"] = f'{{"reward": NaN, "reward": "x"}} {text}'
        if self.is_("a reward is text"):
            output["reward"] = None if output["reward"] is None else str(output["reward"])
        if self.is_("a reward is true"):
            output["reward"] = None if output["reward"] is None else True
        if self.is_("finished is missing"):
            del output["finished"]
        result = json.dumps({"ok": True, "output": output}, ensure_ascii=False, separators=(",", ":"))
        for defect, literal in (
            ("a reward is NaN", "NaN"),
            ("a reward is Infinity", "-Infinity"),
            ("a reward is 1e999", "1e999"),
        ):
            if self.is_(defect) and name == "press":
                result = result.replace('"reward":0.5', f'"reward":{literal}')
        if self.is_("a name stands twice"):
            result = result.replace('"finished":', '"finished":true,"finished":')
        if self.is_("half a character is sent"):
            result = result.replace('"text":"', '"text":"\\ud800', 1)
        return result + (" {}" if self.is_("something follows the JSON") else "")

    async def _answer(self, task_id: str, running: asyncio.Task[str]) -> AsyncIterator[bytes]:
        yield _event("task_id", task_id)
        try:
            result = await asyncio.shield(running)
        except (Exception, asyncio.CancelledError) as exc:
            if not self.is_("errors end without an event"):
                yield _event("error", str(exc) or "the session was deleted")
            return
        for data in self._events(result):
            yield data.replace("é".encode(), b"\xe9") if self.is_("bytes are no UTF-8") else data

    def _events(self, result: str) -> Iterator[bytes]:
        pieces = list(_pieces(result, plain=self.is_("white space is not escaped")))
        if self.is_("white space is trimmed at the borders"):
            pieces = [piece.lstrip() for piece in _pieces(result, plain=True)]
        if self.is_("the second piece is lost") and len(pieces) > 2:
            del pieces[1]
        if self.is_("a middle piece is sent twice") and len(pieces) > 3:
            pieces.insert(2, pieces[2])
        if self.is_("two pieces change places") and len(pieces) > 3:
            pieces[1], pieces[2] = pieces[2], pieces[1]
        if self.is_("the last piece is lost") and len(pieces) > 2:
            del pieces[-2]
        if self.is_("a byte is lost at each border"):
            pieces = [*(piece[:-1] for piece in pieces[:-1]), pieces[-1]]
        for piece in pieces[:-1]:
            yield _event("chunk", piece)
        if self.is_("streams end without end"):
            return
        last = _event("end", pieces[-1])
        yield last.removesuffix(b"\r\n") if self.is_("the last line is missing") else last
        if self.is_("end is sent twice"):
            yield last
        if self.is_("an error follows end"):
            yield _event("error", "and yet")


def _refusal(error: str, reason: str) -> str:
    return json.dumps({"ok": False, "error": error, "reason": reason}, separators=(",", ":"))


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\r\ndata: {data}\r\n\r\n".encode()


async def _stream(events: list[tuple[str, str]]) -> AsyncIterator[bytes]:
    for name, data in events:
        yield _event(name, data)


def _pieces(text: str, *, plain: bool) -> Iterator[str]:
    """Pieces that begin with no white space, unless they are ``plain``."""
    for at in range(0, len(text), _PIECE):
        piece = text[at : at + _PIECE]
        if piece[0].isspace() and not plain:
            piece = f"\\u{ord(piece[0]):04x}{piece[1:]}"
        yield piece


def _check_secrets(header: str | None) -> None:
    try:
        found = {} if header is None else json.loads(base64.b64decode(header, validate=True))
        assert isinstance(found, dict)
        for each in found.values():
            assert isinstance(each["value"] if isinstance(each, dict) else each, str)
    except (ValueError, AssertionError, KeyError):
        raise HTTPException(400, "X-Secrets cannot be decoded") from None


def _of(split: str) -> list[dict[str, Any]]:
    if split not in _SPLITS:
        raise HTTPException(400, "Invalid split")
    return _SPLITS[split]


def _task(split: str, index: int) -> dict[str, Any]:
    tasks = _of(split)
    if not -len(tasks) <= index < len(tasks):
        raise HTTPException(400, "Invalid index")
    return tasks[index]


def _tools() -> dict[str, Any]:
    tools = [
        {"name": name, "description": "", "input_schema": model and model.model_json_schema()}
        for name, model in _TOOLS.items()
    ]
    kinds = ["text", "image"]
    return {
        "tools": tools,
        "terminal_tool": _TERMINAL,
        "supports_score_group": False,
        "message_block_types": kinds,
    }


_Sid = Header(None, alias="X-Session-ID")


def _discovery(small: _Small) -> APIRouter:
    """With the environment in the path, and without."""
    router = APIRouter()

    @router.get("/tools")
    async def tools() -> Any:
        return _tools()

    @router.get("/splits")
    async def splits() -> Any:
        return [{"name": name, "type": name} for name in _SPLITS]

    @router.post("/tasks")
    async def tasks(body: _OfSplit, env: str = "small") -> Any:
        if small.is_("tasks hold NaN"):
            return Response(b'{"tasks":[NaN,{},{},{},{}],"env_name":"small"}', media_type="application/json")
        return {"tasks": _of(body.split), "env_name": env}

    @router.post("/num_tasks")
    async def num_tasks(body: _OfSplit) -> Any:
        return {"num_tasks": len(_of(body.split))}

    @router.post("/task")
    async def task(body: _OneTask, env: str = "small") -> Any:
        return {"task": _task(body.split, body.index), "env_name": env}

    @router.post("/task_range")
    async def task_range(body: _Range, env: str = "small") -> Any:
        return {"tasks": _of(body.split)[body.start : body.stop], "env_name": env}

    return router


def _episode(small: _Small) -> APIRouter:
    router = APIRouter()

    @router.get("/prompt")
    async def prompt(sid: str | None = _Sid) -> Any:
        session = small.session(sid)
        if small.is_("the prompt begins the episode anew"):
            session.env = _Env()
        return [{"text": f"task {session.task.get('id')}", "detail": None, "type": "text"}]

    @router.get("/messages")
    async def messages(sid: str | None = _Sid) -> Any:
        return [{"role": "user", "blocks": await prompt(sid), "detail": None}]

    @router.get("/task_tools")
    async def task_tools(sid: str | None = _Sid) -> Any:
        session = small.session(sid)
        if small.is_("listing tools begins the episode anew"):
            session.env = _Env()
        return _tools()

    @router.post("/call")
    async def call(
        body: _Call, sid: str | None = _Sid, key: str | None = Header(None, alias="Idempotency-Key")
    ) -> Response:
        if small.is_("calls answer with JSON"):
            session = small.session(sid)
            return Response(await small._run(session, body), media_type="application/json")
        stream = await small.call(sid, body, key)
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        kind = "text/plain" if small.is_("streams are plain text") else "text/event-stream"
        return StreamingResponse(stream, media_type=kind, headers=headers)

    @router.post("/score_group")
    async def score_group() -> Any:
        raise HTTPException(404, "no group scores here")

    return router


class _NeedsKey:
    """As a middleware of FastAPI, without its tasks and streams for every request."""

    def __init__(self, app: ASGIApp, small: _Small) -> None:
        self._app = app
        self._small = small

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._refuse(Headers(scope=scope), scope["path"])
        await (answer or self._app)(scope, receive, send)

    def _refuse(self, headers: Headers, path: str) -> JSONResponse | None:
        given = headers.get("X-API-Key") or headers.get("Authorization", "").removeprefix("Bearer ")
        parts = path.strip("/").split("/")
        open_ = path in ("/health", "/ready")
        open_ = open_ or (self._small.is_("a route needs no key") and path.endswith("/messages"))
        part = self._small.is_("a part of the key will do")
        open_ = open_ or (part and bool(given) and KEY.startswith(given))
        if given != KEY and not open_:
            return JSONResponse({"detail": "which key?"}, 401)
        if len(parts) == 2 and parts[0].lower() != "small":
            return JSONResponse({"detail": "no such environment"}, 404)
        return None


def _app(small: _Small) -> FastAPI:
    app = FastAPI()
    app.add_middleware(_NeedsKey, small=small)

    @app.get("/health")
    async def health() -> Any:
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> Any:
        if small.is_("ready is missing"):
            raise HTTPException(404, "Not Found")
        return {"status": "ok"}

    @app.get("/version")
    async def version() -> Any:
        return {"version": "1"}

    @app.get("/list_environments")
    async def environments() -> Any:
        return ["small"]

    @app.post("/create_session")
    async def create_session(request: Request) -> Response:
        sid = str(uuid.uuid4())
        if "text/event-stream" not in request.headers.get("Accept", ""):
            return JSONResponse({"sid": sid}, headers=_OURS)
        events = _stream([("task_id", sid), ("end", "")])
        return StreamingResponse(events, media_type="text/event-stream", headers=_OURS)

    @app.post("/create")
    async def create(
        body: _Create, sid: str | None = _Sid, secrets: str | None = Header(None, alias="X-Secrets")
    ) -> Any:
        small.create(sid, body, secrets)
        return {"sid": sid}

    @app.post("/ping")
    async def ping(sid: str | None = _Sid) -> Any:
        small.session(sid)
        return {"status": "ok"}

    @app.post("/delete")
    async def delete(sid: str | None = _Sid) -> Any:
        small.delete(sid)
        return {"sid": sid}

    @app.post("/delete_session")
    async def delete_session(sid: str | None = _Sid) -> Any:
        if sid is None or not sid.strip():
            raise HTTPException(400, "X-Session-ID is missing")
        return {"sid": sid}

    for prefix in ("", "/{env}"):
        app.include_router(_discovery(small), prefix=prefix)
        app.include_router(_episode(small), prefix=prefix)
    return app


class _Server(uvicorn.Server):
    """Ends the connections, too, whose answers take longer than a graceful shutdown."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0.01)


class SmallServer:
    """A server that runs in a thread; it has one defect after the other."""

    def __init__(self) -> None:
        self._small = _Small()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        app = _app(self._small)
        config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=2)
        self._server = _Server(config)
        self._thread = Thread(target=self._server.run, kwargs={"sockets": [self._listener]})
        self._thread.start()
        # FastAPI finishes itself at the first request, which is no work for several threads at the same time.
        httpx.get(f"{self.url}/small/splits", headers={"X-API-Key": KEY}).raise_for_status()

    @property
    def sessions(self) -> Mapping[str, object]:
        """Those that there are, by id."""
        return self._small.sessions

    def begin(self, broken: str) -> None:
        self._small.begin(broken)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(15)
        self._listener.close()


_idle: list[SmallServer] = []


@contextlib.contextmanager
def small_server(broken: str = "") -> Iterator[SmallServer]:
    """The server, running; ``broken`` is one of the defects or peculiarities above, or nothing."""
    server = _idle.pop() if _idle else SmallServer()
    server.begin(broken)
    try:
        yield server
    finally:
        _idle.append(server)


def stop_small_servers() -> None:
    """End those that nobody uses."""
    while _idle:
        _idle.pop().stop()
