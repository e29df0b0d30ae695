"""Discovery without a session: health, environments, tools, splits, the default environment."""

from __future__ import annotations

import uuid

import httpx
from orsay_protocol.sse import Decoder

from orsay.conformance.check import standard
from orsay.conformance.failures import NotSupported, expect
from orsay.conformance.strict import json_of
from orsay.conformance.target import Target

_SPLIT_TYPES = ("train", "validation", "test")


@standard("health", "3.1", "GET /health answers 200 with status ok.")
async def health(target: Target) -> None:
    answer = await target.get("/health")
    expect(answer.status_code == 200, f"answered {answer.status_code}")
    expect(json_of(answer) == {"status": "ok"}, f"answered {answer.text[:200]}")


@standard("health-methods", "3.1", "HEAD, OPTIONS and POST on /health answer 405.")
async def health_methods(target: Target) -> None:
    for method in ("HEAD", "OPTIONS", "POST"):
        answer = await target.http.request(method, "/health")
        expect(answer.status_code == 405, f"{method} answered {answer.status_code}")


@standard("version", "3.1", "GET /version answers with the version of the server.")
async def version(target: Target) -> None:
    answer = await target.get("/version")
    if answer.status_code in (307, 308, 404):
        raise NotSupported("servers before openreward 0.1.68 and ors-sdk have no /version")
    expect(answer.status_code == 200, f"answered {answer.status_code}")
    expect(isinstance(json_of(answer).get("version"), str), f"answered {answer.text[:200]}")


@standard("list-environments", "3.1", "GET /list_environments answers with the names in lower case.")
async def list_environments(target: Target) -> None:
    names = json_of(await target.get("/list_environments"))
    expect(isinstance(names, list) and names, f"answered {names!r}")
    for name in names:
        expect(isinstance(name, str) and name == name.lower(), f"{name!r} is no name in lower case")
    expect(len(set(names)) == len(names), f"a name occurs twice: {names}")


@standard(
    "tools", "3.1", "GET /{env}/tools lists tools, each with exactly name, description and input_schema."
)
async def tools(target: Target) -> None:
    answer = await target.get(target.path("/tools"))
    expect(answer.status_code == 200, f"answered {answer.status_code}")
    for spec in json_of(answer)["tools"]:
        keys = set(spec)
        expect(keys == {"name", "description", "input_schema"}, f"a tool has the keys {sorted(keys)}")
        expect(isinstance(spec["name"], str) and spec["name"], f"a tool is called {spec['name']!r}")
        expect(
            isinstance(spec["description"], str),
            f"{spec['name']} has the description {spec['description']!r}",
        )


@standard("input-schema", "8", "The input_schema of a tool is null or the JSON schema of an object.")
async def input_schema(target: Target) -> None:
    for spec in target.tool_specs():
        schema = spec["input_schema"]
        if schema is None:
            continue
        expect(schema.get("type") == "object", f"{spec['name']}: the schema has type {schema.get('type')!r}")
        missing = set(schema.get("required", [])) - set(schema.get("properties", {}))
        expect(not missing, f"{spec['name']} requires {sorted(missing)}, which it does not describe")


@standard(
    "splits", "3.1", "GET /{env}/splits lists splits with a name and a type of train, validation or test."
)
async def splits(target: Target) -> None:
    answer = await target.get(target.path("/splits"))
    listed = json_of(answer)
    expect(isinstance(listed, list) and listed, f"answered {answer.text[:200]}")
    for split in listed:
        expect(set(split) >= {"name", "type"}, f"a split has the keys {sorted(split)}")
        expect(split["type"] in _SPLIT_TYPES, f"{split['name']} has the type {split['type']!r}")


@standard("split-types", "7", "A split called train, validation or test has that type.")
async def split_types(target: Target) -> None:
    for split in target.splits:
        if split["name"] in _SPLIT_TYPES:
            expect(split["type"] == split["name"], f"{split['name']} has the type {split['type']!r}")


