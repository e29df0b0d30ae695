"""Upper bound: the bytes of an echo call's answer as one constant, from a bare ASGI function on uvicorn.

python raw_asgi.py 19105

No routing, no sessions, no tool, no validation: a Python server's work adds to this.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

RESULT = (
    b'{"ok":true,"output":{"blocks":[{"text":"hello","detail":null,"type":"text"}],'
    b'"metadata":null,"reward":0.0,"finished":false}}'
)
BODY = (
    b"event: task_id\r\ndata: 0123456789abcdef0123456789abcdef\r\n\r\nevent: end\r\ndata: "
    + RESULT
    + b"\r\n\r\n"
)
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"content-length", str(len(BODY)).encode()),
    ],
}


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send({"type": "http.response.body", "body": BODY})


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
