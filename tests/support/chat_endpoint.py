"""A chat endpoint that answers as a script says, in the shapes that OpenAI documents, over a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Answer", "Endpoint", "call", "error", "say", "serve_endpoint"]

Body = Mapping[str, Any]


class Answer:
    """What the endpoint sends: a status, a body (JSON, or bytes as they are), headers."""

    def __init__(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.headers = status, dict(headers or {})
        self.content = body if isinstance(body, bytes) else json.dumps(body).encode()


Script = Callable[[Body], Answer]


class Endpoint:
    """Where it is, what it was asked, and the script, which may be changed at any time."""

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.script: Script = lambda body: say("nothing to say")
        self.most_at_once = 0
        self._running = 0
        self._lock = threading.Lock()

    def answer(self, body: dict[str, Any], key: str) -> Answer:
        with self._lock:
            self.requests.append(body)
            self.keys.append(key)
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        try:
            return self.script(body)
        finally:
            with self._lock:
                self._running -= 1


@contextmanager
def serve_endpoint() -> Iterator[Endpoint]:
    """A new endpoint for as long as the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(error(404, "there is no list of models"))

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            key = self.headers.get("Authorization", "")
            if self.path != "/v1/chat/completions":
                found = error(404, "Not Found")
            else:
                found = endpoint.answer(json.loads(raw), key)
            self._send(found)

        def _send(self, found: Answer) -> None:
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(found.content)))
            self.end_headers()
            self.wfile.write(found.content)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    endpoint = Endpoint(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def say(text: str | None, *, finish: str = "stop", **message: Any) -> Answer:
    """A plain message."""
    return _completion({"content": text, **message}, finish)


def call(*calls: tuple[str, Any], text: str | None = None, finish: str = "tool_calls") -> Answer:
    """Tool calls; arguments that are a string are sent as they are."""
    found: Sequence[dict[str, Any]] = [
        {
            "id": f"call_{place}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
            },
        }
        for place, (name, arguments) in enumerate(calls)
    ]
    return _completion({"content": text, "tool_calls": found}, finish)


def error(status: int, message: str, *, code: str | None = None, **headers: str) -> Answer:
    """A refusal; names of headers with ``_`` for ``-``."""
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    return Answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def _completion(message: Mapping[str, Any], finish: str) -> Answer:
    return Answer(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "scripted",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "refusal": None, **message},
                    "finish_reason": finish,
                    "logprobs": None,
                }
            ],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
        }
    )
