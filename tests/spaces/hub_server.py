"""A stand-in for the hub's HTTP API: what ``huggingface_hub`` asks of it for one push, and nothing more.

It keeps Spaces in memory and writes down every request. Nothing here is code of the hub: it answers what the
released client reads.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

__all__ = ["TOKEN", "Hub", "Request", "Space", "hub"]

TOKEN = "hf_a-token-that-must-not-be-shown"
Answer = tuple[int, Any]


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    body: bytes
    authorization: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Space:
    """A Space as the hub has it. ``stages`` are what it says of its state, the last one from then on."""

    private: bool = False
    files: dict[str, bytes] = field(
        default_factory=lambda: {".gitattributes": b"", "README.md": b"---\n---\n"}
    )
    secrets: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    commits: list[dict[str, Any]] = field(default_factory=list)
    hardware: str | None = None

    @property
    def sha(self) -> str:
        return f"{len(self.commits):040x}"


@dataclass
class Hub:
    """``refuse``: answers by ``METHOD path``, instead of the usual one. ``role`` is that of the token.

    After a commit, so many answers as ``late`` says are about the state before.
    """

    url: str = ""
    role: str = "write"
    stages: Sequence[str] = ("BUILDING", "APP_STARTING", "RUNNING")
    names_commits: bool = True
    late: int = 0
    error: str | None = None
    log: Sequence[str] = ()
    large: Sequence[str] = (".whl",)
    spaces: dict[str, Space] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    refuse: dict[str, Answer] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    _asked: int = 0

    def order(self) -> list[str]:
        """What the requests did, in order, without what only looks."""
        names = ("create", "secrets", "variables", "hardware", "commit")
        return [name for each in self.requests if (name := _last_word(each.path)) in names]

    def answer(self, request: Request) -> Answer | bytes:
        path = request.path
        if refusal := self.refuse.get(f"{request.method} {path}"):
            return refusal
        if path.startswith("/objects/"):
            self.objects[path.rpartition("/")[2]] = request.body
            return 200, {}
        if request.authorization != f"Bearer {TOKEN}":
            return 401, {"error": "Invalid username or password."}
        if path == "/api/whoami-v2":
            return 200, {"name": "me", "auth": {"accessToken": {"role": self.role}}}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            return self._create(request.json)
        if found := re.fullmatch(r"/spaces/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            return 200, {
                "transfer": "basic",
                "objects": [self._large(each) for each in request.json["objects"]],
            }
        if found := re.fullmatch(r"/api/spaces/([^/]+/[^/]+)(?:/(.*))?", path):
            return self._space(found.group(1), found.group(2) or "", request)
        return 404, {"error": f"the stand-in knows no {request.method} {path}"}

    def _create(self, body: Mapping[str, Any]) -> Answer:
        name = f"{body['organization']}/{body['name']}"
        assert (body["type"], body["sdk"]) == ("space", "docker")
        if body["organization"] != "me":
            error = (
                f'You don\'t have the rights to create a space under the namespace "{body["organization"]}"'
            )
            return 403, {"error": error}
        url = f"{self.url}/spaces/{name}"
        if name in self.spaces:
            return 409, {"error": "You already created this space repo", "url": url}
        self.spaces[name] = Space(private=body.get("visibility") == "private" or bool(body.get("private")))
        return 200, {"url": url, "id": name}

    def _large(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        upload = {"href": f"{self.url}/objects/{wanted['oid']}"}
        return {"oid": wanted["oid"], "size": wanted["size"], "actions": {"upload": upload}}

    def _space(self, name: str, action: str, request: Request) -> Answer | bytes:
        space = self.spaces.get(name)
        if space is None:
            return 404, {"error": "Repository not found"}
        match action:
            case "" | "revision/main":
                return 200, self._report(name, space)
            case "secrets" | "variables":
                kept = space.secrets if action == "secrets" else space.variables
                kept[request.json["key"]] = request.json["value"]
                return 200, {}
            case "hardware":
                space.hardware = request.json["flavor"]
                return 200, self._runtime(space)
            case "preupload/main":
                return 200, {
                    "files": [self._mode(space, each, request.json) for each in request.json["files"]]
                }
            case "commit/main":
                return self._commit(name, space, request.body)
            case "runtime":
                self._asked += 1
                return 200, self._runtime(space)
            case "logs/build" | "logs/run":
                return b"".join(b"data: %s\n\n" % json.dumps({"data": line}).encode() for line in self.log)
        return 404, {"error": f"the stand-in knows no {action}"}

    def _report(self, name: str, space: Space) -> dict[str, Any]:
        label = name.lower().replace("/", "-").replace("_", "-").replace(".", "-")
        return {
            "_id": "1",
            "id": name,
            "author": "me",
            "sha": space.sha,
            "private": space.private,
            "sdk": "docker",
            "subdomain": label,
            "host": f"https://{label}.hf.space",
            "siblings": [{"rfilename": path} for path in space.files],
            "tags": [],
            "runtime": self._runtime(space),
        }

    def _runtime(self, space: Space) -> dict[str, Any]:
        stage = self.stages[min(self._asked, len(self.stages)) - 1] if self._asked else "NO_APP_FILE"
        hardware = {"current": space.hardware, "requested": space.hardware}
        reported = {"stage": stage, "hardware": hardware, "storage": None, "gcTimeout": 172800}
        if self.error:
            reported["errorMessage"] = self.error
        if self.names_commits:
            reported["sha"] = "0" * 40 if self._asked <= self.late else space.sha
        return reported

    def _mode(self, space: Space, file: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        """As the hub does it: names of some kinds are kept apart, and a .gitignore leaves files out."""
        large = file["path"].endswith(tuple(self.large)) and file["size"] > 0
        rules = body.get("gitIgnore") or space.files.get(".gitignore", b"").decode()
        patterns = [line[1:] for line in rules.splitlines() if line.startswith("*")]
        reported = {
            "path": file["path"],
            "uploadMode": "lfs" if large else "regular",
            "shouldIgnore": any(file["path"].endswith(pattern) for pattern in patterns),
        }
        if (content := space.files.get(file["path"])) is not None:
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            reported["oid"] = hashlib.sha256(content).hexdigest() if large else blob
        return reported

    def _commit(self, name: str, space: Space, body: bytes) -> Answer:
        header: dict[str, Any] = {}
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            match entry["key"]:
                case "header":
                    header = value
                case "file":
                    space.files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    content = self.objects[value["oid"]]
                    assert hashlib.sha256(content).hexdigest() == value["oid"]
                    space.files[value["path"]] = content
                case "deletedFile":
                    del space.files[value["path"]]
                case other:
                    raise AssertionError(f"the stand-in knows no {other} in a commit")
        space.commits.append(header)
        self._asked = 0
        return 200, {"commitOid": space.sha, "commitUrl": f"{self.url}/spaces/{name}/commit/{space.sha}"}


def _last_word(path: str) -> str:
    return path.removesuffix("/main").rpartition("/")[2]


@contextmanager
def hub(**state: Any) -> Iterator[Hub]:
    """A hub on a port of its own."""
    kept = Hub(**state)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self._body()
            path = urlsplit(self.path).path
            request = Request(self.command, path, body, self.headers.get("Authorization", ""))
            with lock:
                kept.requests.append(request)
                answered = kept.answer(request)
            if isinstance(answered, bytes):
                self._send(200, answered, "text/event-stream")
            else:
                self._send(answered[0], json.dumps(answered[1]).encode(), "application/json")

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", "0")))
            parts = []
            while size := int(self.rfile.readline().strip(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _send(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if status >= 400 and kind == "application/json":
                self.send_header("X-Error-Message", json.loads(content).get("error", ""))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_HEAD = _serve

        def log_message(self, format: str, *arguments: Any) -> None:
            """Tests read ``requests``."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
