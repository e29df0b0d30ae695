"""What clients should not send, and every place of the HTTP surface where they may."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["ENVELOPES", "VALUES", "Case", "Request", "cases", "raw_bodies"]

# As JSON text: Python's own encoder refuses some of it.
VALUES: dict[str, str] = {
    "half letter": '"\\ud800"',
    "other half": '"a\\udfffb"',
    "halves in the wrong order": '"\\udc00\\ud800"',
    "NUL": '"a\\u0000b"',
    "lines": '"a\\r\\nX-Injected: yes\\nb"',
    "control": '"\\u001b[2J\\u0007\\u007f\\u2028"',
    "no letter": '"\\ufffe\\uffff"',
    "empty": '""',
    "long": json.dumps("x" * 100_000),
    "long with halves": '"' + "\\ud800" * 5_000 + '"',
    "huge number": "9" * 400,
    "huger number": "9" * 5_000,
    "negative": "-" + "9" * 30,
    "edge": str(2**63),
    "float": "1e999",
    "small": "1e-999",
    "NaN": "NaN",
    "infinity": "-Infinity",
    "null": "null",
    "true": "true",
    "list": "[[[[]]]]",
    "object": '{"\\ud800": {"\\u0000": null}}',
    "key": '{"\\u0000": 1}',
    "deep": "[" * 500 + "]" * 500,
    "deeper": '{"a":' * 3_000 + "1" + "}" * 3_000,
    "same key": '{"a": 1, "a": 2}',
    "number": "7",
}
_EPISODE = '"split": "s", "index": 0, "attempt": 0'
_REST = (
    '"split": "s", "model": "m", "started_at": 1,'
    ' "summary": {"n_tasks": 1, "k": 1, "episodes": 1, "planned": 1, "scored": 1}'
)


@dataclass(frozen=True)
class Case:
    """A request; ``%s`` of the body is where a value goes."""

    method: str
    path: str
    body: str
    headers: dict[str, str] = field(default_factory=dict)
    opens: bool = False
    """Whether it may open a session, so that it needs an id of its own."""


class Request(NamedTuple):
    """One request as it is sent."""

    name: str
    method: str
    path: str
    body: bytes | None
    headers: dict[str, bytes]


ENVELOPES: dict[str, Case] = {
    "split of a listing": Case("POST", "/scripted/tasks", '{"split": %s}'),
    "body of a listing": Case("POST", "/scripted/tasks", "%s"),
    "name of a listing's field": Case("POST", "/scripted/tasks", '{%s: 1, "split": "train"}'),
    "environment in the path's body": Case("POST", "/tasks", '{"split": %s, "env_name": %s}'),
    "split of a count": Case("POST", "/num_tasks", '{"split": %s}'),
    "split of a task": Case("POST", "/task", '{"split": %s, "index": 0}'),
    "index of a task": Case("POST", "/task", '{"split": "train", "index": %s}'),
    "start of a range": Case("POST", "/task_range", '{"split": "train", "start": %s}'),
    "stop of a range": Case("POST", "/task_range", '{"split": "train", "start": 0, "stop": %s}'),
    "split of a range": Case("POST", "/task_range", '{"split": %s, "start": 0, "stop": 1}'),
    "task_spec": Case("POST", "/create", '{"task_spec": %s}', opens=True),
    "field of task_spec": Case("POST", "/create", '{"task_spec": {"x": %s}}', opens=True),
    "name in task_spec": Case("POST", "/create", '{"task_spec": {%s: 1}}', opens=True),
    "split of a session": Case("POST", "/create", '{"split": %s, "index": 0}', opens=True),
    "index of a session": Case("POST", "/create", '{"split": "train", "index": %s}', opens=True),
    "environment": Case("POST", "/create", '{"env_name": %s, "task_spec": {}}', opens=True),
    "toolset": Case("POST", "/create", '{"task_spec": {}, "toolset_name": %s}', opens=True),
    "secrets in the body": Case("POST", "/create", '{"task_spec": {}, "secrets": {"a": %s}}', opens=True),
    "names of secrets": Case("POST", "/create", '{"task_spec": {}, "secrets": {%s: "a"}}', opens=True),
    "all of a session": Case("POST", "/create", "%s", opens=True),
    "tool's name": Case("POST", "/call", '{"name": %s, "input": {}}'),
    "tool's input": Case("POST", "/call", '{"name": "say", "input": %s}'),
    "tool's text": Case("POST", "/call", '{"name": "say", "input": {"text": %s}}'),
    "tool's number": Case("POST", "/call", '{"name": "add", "input": {"by": %s}}'),
    "tool's field": Case("POST", "/call", '{"name": "say", "input": {%s: "x"}}'),
    "task id": Case("POST", "/call", '{"name": "say", "input": {}, "task_id": %s}'),
    "all of a call": Case("POST", "/call", "%s"),
    "cancelled task": Case("POST", "/cancel", '{"task_id": %s}'),
    "all of a cancel": Case("POST", "/cancel", "%s"),
    "candidates": Case("POST", "/score_group", '{"candidates": %s}'),
    "text of a candidate": Case(
        "POST",
        "/score_group",
        '{"candidates": [{"messages": [{"role": "user", "blocks": [{"type": "text", "text": %s}]}]}]}',
    ),
    "all of a ping": Case("POST", "/ping", "%s"),
    "all of a delete": Case("POST", "/delete", "%s", opens=True),
    "an id's body": Case("POST", "/create_session", "%s"),
    "a report": Case("POST", "/console/api/evaluations", "%s"),
    **{
        f"a report's {place}": Case("POST", "/console/api/evaluations", text)
        for place, text in (
            ("name", '{"name": %s, "run": "r", "environment": "e", REST}'),
            ("run", '{"name": "n", "run": %s, "environment": "e", REST}'),
            ("environment", '{"name": "n", "run": "r", "environment": %s, REST}'),
            ("settings", '{"name": "n", "run": "r", "environment": "e", "settings": {"a": %s}, REST}'),
            ("settings' names", '{"name": "n", "run": "r", "environment": "e", "settings": {%s: 1}, REST}'),
            ("episodes", '{"name": "n", "run": "r", "environment": "e", "episodes": %s, REST}'),
            (
                "task",
                '{"name": "n", "run": "r", "environment": "e", "episodes": [{"task": %s, EPISODE}], REST}',
            ),
            (
                "trace",
                '{"name": "n", "run": "r", "environment": "e",'
                ' "episodes": [{"task": "t", "trace": %s, EPISODE}], REST}',
            ),
        )
    },
    "a method that is none": Case("POST", "/tools", "%s"),
    "a body of a get": Case("GET", "/tools", "%s"),
    "no path": Case("POST", "/nothing", "%s"),
    # OpenEnv
    "reset": Case("POST", "/reset", "%s"),
    "reset's split": Case("POST", "/scripted/reset", '{"split": %s, "index": 0}'),
    "reset's seed": Case("POST", "/reset", '{"seed": %s}'),
    "reset's episode": Case("POST", "/reset", '{"episode_id": %s}'),
    "reset's spec": Case("POST", "/reset", '{"task_spec": {"a": %s}}'),
    "step": Case("POST", "/step", "%s"),
    "step's action": Case("POST", "/step", '{"action": %s}'),
    "step's tool": Case(
        "POST", "/step", '{"action": {"type": "call_tool", "tool_name": %s, "arguments": {}}}'
    ),
    "step's arguments": Case(
        "POST", "/step", '{"action": {"type": "call_tool", "tool_name": "say", "arguments": {"text": %s}}}'
    ),
    "step's request": Case(
        "POST",
        "/step",
        '{"action": {"type": "call_tool", "tool_name": "say", "arguments": {}}, "request_id": %s}',
    ),
    "step's timeout": Case("POST", "/step", '{"action": {"type": "list_tools"}, "timeout_s": %s}'),
    "a JSON-RPC request": Case("POST", "/mcp", "%s"),
    "a JSON-RPC id": Case("POST", "/mcp", '{"jsonrpc": "2.0", "id": %s, "method": "tools/list"}'),
    "a JSON-RPC method": Case("POST", "/mcp", '{"jsonrpc": "2.0", "id": 1, "method": %s}'),
    "JSON-RPC parameters": Case(
        "POST", "/mcp", '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": %s}'
    ),
    "a JSON-RPC argument": Case(
        "POST",
        "/mcp",
        '{"jsonrpc": "2.0", "id": %s, "method": "tools/call",'
        ' "params": {"name": %s, "arguments": {"text": %s}}}',
    ),
    # MCP
    "MCP": Case("POST", "/mcp", "%s", {"Accept": "application/json, text/event-stream"}),
    "MCP's beginning": Case(
        "POST",
        "/mcp",
        '{"jsonrpc": "2.0", "id": %s, "method": "initialize", "params": {"protocolVersion": %s,'
        ' "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}',
        {"Accept": "application/json, text/event-stream"},
    ),
    "MCP's parameters": Case(
        "POST",
        "/mcp",
        '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": %s}',
        {"Accept": "application/json, text/event-stream"},
    ),
    "MCP's client": Case(
        "POST",
        "/mcp",
        '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26",'
        ' "capabilities": {}, "clientInfo": {"name": %s, "version": "1"}}}',
        {"Accept": "application/json, text/event-stream"},
    ),
}

_HEADERS = (
    "X-Secrets",
    "X-Orsay-Run",
    "X-Deployment",
    "Idempotency-Key",
    "traceparent",
    "User-Agent",
    "Accept",
    "Accept-Encoding",
    "Accept-Language",
    "Content-Type",
    "Content-Encoding",
    "Mcp-Session-Id",
    "Mcp-Protocol-Version",
    "Last-Event-ID",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "If-None-Match",
    "Range",
    "Cookie",
    "X-API-Key",
    "Authorization",
    "X-Session-ID",
)
_HEADER_VALUES = (
    b"",
    b" ",
    b"\xed\xa0\x80",
    b"\xff\xfe",
    "é中".encode(),
    "é".encode("latin-1"),
    b"=?utf-8?b?AAA=?=",
    b'"',
    b"a;b=c, d;q=x",
    b"*/*;q=nan",
    b"bytes=0-,-1,99999999999999999999-",
    b"unix:/x",
    b"300.300.300.300, x, ,",
    b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00",
    b"00-" + b"g" * 32 + b"-zz-",
    b"Bearer \xff",
    b"text/plain; charset=utf-16",
    b"application/json; charset=utf-7",
    b"multipart/form-data; boundary=x",
    b"multipart/form-data",
    b"application/x-www-form-urlencoded",
    b"gzip",
    b"%ED%A0%80%00",
    b"x" * 9_000,
    b"9" * 400,
)
_HEADED: tuple[tuple[str, str, bytes | None], ...] = (
    ("GET", "/tools", None),
    ("GET", "/openapi.json", None),
    ("GET", "/metrics", None),
    ("GET", "/console", None),
    ("GET", "/console/api/trajectories", None),
    ("GET", "/scripted/state", None),
    ("GET", "/mcp", None),
    ("DELETE", "/mcp", None),
    ("POST", "/create", b'{"task_spec": {}}'),
    ("POST", "/call", b'{"name": "say", "input": {"text": "x"}}'),
    ("POST", "/cancel", b"{}"),
    ("POST", "/scripted/tasks", b'{"split": "train"}'),
    ("POST", "/reset", b"{}"),
    ("POST", "/step", b'{"action": {"type": "list_tools"}}'),
    ("POST", "/mcp", b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'),
)
_PARTS = (
    "%ED%A0%80",
    "%00",
    "a%00b",
    "%FF%FE",
    "%0d%0aX-Injected:%20yes",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%5c..",
    "%",
    "%zz",
    "%252e",
    "+",
    "%C3%A9",
    "'%20OR%201=1--",
    "x" * 3_000,
    "9" * 400,
    "-1",
    "1e999",
    "nan",
    "[",
    "",
    "%E2%80%A8",
    "a&b=c;d",
    "%26%3D%23",
)
_PLACES = (
    "/{}",
    "/{}/tools",
    "/{}/splits",
    "/scripted/{}",
    "/scripted/{}/x",
    "/{}/state",
    "/{}/metadata",
    "/{}/schema",
    "/mcp/{}",
    "/{}/mcp",
    "/console/{}",
    "/console/api/{}",
    "/console/api/sessions/{}/end",
    "/console/api/trajectories/{}",
    "/console/api/evaluations/{}",
    "/console/assets/{}",
    "/metrics?{}",
    "/metrics?name[]={}",
    "/tools?{}",
    "/tools?x={}",
    "/openapi.json?{}={}",
    "/mcp?split={}&index=0",
    "/mcp?split=train&index={}",
    "/mcp?seed={}",
    "/console/api/trajectories?{}=1",
    *(
        f"/console/api/trajectories?{name}={{}}"
        for name in (
            "environment", "run", "split", "task", "sid", "step", "reward_min", "fault", "finished", "text",
            "since", "until", "limit", "before",
        )
    ),
    *(f"/console/api/export?{name}={{}}" for name in ("environment", "task", "text", "format", "full")),
    "/console/api/runs?limit={}",
    "/console/api/runs?success={}",
    "/console/api/runs/series?run={}",
    "/console/api/runs/series?run=a&environment={}",
    "/console/api/tasks?environment={}",
    "/console/api/tasks?split={}&success=1",
    "/console/api/evaluations?limit={}",
    "/console/api/evaluations?before={}",
)  # fmt: skip


def cases(sid: str, *, every: bool = True) -> Iterator[Request]:
    """Name, method, path, body and headers of each request; ``sid`` is a session that is there.

    Unless ``every`` value of every header goes to every place, each goes to a fifth of them, so that each
    place gets each header and each value.
    """
    number = 0

    def own(opens: bool) -> bytes:
        nonlocal number
        number += 1
        return f"evil-{number}".encode() if opens else sid.encode()

    for place, case in ENVELOPES.items():
        for name, value in VALUES.items():
            text = case.body.replace("REST", _REST).replace("EPISODE", _EPISODE).replace("%s", value)
            headers = {"Content-Type": b"application/json", "X-Session-ID": own(case.opens)}
            headers.update((key, text.encode()) for key, text in case.headers.items())
            yield Request(f"{place}: {name}", case.method, case.path, text.encode(), headers)
    for name, value in VALUES.items():
        for form in ("%s", '{"a": %s}', '{"a": {"value": %s}}', '{%s: {"value": "x"}}'):
            secret = base64.b64encode(form.replace("%s", value).encode())
            if len(secret) > 40_000:
                continue
            for path, body in (("/create", b'{"task_spec": {}}'), ("/reset", b"{}"), ("/mcp", _INITIALIZE)):
                headers = {"X-Secrets": secret, "Content-Type": b"application/json"}
                if path == "/create":
                    headers["X-Session-ID"] = own(True)
                if path == "/mcp":
                    headers["Accept"] = b"application/json, text/event-stream"
                yield Request(f"X-Secrets {form} of {path}: {name}", "POST", path, body, headers)
    for place_number, (method, path, content) in enumerate(_HEADED):
        for header_number, header in enumerate(_HEADERS):
            for value_number, raw in enumerate(_HEADER_VALUES):
                if not every and (place_number + header_number + value_number) % 5:
                    continue
                headers = {"X-Session-ID": own(path == "/create"), "Content-Type": b"application/json"}
                headers[header] = raw
                yield Request(f"{method} {path} {header}: {raw[:30]!r}", method, path, content, headers)
    for place in _PLACES:
        for part in _PARTS:
            path = place.replace("{}", part)
            for method in ("GET", "POST") if "?" not in place else ("GET",):
                content = b"{}" if method == "POST" else None
                yield Request(f"{method} {path[:200]}", method, path, content, {"X-Session-ID": sid.encode()})


def raw_bodies(sid: str, *, every: bool = True) -> Iterator[Request]:
    """Bodies that are no JSON, at every path that takes one.

    Unless ``every`` body goes there as every type, it goes as a fourth of them, so that each path gets each
    body and each type.
    """
    contents = (
        b"", b"\x00", b"{", b"\xff\xfe{\x00}\x00", "{}".encode("utf-16"), "{}".encode("utf-32"),
        b'\xef\xbb\xbf{"split": "train"}', b'{"split": "\xed\xa0\x80"}', b'{"split": "\xff"}', b"[" * 100_000,
        b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000, b"1" * 100_000, b'"' + b"\\" * 99_999, b"{}{}",
        b"nul", b"-", b"1e", b'{"a": 01}', b'{"a": 1,}', b"{'a': 1}", b"// x\n{}", b"\r\n" * 1000,
        b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n", b"a=b&c=%00",
    )  # fmt: skip
    types = (b"application/json", b"text/plain", b"application/xml",
             b"multipart/form-data; boundary=x", b"application/x-www-form-urlencoded", b"", b"json;;;=",
             b"application/json; charset=utf-16")  # fmt: skip
    paths = sorted({case.path for case in ENVELOPES.values()} | {"/console/api/sessions/x/end"})
    for place_number, path in enumerate(paths):
        for i, content in enumerate(contents):
            for kind_number, kind in enumerate(types if i < 8 else types[:2]):
                if not every and i < 8 and (place_number + i + kind_number) % 4:
                    continue
                headers = {"X-Session-ID": sid.encode(), "Content-Type": kind}
                yield Request(f"{path} {kind!r} {content[:20]!r}", "POST", path, content, headers)


_INITIALIZE = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26",'
    b' "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}'
)