@standard("letter-case", "7", "An environment is found in any letter case.")
async def letter_case(target: Target) -> None:
    plain = json_of(await target.get(target.path("/splits")))
    for name in (target.env.upper(), target.env.title()):
        answer = await target.get(f"/{name}/splits")
        expect(answer.status_code == 200, f"/{name}/splits answered {answer.status_code}")
        expect(json_of(answer) == plain, f"/{name}/splits answered {answer.text[:200]}")


@standard("env-name-echo", "3.1", "env_name repeats the environment as the path spells it.")
async def env_name_echo(target: Target) -> None:
    target.need_tasks()
    name = target.env.upper()
    answer = await target.post(f"/{name}/task", {"split": target.split, "index": 0})
    if "env_name" not in json_of(answer):
        raise NotSupported("servers before openreward 0.1.100 and ors-sdk leave env_name out")
    found = json_of(answer)["env_name"]
    expect(found == name, f"/{name}/task has env_name {found!r}")


@standard(
    "default-environment", "3.3", "A path without an environment reaches the first one, POST bodies included."
)
async def default_environment(target: Target) -> None:
    first = target.environments[0]
    bare = await target.get("/splits", follow_redirects=True)
    named = await target.get(f"/{first}/splits")
    expect(bare.status_code == 200, f"GET /splits answered {bare.status_code}: {bare.text[:200]}")
    expect(json_of(bare) == json_of(named), f"GET /splits answered {bare.text[:200]}")
    split = json_of(named)[0]["name"]
    bare = await target.post("/num_tasks", {"split": split}, follow_redirects=True)
    expect(bare.status_code == 200, f"POST /num_tasks answered {bare.status_code}: {bare.text[:200]}")


@standard("redirect", "3.3", "Where a bare path is redirected, the answer is 307 or 308 and keeps the query.")
async def redirect(target: Target) -> None:
    answer = await target.get("/splits?a=1&b=%20x")
    if answer.status_code == 200:
        return
    expect(answer.status_code in (307, 308), f"answered {answer.status_code}")
    location = httpx.URL(answer.headers["location"])
    expect(location.path == f"/{target.environments[0]}/splits", f"the location is {location}")
    expect(location.query == b"a=1&b=%20x", f"the location is {location}")


@standard("trailing-slash", "3.3", "A trailing slash leads to the same answer.")
async def trailing_slash(target: Target) -> None:
    answer = await target.get(target.path("/splits/"), follow_redirects=True)
    expect(answer.status_code == 200, f"answered {answer.status_code}")
    expect(json_of(answer) == target.splits, f"answered {answer.text[:200]}")


@standard("openapi", "3.1", "GET /openapi.json describes the server.")
async def openapi(target: Target) -> None:
    answer = await target.get("/openapi.json")
    expect(answer.status_code == 200, f"answered {answer.status_code}")
    paths = json_of(answer)["paths"]
    for path in ("/health", "/create_session", "/create", "/ping", "/delete"):
        expect(path in paths, f"it does not describe {path}")


@standard(
    "json-answers", "3.1", "JSON answers have the content type application/json and raw, compact UTF-8."
)
async def json_answers(target: Target) -> None:
    answer = await target.get(target.path("/splits"))
    kind = answer.headers.get("content-type", "")
    expect(kind.startswith("application/json"), f"the content type is {kind!r}")
    expect(b'": ' not in answer.content, f"the body is not compact: {answer.text[:100]}")


@standard("create-session", "5.4", "POST /create_session streams task_id with the session id, then end.")
async def create_session(target: Target) -> None:
    accept = {"Accept": "text/event-stream"}
    seen = set()
    for body in (None, {}, {"env": {"A": "1"}}, {"anything": [1, 2]}):
        answer = await target.post("/create_session", body, headers=accept)
        expect(answer.status_code == 200, f"body {body!r} answered {answer.status_code}: {answer.text[:200]}")
        if answer.headers.get("content-type", "").startswith("application/json"):
            raise NotSupported("servers up to openreward 0.1.62 answer with JSON")
        events = Decoder().feed(answer.content)
        expect(
            [event.event for event in events] == ["task_id", "end"], f"the stream is {answer.text[:200]!r}"
        )
        seen.add(str(uuid.UUID(events[0].data)))
    expect(len(seen) == 4, "a session id was given out twice")
