"""What servers, endpoints and hubs say of the keys and secrets that they were sent is shown to nobody."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from functools import partial

import httpx
import pytest
from orsay.errors import SpaceError
from orsay.runtimes.docker.output import Output
from orsay.runtimes.remote.runtime import RemoteRuntime
from orsay.spaces.hub import Hub
from orsay_client import AsyncClient, OrsayClientError
from orsay_eval import ChatModel
from orsay_eval.moves import Opening
from orsay_protocol.blocks import Message, TextBlock
from orsay_protocol.redact import Redactor
from pydantic import SecretStr

from ..observe.collector import collecting
from ..support.chat_endpoint import Answer, error, serve_endpoint
from ..support.gateways import QUICK, gateway_of, reached, wild
from ..support.scripted_server import Reply, Request, ScriptedServer, ors
from ..support.server_process import ServerProcess
from ..support.session_api import api_for
from .test_attack_secrets import HEADER, KEY, LEAKY, SECRETS, leaks

pytestmark = [pytest.mark.process, pytest.mark.conformance("S3")]

TASK = "c" * 32
SHORT = KEY[:5]
WORDS = [
    " ".join(SECRETS.values()),
    repr(SECRETS),
    json.dumps(json.dumps(SECRETS)),
    "x" * 1990 + KEY,
    "x" * 19_990 + KEY,
    "x" * 3990 + KEY,
    f"{KEY[:12]}...{KEY[-12:]}",
]


def clean(text: str) -> bool:
    return leaks(text) == [] and SHORT not in text


@pytest.mark.parametrize("words", WORDS, ids=["raw", "repr", "json", "2000", "20000", "4000", "cut"])
async def test_a_gateway_passes_no_secret_on(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    async def call(request: Request, reply: Reply) -> None:
        match request.json()["name"]:
            case "refuse":
                await reply.json({"detail": words}, 418)
            case "text":
                await reply.raw(words.encode(), 500, {"Content-Type": "text/plain"})
            case "gone":
                await reply.json({"detail": words}, 410)
            case "fault":
                await reply.stream()
                await reply.event("task_id", TASK)
                fault = {"class": "tool_error", "message": words, "id": "a1", "retryable": False}
                await reply.event("fault", json.dumps(fault))
                await reply.event("error", words)
                await reply.end()
            case "error":
                await reply.stream()
                await reply.event("task_id", TASK)
                await reply.event("error", words)
                await reply.end()

    async def refuse(request: Request, reply: Reply) -> None:
        await reply.json({"detail": words}, 400)

    logged = ""
    async with (
        ScriptedServer(wild(call, prompt=refuse)) as behind,
        reached(behind.url, options=QUICK) as (_, api),
    ):
        body = {"env_name": "wild", "task_spec": {}}
        assert (await api.post("/create", body, **HEADER)).status_code == 200
        logged += (await api.get("/prompt")).text
        for name in ("refuse", "text", "fault", "error", "gone"):
            logged += (await api.call(name)).response.text
        logged += (await api.post("/ping")).text
        assert clean(logged), logged[:3000]
        assert "[secret]" in logged
    async with (
        ScriptedServer(wild(call, create=refuse)) as behind,
        reached(behind.url, options=QUICK) as (_, api),
    ):
        answer = await api.post("/create", {"env_name": "wild", "task_spec": {}}, **HEADER)
        assert answer.status_code == 400 and clean(answer.text)
    assert clean("".join(capfd.readouterr()))


async def test_a_gateway_shows_no_key_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    refusing = False

    async def blab(request: Request, reply: Reply) -> None:
        words = f"the key {request.headers['x-api-key']!r} is wrong"
        await reply.json({"detail": words + "x" * 30_000}, 401)

    async def lists(request: Request, reply: Reply) -> None:
        if refusing:
            await blab(request, reply)
        else:
            await reply.json(["wild"])

    handler = wild(blab, create=blab, tasks=blab)

    async def handle(request: Request, reply: Reply) -> None:
        await (lists if request.path == "/list_environments" else handler)(request, reply)

    options = replace(QUICK, api_key=SecretStr(KEY))
    async with ScriptedServer(handle) as behind:
        runtime = RemoteRuntime(behind.url, options)
        async with gateway_of(runtime) as running, api_for(running.url) as api:
            answers = [await api.post("/create", {"env_name": "wild", "task_spec": {}})]
            answers.append(await api.post("/wild/tasks", {"split": "train"}))
            assert all(answer.status_code >= 400 and clean(answer.text) for answer in answers)
        refusing = True
        with pytest.raises(Exception, match="refused the API key") as caught:
            async with gateway_of(RemoteRuntime(behind.url, options)):
                pass
        assert clean(str(caught.value))
    assert clean("".join(capfd.readouterr()))


@pytest.mark.parametrize("words", WORDS, ids=["raw", "repr", "json", "2000", "20000", "4000", "cut"])
async def test_our_client_raises_no_error_with_a_secret(words: str) -> None:
    async def refuse(request: Request, reply: Reply) -> None:
        await reply.json({"detail": words}, 400)

    async def plain(request: Request, reply: Reply) -> None:
        await reply.raw(words.encode(), 400, {"Content-Type": "text/plain"})

    async def sid(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event("error", words)
        await reply.end()

    async def call(request: Request, reply: Reply) -> None:
        if request.json()["name"] == "refuse":
            await reply.result({"ok": False, "error": words, "reason": "not_found"})
            return
        await reply.stream()
        await reply.event("task_id", TASK)
        await reply.event("error", words)
        await reply.end()

    async with (
        ScriptedServer(ors(call=call, others={"/prompt": refuse, "/messages": plain})) as server,
        AsyncClient(server.url, api_key=KEY) as client,
        client.environment().session(task_spec={}, secrets=SECRETS) as session,
    ):
        for work in (
            session.prompt,
            session.messages,
            lambda: session.call("do"),
            lambda: session.call("refuse"),
        ):
            with pytest.raises(OrsayClientError) as caught:
                await work()
            assert clean(str(caught.value) + repr(vars(caught.value))), str(caught.value)[:500]
    for path, handler in (("/create", refuse), ("/create_session", sid)):
        async with (
            ScriptedServer(ors(others={path: handler})) as server,
            AsyncClient(server.url, api_key=KEY) as client,
        ):
            with pytest.raises(OrsayClientError) as caught:
                await client.environment().session(task_spec={}, secrets=SECRETS).open()
            assert clean(str(caught.value))


def _same(answer: Answer, body: object) -> Answer:
    return answer


async def test_the_endpoint_of_a_model_shows_no_key() -> None:
    with serve_endpoint() as endpoint:
        opening = Opening(
            split="train",
            index=0,
            attempt=0,
            messages=[Message(role="user", blocks=[TextBlock(text="go")])],
            tools=[],
            terminal=None,
            spec=None,
        )
        for status in (400, 401, 403, 404, 418, 500):
            refusal = error(status, f"key {KEY!r}, {KEY[:14]}...{KEY[-4:]}")
            endpoint.script = partial(_same, refusal)
            model = ChatModel("m", base_url=endpoint.base_url, api_key=KEY, tries=1)
            try:
                with pytest.raises(Exception, match=r"\*\*\*") as caught:
                    await model.player(opening).move((), "")
            finally:
                await model.aclose()
            assert clean(str(caught.value)) and KEY[-4:] not in str(caught.value)


def test_a_hub_shows_neither_tokens_nor_keys_of_a_list() -> None:
    keys = '["first-key-of-a-space", "second-key-of-a-space"]'
    hub = Hub("hf_" + KEY, (keys, SECRETS["odd"], SECRETS["short"], SECRETS["long"]))
    for words in (f"hf_{KEY}", "no second-key-of-a-space", repr(SECRETS["odd"]), json.dumps(SECRETS["long"])):
        with pytest.raises(SpaceError) as caught, hub._translated("look at", "me/space"):
            raise httpx.ConnectError(f"broken by {words}")
        assert clean(str(caught.value)) and "key-of-a-space" not in str(caught.value)
        assert "[hidden]" in str(caught.value)


class Lines:
    """What the log gets of a container."""

    def __init__(self, *secrets: str) -> None:
        self.logged: list[str] = []
        hides = [Redactor([secret]) for secret in secrets]
        self.output = Output(lambda stream, line: self.logged.append(line), hide=lambda: hides)

    def feed(self, data: bytes, size: int) -> None:
        for at in range(0, len(data), size):
            part = data[at : at + size]
            self.output.feed(struct.pack(">BxxxL", 1, len(part)) + part)
        self.output.end()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_of_a_container_show_no_secret_however_they_come(size: int) -> None:
    lines = Lines(*SECRETS.values())
    lines.feed("".join(f"{spelled}\n" for spelled in map(str, WORDS)).encode(), size)
    assert len(lines.logged) > len(WORDS) and clean("\n".join(lines.logged))
    assert clean("\n".join(lines.output.last_lines))


@pytest.mark.parametrize("secret", [KEY, "pässwörd-☃-🔑"])
def test_a_line_without_end_is_not_cut_in_a_secret(secret: str) -> None:
    for length in range(0, len(secret.encode()) * 2, 13):
        lines = Lines(secret)
        lines.feed(b"x" * length + secret.encode() * 3000, 8191)
        logged = "".join(lines.logged)
        assert secret not in logged and secret[:8] not in logged and secret[-8:] not in logged


async def test_no_span_carries_a_secret() -> None:
    with collecting() as collector:
        variables = {"ORSAY_WORKERS": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        process = ServerProcess(["--port", "0", LEAKY], variables)
        try:
            process.wait_for_url()
            async with api_for(process.url) as api:
                api = api.other(**{"X-Orsay-Run": f"run {KEY}"})
                body = {"env_name": "leaky", "task_spec": {}}
                assert (await api.post("/create", body, **HEADER)).status_code == 200
                await api.call("leak", how="raw")
                await api.call(KEY)
                await api.call("x" * 95 + KEY)
                await api.delete()
        finally:
            process.end()
        assert collector.spans
        sent = collector.raw.decode(errors="replace") + "".join(map(str, collector.spans))
        assert clean(sent) and "[secret]" in sent
