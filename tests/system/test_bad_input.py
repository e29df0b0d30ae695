"""Bad input: the right status or exit code, a message that says what to do, and nothing else disturbed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from ..support.server_process import ENVIRONMENTS, server
from ..support.servers import orsay
from ..support.session_api import Api
from ..support.sockets import connect

pytestmark = pytest.mark.process

BAD_REQUESTS: list[tuple[str, Any, int, str]] = [
    ("/create", {"env_name": "nope", "task_spec": {}}, 404, "this server hosts: scripted"),
    ("/create", {"split": "dusk", "index": 0}, 400, "Invalid split 'dusk'"),
    ("/create", {"split": "train", "index": 99}, 400, "Invalid index 99"),
    ("/create", {"split": "train", "index": 10**40}, 400, "index"),
    ("/create", {"split": "train"}, 422, "belong together"),
    ("/create", {}, 422, "exactly one task source"),
    ("/create", {"split": "train", "index": 0, "task_spec": {}}, 422, "exactly one task source"),
    ("/create", {"task_spec": {}, "extra": 1}, 422, "extra"),
    ("/create", {"task_spec": []}, 422, "task_spec"),
    ("/create", {"task_spec": {}, "toolset_name": "nonsense"}, 400, "oolset"),
    ("/create", None, 422, "Input should be"),
    ("/create", [], 422, "Input should be"),
    ("/nope/tasks", {"split": "train"}, 404, "this server hosts: scripted"),
    ("/scripted/tasks", {"split": "dusk"}, 400, "Invalid split 'dusk'"),
    ("/scripted/tasks", {}, 422, "split"),
    ("/scripted/tasks", {"split": 5}, 422, "split"),
    ("/scripted/tasks", {"split": "train", "more": 1}, 422, "more"),
    ("/scripted/num_tasks", {"split": "dusk"}, 400, "Invalid split 'dusk'"),
    ("/scripted/task", {"split": "train", "index": 3}, 400, "Invalid index 3"),
    ("/scripted/task", {"split": "train", "index": -4}, 400, "Invalid index -4"),
    ("/scripted/task", {"split": "train", "index": 1.5}, 422, "index"),
    ("/scripted/task", {"split": "train", "index": None}, 422, "index"),
    ("/scripted/task", {"split": "train"}, 422, "index"),
    ("/scripted/task_range", {"split": "train", "start": "x"}, 422, "start"),
    ("/call", {"name": "say"}, 422, "input"),
    ("/call", {"name": "say", "input": []}, 422, "input"),
    ("/call", {"name": 1, "input": {}}, 422, "name"),
    ("/call", {"name": "say", "input": {}, "key": "x"}, 422, "key"),
    (
        "/score_group",
        {"candidates": [{"messages": [{"role": "user", "blocks": [{"type": "reasoning", "text": ""}]}]}]},
        422,
        "user message",
    ),
    ("/score_group", {}, 422, "candidates"),
]


@pytest.mark.conformance("I6")
@pytest.mark.parametrize(("path", "body", "status", "words"), BAD_REQUESTS)
async def test_a_bad_request_is_answered_with_what_is_wrong(
    api: Api, path: str, body: Any, status: int, words: str
) -> None:
    await api.create()
    session = api.other() if path == "/create" else api
    answer = await session.post(path, body)
    assert answer.status_code == status, answer.text
    assert words in answer.text and isinstance(answer.json()["detail"], str if status != 422 else list)
    if path == "/create":
        assert await session.ping() == 404
    assert (await api.call("say", text="undisturbed")).text == "undisturbed"
    await api.delete()


@pytest.mark.conformance("B1", "P-3-broken-json")
@pytest.mark.parametrize("path", ["/create", "/call", "/score_group", "/scripted/tasks", "/scripted/task"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b'"text"',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"name": "\\ud800", "input": {}}',
        b"{}" * 2,
    ],
    ids=["empty", "cut", "no utf-8", "null", "text", "deep list", "deep object", "half letter", "two"],
)
async def test_a_body_that_is_no_json_is_refused(api: Api, path: str, content: bytes) -> None:
    await api.create()
    session = api.other() if path == "/create" else api
    headers = {"X-Session-ID": session.sid, "Content-Type": "application/json"}
    answer = await api.http.post(path, content=content, headers=headers)
    assert answer.status_code in (400, 422), (answer.status_code, answer.text[:300])
    assert "detail" in answer.json()
    assert len(answer.content) < 3 * len(content) + 2000
    await api.delete()


@pytest.mark.conformance("B1", "P-2-no-session-id")
@pytest.mark.parametrize(
    "path", ["/call", "/ping", "/delete", "/create", "/prompt", "/task_tools", "/score_group"]
)
async def test_a_session_endpoint_without_a_session_id_says_so(api: Api, path: str) -> None:
    method = "GET" if path in ("/prompt", "/task_tools") else "POST"
    for headers in ({}, {"X-Session-ID": ""}, {"X-Session-ID": "x" * 300}):
        answer = await api.http.request(method, path, headers=headers, json={} if method == "POST" else None)
        assert answer.status_code == 400 and "X-Session-ID" in answer.json()["detail"]


@pytest.mark.conformance("L4")
async def test_an_unknown_session_answers_404(api: Api) -> None:
    assert (await api.call("say", text="x")).status == 404
    assert (await api.get("/prompt")).status_code == 404
    assert (await api.post("/score_group", {"candidates": []})).status_code == 404
    assert "no session of this id" in (await api.post("/ping")).json()["detail"]


@pytest.mark.conformance("B1")
async def test_unknown_paths_and_methods_are_refused(api: Api) -> None:
    assert (await api.http.get("/scripted/nonsense")).status_code == 404
    assert (await api.http.get("/a/b/c/d")).status_code == 404
    for method, path in (
        ("GET", "/call"),
        ("POST", "/prompt"),
        ("POST", "/health"),
        ("HEAD", "/health"),
        ("OPTIONS", "/health"),
    ):
        assert (await api.http.request(method, path)).status_code == 405, (method, path)


@pytest.mark.conformance("B1")
async def test_garbage_on_the_socket_disturbs_nobody(api: Api) -> None:
    await api.create()
    for garbage in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /call HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ):
        reader, writer = await connect(str(api.http.base_url).rstrip("/"))
        writer.write(garbage)
        await writer.drain()
        assert b"400" in (await reader.read(2000)).split(b"\r\n")[0]
        writer.close()
    assert (await api.call("say", text="fine")).text == "fine"
    await api.delete()


@pytest.mark.conformance("B1", "P-9-call-bad-input")
async def test_wrong_arguments_of_a_tool_are_an_answer_and_not_a_fault(api: Api) -> None:
    await api.create()
    for name, arguments, reason in (
        ("nope", {}, "not_found"),
        ("add", {"by": "x"}, "input_validation"),
        ("say", {"text": 5}, "input_validation"),
        ("say", {"text": "x", "more": 1}, "input_validation"),
    ):
        reply = await api.call(name, **arguments)
        assert reply.result["ok"] is False and reply.result["reason"] == reason
    await api.delete()


# the command line


def run(*arguments: str) -> tuple[int, str]:
    done = orsay(*arguments)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.conformance("S2", "C4")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope.env:Nope"], "no module 'nope'"),
        ([f"{ENVIRONMENTS}:Scriptd"], "did you mean 'Scripted'"),
        ([f"{ENVIRONMENTS}:Lamp"], "not an environment"),
        (["nowhere.py:X"], "no file"),
        ([f"{ENVIRONMENTS}:Scripted", f"{ENVIRONMENTS}:Scripted"], "two environments are called 'scripted'"),
        ([f"{ENVIRONMENTS}:Scripted", "--port", "99999"], "command line: port = 99999"),
        ([f"{ENVIRONMENTS}:Scripted", "--workers", "0"], "command line: workers = 0"),
        ([f"{ENVIRONMENTS}:Scripted", "--runtime", "local", "--reload"], "--reload needs worker processes"),
        ([], "at least one environment"),
    ],
)
@pytest.mark.parametrize("runtime", ["process", "local"])
def test_a_wrong_command_line_ends_with_2_and_a_sentence(
    arguments: list[str], words: str, runtime: str
) -> None:
    if "--runtime" not in arguments:
        arguments = [*arguments, "--runtime", runtime]
    code, output = run("serve", "--port", "0", *arguments)
    assert code == 2, output
    assert words in output


NO_TOOLS = """
from orsay import Environment

