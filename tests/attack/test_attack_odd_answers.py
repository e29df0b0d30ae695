"""A server and its journal survive what models write, and show it again as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from orsay.journal.export import to_dataset
from orsay.sessions.labels import Labels, parse_labels
from orsay.settings import read_keys
from orsay_protocol.headers import SECRETS, encode_secrets

from ..support.odd_inputs import ARGUMENTS, arguments
from ..support.server_process import ServerProcess, server

pytestmark = pytest.mark.process

ENVIRONMENTS = f"{Path(__file__).parents[1] / 'support' / 'protocol_environments.py'}:Scripted"
JSON = {"Content-Type": "application/json"}
LEVELS = "[" * 190 + "]" * 190
EXTRA = {
    "NaN": '"a": NaN, "b": [Infinity, -Infinity, 1e400]',
    "levels": f'"a": {LEVELS}',
    "digits": '"a": ' + "9" * 4_300,
    "separators": '"a": "\u2028\u2029\u0085\\u0000"',
}
"""Of an input that is read, though no tool takes it; what is kept of it is shown again."""


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "journal.db"


@pytest.fixture(scope="module")
def served(journal: Path) -> Iterator[ServerProcess]:
    with server(ENVIRONMENTS, also="openenv,mcp", journal=str(journal), idle_limit_s=900, workers=2) as found:
        yield found
        assert found.code is None
        assert not found.events("request_failed"), found.events("request_failed")
        assert not found.events("journal_trouble")


@pytest.fixture
def http(served: ServerProcess, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A client with a session of its own."""
    with httpx.Client(base_url=served.url, headers={"X-Session-ID": request.node.name}, timeout=60) as client:
        made = client.post("/create", json={"split": "train", "index": 0})
        assert made.status_code == 200
        client.get("/scripted/prompt").raise_for_status()
        yield client
        client.post("/delete").raise_for_status()


