"""Nobody gets in, nothing leaks: S1 to S6 on real servers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from orsay_protocol.headers import encode_secrets

from ..support.author_log import Log
from ..support.server_process import ENVIRONMENTS, server
from ..support.session_api import Api, api_for

pytestmark = pytest.mark.process

KEYS = ["correct-horse-battery", "second-key-of-another"]
SECRET = "swordfish-0815-secret"


@pytest.mark.conformance("S1")
async def test_every_route_but_health_and_ready_needs_a_key() -> None:
    with server(api_keys=KEYS) as closed:
        async with api_for(closed.url) as api:
            paths = list((await api.get("/openapi.json", **{"X-API-Key": KEYS[0]})).json()["paths"])
            paths += [
                "/",
                "/nonsense",
                "/tools",
                "/create",
                "/call",
                "/docs",
                "/redoc",
                "/openapi.json",
                "/SCRIPTED/call/",
            ]
            for path in paths:
                path = path.replace("{env}", "scripted").replace("{environment}", "scripted")
                for method in ("GET", "POST"):
                    answer = await api.http.request(method, path)
                    if path in ("/health", "/ready"):
                        assert answer.status_code in (200, 405)
                    else:
                        assert answer.status_code == 401, (method, path)
                        assert answer.headers["www-authenticate"] == "Bearer"
            good: list[dict[str, str]] = [
                {"X-API-Key": KEYS[0]},
                {"Authorization": f"Bearer {KEYS[1]}"},
                {"authorization": f"bearer  {KEYS[1]}"},
            ]
            bad: list[dict[str, str]] = [
                {"X-API-Key": KEYS[0][:-1]},
                {"X-API-Key": KEYS[0] + "x"},
                {"X-API-Key": KEYS[0].upper()},
                {"Authorization": KEYS[0]},
                {"Authorization": f"Basic {KEYS[0]}"},
                {"Authorization": "Bearer"},
                {"X-API-Key": ""},
                {"X-API-Key": "wrong", "Authorization": f"Bearer {KEYS[0]}"},
            ]
            for headers, expected in [(each, 200) for each in good] + [(each, 401) for each in bad]:
                assert (await api.get("/scripted/tools", **headers)).status_code == expected, headers
        assert not any(key in closed.everything for key in KEYS)


@pytest.mark.conformance("S1")
async def test_a_session_belongs_to_the_key_that_made_it(log: Log) -> None:
    with server(api_keys=KEYS) as closed:
        async with api_for(closed.url) as api:
            mine = Api(api.http, "shared-id", **{"X-API-Key": KEYS[0]})
            thief = Api(api.http, "shared-id", **{"X-API-Key": KEYS[1]})
            await mine.create(log=str(log.path))
            task_id = (await mine.call("say", text="private")).task_id
            assert await thief.ping() == 404
            assert (await thief.call("say", text="x")).status == 404
            assert (await thief.attach(task_id)).status == 404
            for path in ("/prompt", "/messages", "/task_tools"):
                assert (await thief.get(path)).status_code == 404
            await thief.delete()
            assert await thief.ping() == 404
            await thief.create(log=str(log.path))  # another session, which happens to have that id too
            assert (await thief.attach(task_id)).fault == "unknown_task_id"
            await thief.delete()
            assert (await mine.call("say", text="still mine")).text == "still mine"
            await mine.delete()
            assert (await mine.ping(), await thief.ping()) == (410, 410)


# S2


@pytest.mark.conformance("S2")
@pytest.mark.parametrize(
    ("options", "starts"),
    [
        (["--host", "0.0.0.0"], False),
        (["--host", "0.0.0.0", "--allow-anonymous"], True),
        (["--host", "0.0.0.0", "--api-key", KEYS[0]], True),
        (["--host", "127.0.0.1"], True),
        (["--host", "::1"], True),
    ],
)
def test_without_keys_only_loopback_is_served_by_default(options: list[str], starts: bool) -> None:
    try:
        with server(f"{ENVIRONMENTS}:Plain", options=options) as found:
            assert starts
            if "--allow-anonymous" in options:
                found.end()
                assert found.events("open_to_anyone"), found.log
    except RuntimeError as error:
        assert not starts
        assert "exit code 2" in str(error) and "--allow-anonymous" in str(error) and "API key" in str(error)


# S3


@pytest.mark.conformance("S3")
async def test_secrets_never_reach_a_log_or_an_error(log: Log) -> None:
    with server(api_keys=KEYS, log_level="debug") as closed:
        async with api_for(closed.url, **{"X-API-Key": KEYS[0]}) as api:
            header = {"X-Secrets": encode_secrets({"token": SECRET})}
            seen: list[str] = []

            async def open_(spec: Mapping[str, str], **more: str) -> Api:
                session = api.other()
                body = {"env_name": "scripted", "task_spec": {"log": str(log.path), **spec}}
                answer = await session.post("/create", body, **{**header, **more})
                seen.append(answer.text)
                return session

            session = await open_({})
            reply = await session.call("secret")
            assert reply.fault == "tool_error" and "[secret]" in reply.error
            seen.append(reply.response.text)
            assert (await session.call("secret", how="return")).text == SECRET  # the environment may say it
            for spec in (
                {"setup": f"say:{SECRET}"},
                {"constructor": f"say:{SECRET}"},
                {"prompt": f"say:{SECRET}", "task_tools": f"say:{SECRET}", "teardown": f"say:{SECRET}"},
            ):
                session = await open_(spec)
                seen += [(await session.get(path)).text for path in ("/prompt", "/task_tools", "/messages")]
                await session.delete()
            for bad in (
                "%%%",
                base64.b64encode(SECRET.encode()).decode(),
                encode_secrets({"token": SECRET})[:-3],
            ):
                answer = await api.other().post("/create", {"task_spec": {}}, **{"X-Secrets": bad})
                assert answer.status_code == 400 and "X-Secrets" in answer.json()["detail"]
                seen.append(answer.text)
            for body in (
                {"secrets": {"token": SECRET}},
                {"secrets": SECRET, "task_spec": {}},
                {"secrets": {"token": {"value": SECRET}}, "task_spec": {}},
                {"secrets": {"token": SECRET}, "task_spec": {}, "split": "train", "index": 0},
                {"secrets": {"token": SECRET}, "task_spec": {}, "nonsense": 1},
            ):
                answer = await api.other().post("/create", body)
                assert answer.status_code == 422
                seen.append(answer.text)
            answer = await api.get("/scripted/tools", **{"X-API-Key": KEYS[0] + "x"})
            seen.append(answer.text)
            assert SECRET not in "".join(seen)
            assert not any(key in text for key in KEYS for text in seen)
        closed.end()
        assert SECRET not in closed.everything and not any(key in closed.everything for key in KEYS)
        assert len(closed.events("fault")) >= 5


@pytest.mark.conformance("S3")
async def test_secrets_of_old_clients_come_in_the_body_and_the_header_wins(api: Api) -> None:
    body = {"env_name": "scripted", "task_spec": {}, "secrets": {"token": "from the body", "none": None}}
    await api.post("/create", body)
    assert (await api.call("secret", how="return")).text == "from the body"
    other = api.other()
    await other.post("/create", body, **{"X-Secrets": encode_secrets({"token": "from the header"})})
    assert (await other.call("secret", how="return")).text == "from the header"
    plain = api.other()
    raw = base64.b64encode(json.dumps({"token": "plain string"}).encode()).decode()
    await plain.post("/create", {"env_name": "scripted", "task_spec": {}}, **{"X-Secrets": raw})
    assert (await plain.call("secret", how="return")).text == "plain string"


# S4


@pytest.mark.conformance("S4")
async def test_error_detail_is_one_policy_for_streams_and_answers(log: Log) -> None:
    for detail in ("id", "exception"):
        with server(f"{ENVIRONMENTS}:Scripted", error_detail=detail) as found:
            async with api_for(found.url) as api:
                await api.create(prompt="ValueError", task_tools="ValueError")
                failed = await api.other().post("/create", {"task_spec": {"constructor": "ValueError"}})
                broken = await api.other().create(setup="ValueError")
                texts = [  # one after the other: all raise the same object, which has one traceback at a time
                    (await broken.get("/prompt")).json()["detail"],
                    (await api.call("do", how="ValueError")).error,
                    (await api.get("/prompt")).json()["detail"],
                    (await api.get("/task_tools")).json()["detail"],
                    failed.json()["detail"],
                ]
            found.end()
            logged = {line["id"]: line for line in found.events("fault")}
            for text in texts:
                if detail == "exception":
                    assert text == "ValueError: no such door"
                else:
                    assert "door" not in text and "ValueError" not in text
                    match = re.search(r"[0-9a-f]{12}", text)
                    assert match is not None
                    line = logged[match.group()]
                    assert (
                        line["message"] == "ValueError: no such door"
                        and "environments.py" in line["traceback"]
                    )


@pytest.mark.conformance("S4")
async def test_by_default_exceptions_are_shown_on_loopback_only() -> None:
    for options, shown in (([], True), (["--host", "0.0.0.0", "--allow-anonymous"], False)):
        with server(f"{ENVIRONMENTS}:Scripted", options=options) as found:
            port = found.url.rpartition(":")[2]
            async with api_for(f"http://127.0.0.1:{port}") as api:
                await api.create()
                assert ("door" in (await api.call("do", how="ValueError")).error) is shown


# S5


@pytest.mark.conformance("S5")
@pytest.mark.parametrize(
    "name", ["__class__", "task_spec", "trap", "secrets", "note", "teardown", "__init__", "count", ""]
)
async def test_no_attribute_is_reachable_by_name(api: Api, log: Log, name: str) -> None:
    await api.create(log=str(log.path))
    reply = await api.call(name)
    assert reply.result["ok"] is False and reply.result["reason"] == "not_found"
    assert "trapped" not in log.lines and "teardown" not in log.lines
    await api.delete()


@pytest.mark.conformance("S5")
@pytest.mark.parametrize("sid", ["../../etc/passwd", "a" * 256, "x y", "%00"])
async def test_any_session_id_is_only_a_key_of_a_table(api: Api, sid: str) -> None:
    session = Api(api.http, sid)
    answer = await session.post("/ping")
    assert answer.status_code == 404
    session = await session.create()
    assert (await session.call("say", text="x")).text == "x"
    await session.delete()


# S6


@pytest.mark.conformance("S6")
async def test_with_index_only_no_task_leaves_or_enters_the_server(log: Log) -> None:
    with server(f"{ENVIRONMENTS}:Plain", f"{ENVIRONMENTS}:Scripted", options=["--index-only"]) as closed:
        async with api_for(closed.url) as api:
            listing = (await api.post("/plain/tasks", {"split": "train"})).json()["tasks"]
            one = (await api.post("/plain/task", {"split": "train", "index": 0})).json()["task"]
            part = (await api.post("/scripted/task_range", {"split": "many", "start": 998})).json()["tasks"]
            assert listing == [one] == [{"split": "train", "index": 0}]
            assert part == [{"split": "many", "index": 998}, {"split": "many", "index": 999}]
            assert "hello" not in json.dumps([listing, one, part])
            for spec in (
                {"target": "mine"},
                {},
                {"split": "train", "index": 0, "target": "x"},
                {"split": 1, "index": 0},
            ):
                refused = await api.other().post("/create", {"env_name": "plain", "task_spec": spec})
                assert refused.status_code == 400 and "split and index" in refused.json()["detail"], spec
            for body in ({"task_spec": one}, {"split": "train", "index": 0}):
                session = api.other()
                assert (await session.post("/create", {"env_name": "plain", **body})).status_code == 200
                assert (await session.get("/prompt")).json()[0]["text"] == "Say hello."
                assert (await session.call("echo", text="hello")).result["output"]["reward"] == 1.0
            outside = await api.other().post(
                "/create", {"env_name": "plain", "task_spec": {"split": "train", "index": 5}}
            )
            assert outside.status_code == 400 and "Invalid index" in outside.json()["detail"]
            boolean = await api.other().post(
                "/create", {"env_name": "plain", "task_spec": {"split": "train", "index": True}}
            )
            assert boolean.status_code in (200, 400)


@pytest.mark.conformance("S6")
async def test_the_flow_of_unmodified_clients_works_with_index_only() -> None:
    with server(f"{ENVIRONMENTS}:Plain", options=["--index-only"]) as closed:
        async with api_for(closed.url) as api:
            for task in (await api.post("/plain/tasks", {"split": "train"})).json()["tasks"]:
                session = api.other()
                answer = await session.post("/create", {"task_spec": task, "env_name": "plain"})
                assert answer.status_code == 200
                assert (await session.call("echo", text="hello")).result["output"]["finished"] is True
                await session.delete()


@pytest.mark.conformance("S3")
@pytest.mark.conformance("S3")
async def test_author_code_cannot_read_the_keys_of_its_worker_process() -> None:
    cases: list[tuple[list[str], dict[str, Any]]] = [
        (["--api-key", KEYS[0], f"--api-key={KEYS[1]}"], {}),
        ([], {"api_keys": KEYS}),
    ]
    for options, settings in cases:
        with server(f"{ENVIRONMENTS}:Scripted", options=options, **settings) as closed:
            async with api_for(closed.url, **{"X-API-Key": KEYS[0]}) as api:
                await api.create()
                seen = (await api.call("surroundings")).text
                assert "PATH" in seen and not any(key in seen for key in KEYS)