class Empty(Environment):
    splits = {"train": [{}]}
    def prompt(self): return ""
"""
BAD_TOOL = """
from orsay import Environment, tool

class Bad(Environment):
    splits = {"train": [{}]}
    def prompt(self): return ""
    @tool
    def untyped(self, x): return ""
"""


@pytest.mark.conformance("C4")
@pytest.mark.parametrize(
    ("text", "words"), [(NO_TOOLS, "has no tools"), (BAD_TOOL, "untyped"), ("1/0", "ZeroDivisionError")]
)
@pytest.mark.parametrize("runtime", ["process", "local"])
def test_an_environment_that_cannot_be_hosted_stops_the_start(
    tmp_path: Path, text: str, words: str, runtime: str
) -> None:
    file = tmp_path / "an_env.py"
    file.write_text(text)
    code, output = run("serve", str(file), "--port", "0", "--runtime", runtime)
    assert code == 2 and words in output, output


@pytest.mark.conformance("B2")
def test_a_port_in_use_is_reported() -> None:
    with server(f"{ENVIRONMENTS}:Plain") as first:
        port = first.url.rpartition(":")[2]
        code, output = run("serve", f"{ENVIRONMENTS}:Plain", "--port", port)
        assert code == 2 and port in output and "--port" in output
        assert first.code is None
        first.signal(signal.SIGTERM)
        assert first.wait() == 0


@pytest.mark.conformance("B2")
def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(RuntimeError) as caught, server(f"{ENVIRONMENTS}:Plain", idle_limit_s="soon"):
        pass
    assert "exit code 2" in str(caught.value) and "ORSAY_IDLE_LIMIT_S" in str(caught.value)


@pytest.mark.conformance("B2")
def test_settings_are_listed() -> None:
    code, output = run("serve", "--settings")
    assert code == 0
    assert "ORSAY_IDLE_LIMIT_S" in output and "ORSAY_WORKERS" in output
    assert json.dumps(1) in output
