"""No secret leaves a server where it should not: errors, log, journal, metrics, console, export (S3)."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from orsay_protocol.headers import encode_secrets

from ..protocol.spelled import ENCODINGS, SPELLINGS
from ..support.server_process import ServerProcess, server
from ..support.servers import orsay
from ..support.session_api import Api, api_for
from ..support.waiting import until
from .leaking import RAISES, SAYS

pytestmark = [pytest.mark.process, pytest.mark.conformance("S3")]

LEAKY = f"{Path(__file__).parent / 'leaking.py'}:Leaky"
KEY = "sk-" + "".join(f"{number:02x}" for number in range(10, 40))
PEM = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(f"MIIE{n}Aab/+" * 7 for n in range(6)) + "\n-----END-----\n"
SECRETS = {
    "short": "hunter-one",
    "long": "hunter-one234567890",
    "left": "overlap-left-mid",
    "right": "mid-overlap-right",
    "odd": 'quo"te\'d\n\\new"line/é☃🔑 end',
    "number": "48151623",
    "key": KEY,
    "pem": PEM,
}
HEADER = {"X-Secrets": encode_secrets(SECRETS)}


FORBIDDEN = {
    **{
        spell(secret).strip("="): f"{name} as {spelling}"
        for name, secret in SECRETS.items()
        for spelling, spell in (SPELLINGS | ENCODINGS).items()
    },
    **{KEY[at : at + 10]: "a part of the key" for at in range(len(KEY) - 9)},
    **{line[:20]: "a line of the pem" for line in PEM.splitlines()[1:-1]},
    **dict.fromkeys(("234567890", "-mid-overlap"), "the end of the long one"),
}


def leaks(text: str) -> list[str]:
    """The secrets that are in a text, in any spelling."""
    return [name for part, name in FORBIDDEN.items() if part in text]


class Served:
    def __init__(self, process: ServerProcess, folder: Path, runtime: str) -> None:
        self.process = process
        self.folder = folder
        self.runtime = runtime

    @property
    def url(self) -> str:
        return self.process.url

    async def opened(self, api: Api, **spec: Any) -> Api:
        answer = await self.try_open(api, **spec)
        assert answer.status_code == 200, answer.text
        return api

    async def try_open(self, api: Api, **spec: Any) -> Any:
        return await api.post("/create", {"env_name": "leaky", "task_spec": spec}, **HEADER)


@pytest.fixture(scope="module", params=["process", "local"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp(f"journal-{request.param}")
    settings: dict[str, Any] = {
        "journal": str(folder / "journal.db"),
        "runtime": request.param,
        "error_detail": "exception",
        "log_level": "debug",
        "workers": 1,
    }
    with server(LEAKY, **settings) as found:
        yield Served(found, folder, request.param)


def kept(folder: Path) -> str:
    """All that the files of the journal hold: their bytes, and what of it is compressed."""
    raw = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    texts = [raw.decode(errors="replace")]
    with closing(sqlite3.connect(folder / "journal.db")) as journal:
        tables = [name for (name,) in journal.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in journal.execute(f'SELECT * FROM "{table}"'):
                texts += [zlib.decompress(each).decode() if _packed(each) else str(each) for each in row]
    return "\n".join(texts)


def _packed(value: object) -> bool:
    return isinstance(value, bytes) and value[:1] == b"\x78"


@pytest.mark.parametrize("how", RAISES)
async def test_no_error_of_a_tool_shows_a_secret(served: Served, how: str) -> None:
    async with api_for(served.url) as api:
        await served.opened(api)
        for tool in ("leak", "leak_async"):
            if how == "validation":
                replies = [await api.call("strict", value=secret) for secret in SECRETS.values()]
            elif how == "name":
                replies = [await api.call(secret) for secret in SECRETS.values()]
            else:
                replies = [await api.call(tool, how=how)]
                assert replies[0].fault == "tool_error"
            for reply in replies:
                assert leaks(reply.response.text) == []
                shown = "[secret]" in reply.response.text
                assert shown or how in ("group", "notes", "cause", "long"), reply.response.text
        await api.delete()
    assert leaks(served.process.everything) == []


@pytest.mark.parametrize("hook", ["init", "setup", "prompt", "teardown"])
@pytest.mark.parametrize("how", ["raw", "repr", "json twice", "group", "pydantic", "pieces"])
async def test_no_error_of_a_hook_shows_a_secret(served: Served, hook: str, how: str) -> None:
    async with api_for(served.url) as api:
        answers = [await served.try_open(api, **{hook: how})]
        answers += [await api.get("/prompt"), await api.post("/ping"), await api.post("/delete")]
        received = "".join(answer.text for answer in answers[:1] + answers[1:] if answer.status_code != 200)
        received += answers[-1].text
        assert leaks(received) == []
        assert "[secret]" in received or how == "group"
    assert leaks(served.process.everything) == []


async def test_labels_and_names_that_a_client_makes_show_no_secret(served: Served) -> None:
    for name, secret in SECRETS.items():
        label = secret.encode("ascii", "replace").decode().replace("\n", " ").strip()
        run = json.dumps({"run": f"run {label}", "step": 48151623, "rollout": label, "more": label})
        headers = {**HEADER, "X-Orsay-Run": run, "User-Agent": f"agent {label}", "Idempotency-Key": label}
        async with api_for(served.url) as api:
            body = {"env_name": "leaky", "task_spec": {"secret": secret, secret: [48151623, secret]}}
            assert (await api.post("/create", body, **headers)).status_code == 200, name
            await api.get("/prompt")
            await api.call("leak", headers=headers, how="raw")
            await api.call("leak_async", headers={"Idempotency-Key": f"{label} 2"}, how=secret)
            await api.call("echo", text="x" * 5000 + secret)
            await api.delete()
    assert leaks(served.process.everything) == []


async def test_a_label_that_is_cut_shows_no_part_of_a_secret(served: Served) -> None:
    for length in range(450, 512, 7):
        async with api_for(served.url) as api:
            headers = {**HEADER, "X-Orsay-Run": "r" * length + KEY, "User-Agent": "a" * (length - 312) + KEY}
            body = {"env_name": "leaky", "task_spec": {}}
            assert (await api.post("/create", body, **headers)).status_code == 200
            await api.call("leak", how="raw")
            await api.delete()
    assert KEY[:5] not in served.process.everything
    assert KEY[:5] not in kept(served.folder)


@pytest.mark.parametrize("how", SAYS)
async def test_what_environment_code_writes_by_itself_shows_no_secret(served: Served, how: str) -> None:
    if served.runtime == "local" and how not in ("logging", "exception"):
        pytest.skip("with the local runtime, output of environment code is that of the program itself")
    async with api_for(served.url) as api:
        await served.opened(api)
        assert (await api.call("say", how=how)).text == "said"
        await api.delete()
    await until(lambda: f"said by {how}" in served.process.everything)
    assert leaks(served.process.everything) == []


async def test_a_tool_may_return_what_it_likes_but_the_journal_does_not_keep_it(served: Served) -> None:
    async with api_for(served.url) as api:
        await served.opened(api)
        output = (await api.call("echo", text="as it is")).result["output"]
        assert output["metadata"]["secrets"] == SECRETS
        assert KEY in (await api.get("/prompt")).text
        await api.delete()
    assert leaks(kept(served.folder)) == []
    assert leaks(served.process.everything) == []


async def test_neither_console_nor_metrics_nor_export_show_a_secret(served: Served, tmp_path: Path) -> None:
    async with api_for(served.url) as api:
        live = await served.opened(api.other(**{"X-Orsay-Run": f"live {KEY}"}), secret=KEY)
        await live.call("echo", text=PEM)
        await live.call("leak", how="repr")
        for path in ("/metrics", *(f"/console/api/{each}" for each in ("faults", "server", "runs", "tasks"))):
            answer = await api.http.get(path, params={"environment": "leaky"} if "runs" in path else None)
            assert answer.status_code in (200, 400, 422), answer.text
            assert leaks(answer.text) == [], path
        async with api.http.stream("GET", "/console/api/live") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data:"):
                    assert leaks(line) == []
                    break
        await live.delete()
        listed = (await api.http.get("/console/api/trajectories", params={"limit": 200})).json()
        ids = re.findall(r'"id":\s*"(\d+)"', json.dumps(listed))
        assert ids
        for id in ids:
            found = await api.http.get(f"/console/api/trajectories/{id}")
            assert found.status_code == 200 and leaks(found.text) == []
        for secret in (*SECRETS.values(), KEY[:16], "234567890"):
            found = await api.http.get("/console/api/trajectories", params={"text": secret})
            assert found.status_code == 200 and leaks(found.text) == []
            assert '"id"' not in found.text
        exported = await api.http.get("/console/api/export", params={"format": "jsonl"})
        assert exported.status_code == 200 and leaks(exported.text) == []
    assert leaks(kept(served.folder)) == []
    file = tmp_path / "episodes.jsonl"
    options = ["--journal", str(served.folder / "journal.db"), "--full", "--faults", "--living"]
    done = await asyncio.to_thread(orsay, "journal", "export", str(file), *options)
    assert done.returncode == 0, done.stderr
    assert file.stat().st_size > 1000
    assert leaks(file.read_text()) == [] and leaks(done.stdout + done.stderr) == []


async def test_the_hash_of_a_request_with_secrets_is_not_kept(served: Served) -> None:
    async with api_for(served.url) as api:
        body = {"env_name": "leaky", "task_spec": {"pin": "4815"}, "secrets": {"pin": "4815"}}
        answers = [
            await api.post("/create", each) for each in (body, body, {**body, "secrets": {"pin": "16"}})
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 409]
        await api.delete()
        plain = api.other()
        await plain.create("leaky", pin="[secret]")
        await plain.delete()

    def row(sid: str) -> Any:
        with closing(sqlite3.connect(served.folder / "journal.db")) as journal:
            return journal.execute("SELECT digest, task FROM sessions WHERE sid = ?", (sid,)).fetchone()

    await until(lambda: row(api.sid) and row(plain.sid))  # newest rows wait in a file of their own
    with_secret, without = row(api.sid), row(plain.sid)
    assert with_secret[0] == "" and without[0] != ""
    assert with_secret[1] == without[1]


async def test_secrets_that_are_no_text_are_refused_without_being_shown(served: Served) -> None:
    async with api_for(served.url) as api:
        for value in (48151623, 1.5, True, ["hunter-one"], {"deep": "hunter-one"}):
            body = {"env_name": "leaky", "task_spec": {}, "secrets": {"a": value}}
            in_body = await api.post("/create", body)
            assert in_body.status_code == 422 and leaks(in_body.text) == []
            header = base64.b64encode(json.dumps({"a": {"value": value}}).encode()).decode()
            plain = {"env_name": "leaky", "task_spec": {}}
            in_header = await api.post("/create", plain, **{"X-Secrets": header})
            assert in_header.status_code == 400 and leaks(in_header.text) == []
        half = base64.b64encode(b'{"a":{"value":"hunter-one\\ud800"}}').decode()
        answer = await api.post("/create", {"env_name": "leaky", "task_spec": {}}, **{"X-Secrets": half})
        assert answer.status_code == 400 and leaks(answer.text) == []
    assert leaks(served.process.everything) == []


async def test_a_name_that_comes_twice_in_json_hides_no_secret_from_us(served: Served) -> None:
    async with api_for(served.url) as api:
        run = (
            json.dumps({"run": "twice", "note": "x"})[:-1] + f', "note": "{SECRETS["short"]}", "note": "x"}}'
        )
        body = {"env_name": "leaky", "task_spec": {}}
        assert (await api.post("/create", body, **HEADER, **{"X-Orsay-Run": run})).status_code == 200
        twice = f'{{"name":"leak","input":{{"how":"{KEY}","how":"raw"}},"name":"leak"}}'
        await api.http.post(
            "/call", content=twice, headers={**api._headers, "Content-Type": "application/json"}
        )
        await api.delete()

    def labels() -> Any:
        with closing(sqlite3.connect(served.folder / "journal.db")) as journal:
            return journal.execute("SELECT labels FROM sessions WHERE sid = ?", (api.sid,)).fetchone()

    await until(labels)
    assert leaks(served.process.everything + kept(served.folder)) == []