def strict(text: str | bytes) -> Any:
    """JSON as everybody reads it: Python's own takes NaN as well."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def spelled(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def test_no_body_of_a_call_is_an_error_of_the_server(http: httpx.Client) -> None:
    for what, given_ in ARGUMENTS.items():
        call = b'{"name": "say", "input": ' + spelled(given_) + b"}"
        turn = b'{"role": "assistant", "blocks": [{"type": "tool_call", "id": "1", "name": "say", "input": '
        group = b'{"candidates": [{"messages": [' + turn + spelled(given_) + b"}]}]}]}"
        for path, body in (("/scripted/call", call), ("/scripted/score_group", group), ("/create", call)):
            answer = http.post(path, content=body, headers=JSON)
            assert answer.status_code < 500, (what, path, answer.text)
            if answer.status_code != 200:
                strict(answer.content)
    assert '"ok":true' in http.post("/scripted/call", json={"name": "say", "input": {"text": "x"}}).text


def test_other_protocols_refuse_such_arguments_too(http: httpx.Client) -> None:
    for what, given_ in ARGUMENTS.items():
        action = (
            b'{"action": {"type": "call_tool", "tool_name": "say", "arguments": ' + spelled(given_) + b"}}"
        )
        params = b'{"name": "say", "arguments": ' + spelled(given_) + b"}"
        rpc = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ' + params + b"}"
        for path, body in (("/scripted/step", action), ("/scripted/mcp", rpc), ("/mcp", rpc)):
            answer = http.post(
                path, content=body, headers={**JSON, "Accept": "application/json, text/event-stream"}
            )
            assert answer.status_code < 500, (what, path, answer.text)


def test_whatever_a_body_is_it_is_answered(http: httpx.Client) -> None:
    @settings(
        max_examples=80,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(odd=arguments())
    def send(odd: Any) -> None:
        given_ = odd if isinstance(odd, str) else json.dumps(odd)
        answer = http.post(
            "/scripted/call", content=b'{"name": "say", "input": ' + spelled(given_) + b"}", headers=JSON
        )
        assert answer.status_code < 500, answer.text

    send()


@pytest.mark.parametrize(
    "labels",
    [
        '{"run":' + "[" * 5_000,
        '{"run":' + "[" * 960 + "]" * 960 + "}",
        '{"run":"\\ud800","rollout":"\\udfff","other":NaN}',
        '{"step":' + "9" * 5_000 + "}",
        '{"step":1e400,"run":Infinity}',
        '{"run":"\\u2028\\u0000"}',
    ],
    ids=lambda text: text[:30],
)
def test_labels_of_any_text_are_shown_in_the_console(served: ServerProcess, labels: str) -> None:
    with httpx.Client(base_url=served.url, headers={"X-Session-ID": f"labels-{hash(labels)}"}) as client:
        made = client.post("/create", json={"split": "train", "index": 0}, headers={"X-Orsay-Run": labels})
        assert made.status_code == 200, made.text
        for path in ("trajectories", "runs"):
            strict(client.get(f"/console/api/{path}").raise_for_status().content)
        client.post("/delete").raise_for_status()


def test_labels_are_read_or_are_the_name_of_the_run() -> None:
    assert parse_labels('{"run":"a\\ud800","step":3,"rollout":"\\udfff","x":1}') == Labels(
        "a\ufffd", 3, "\ufffd", '{"x": 1}'
    )
    assert parse_labels('{"run":' + "[" * 100_000).run == ('{"run":' + "[" * 100_000)[:200]


@pytest.mark.parametrize("secrets", [{"na\ud800me": "value"}, {"name": "val\udfffue"}])
def test_a_secret_that_no_environment_could_be_given_is_refused(
    served: ServerProcess, secrets: dict[str, str]
) -> None:
    headers = {"X-Session-ID": "secrets", SECRETS: encode_secrets(secrets)}
    made = httpx.post(f"{served.url}/create", json={"split": "train", "index": 0}, headers=headers)
    assert made.status_code == 400 and "surrogate" in made.text
    assert "val" not in made.text


def test_what_was_recorded_is_json_wherever_it_is_shown_again(
    served: ServerProcess, journal: Path, tmp_path: Path
) -> None:
    sid = "recorded"
    with httpx.Client(base_url=served.url, headers={"X-Session-ID": sid}) as client:
        made = client.post(
            "/create",
            content='{"task_spec": {"name": "one", ' + ", ".join(EXTRA.values()).replace('"a"', '"n"') + "}}",
            headers={**JSON, "X-Orsay-Run": '{"run":"odd","more":NaN}'},
        )
        assert made.status_code == 200, made.text
        client.get("/scripted/prompt").raise_for_status()
        for extra in EXTRA.values():
            body = '{"name": "say", "input": {"text": "x", ' + extra + "}}"
            response = client.post("/scripted/call", content=spelled(body), headers=JSON)
            assert "input_validation" in response.text
        client.post("/delete").raise_for_status()
        found = strict(client.get("/console/api/trajectories", params={"run": "odd"}).content)["items"]
        shown = strict(client.get(f"/console/api/trajectories/{found[0]['id']}").raise_for_status().content)
        assert len(shown["steps"]) == len(EXTRA)
        assert shown["steps"][0]["input"] == {"text": "x", "a": None, "b": [None, None, None]}
    for number, options in enumerate((["--full"], [], ["--arguments", "string"])):
        out = tmp_path / f"{number}.jsonl"
        command = [sys.executable, "-m", "orsay", "journal", "export", str(out), "--run", "odd"]
        subprocess.run([*command, "--journal", str(journal), *options], check=True, capture_output=True)
        [line, rest] = out.read_bytes().split(b"\n")
        assert strict(line) and not rest
        if "string" in options:
            made_calls = [call for turn in strict(line)["messages"] for call in turn.get("tool_calls", ())]
            assert [strict(call["function"]["arguments"])["text"] for call in made_calls] == ["x"] * len(
                EXTRA
            )
    assert len(to_dataset(str(journal), run="odd")) == 1


# Files whose lines end with a line feed, and with nothing else


def test_a_key_holds_what_other_systems_take_for_the_end_of_a_line(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes("a\u2028b\u0085c\x0bd\r\n# no key\x0cnone either\n\nsecond\n".encode())
    assert [key.get_secret_value() for key in read_keys(keys)] == ["a\u2028b\u0085c\x0bd", "second"]
