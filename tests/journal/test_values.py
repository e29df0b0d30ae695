"""Secrets never get into the journal, however they are spelled there; the rest is kept as it was (S3)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from orsay.journal.values import input_of, pack, result_of, unpack
from orsay_protocol.redact import Redactor
from orsay_protocol.sse import encode_event, encode_result

from .rows import called, ended, opened, prompted, put, query, started, writing

SECRETS = ["hunter2hunter2", 'quo"ted\\sec/ret', "pässwörd☃🔑", "line\nbreak\ttab"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("size", [0, 10_000])
async def test_a_secret_is_in_no_table_in_any_spelling(
    tmp_path: Path, secret: str, ascii_only: bool, size: int
) -> None:
    path = tmp_path / "journal.db"
    hide = Redactor((secret,))

    def spelled(value: object) -> bytes:
        return json.dumps(value, ensure_ascii=ascii_only).encode()

    text = f"before {secret} after" + " ." * size
    nested = spelled({"deep": spelled({"k": secret}).decode(), secret: [1, secret]}).decode()
    result = spelled({"ok": True, "output": {"blocks": [{"type": "text", "text": text}], "metadata": nested}})
    rows = [
        opened(
            1, hide=hide, client=f"agent {secret}", request=spelled({"task_spec": {"x": text}}), run=secret
        ),
        prompted(1, hide=hide, data=spelled([{"type": "text", "text": text}])),
        started(1, hide=hide, body=spelled({"name": secret, "input": {"a": text}}), name=secret),
        called(
            1, result=result, body=spelled({"name": "n", "input": {"a": nested}}), hide=hide, message=text
        ),
        called(1, wire=b"", fault="tool_error", message=f"KeyError({secret!r})", hide=hide),
        ended(1, end_reason=f"it said {secret}", hide=hide),
    ]
    async with writing(path) as writer:
        assert all(await put(writer, *rows))
    kept = [str(value) for table in _TEXTS for row in query(path, table) for value in row]
    kept += [unpack(data) for (data,) in query(path, "SELECT data FROM large_values")]
    assert kept
    for each in kept:
        for spelling in (secret, *_spellings(secret)):
            assert spelling not in each
    assert any("[secret]" in each and "before" in each and "after" in each for each in kept)
    raw = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert secret.encode() not in raw


_TEXTS = [
    "SELECT client, run, end_reason, labels FROM sessions",
    "SELECT name, input, result, message FROM calls",
    "SELECT text FROM prompts",
]


def _spellings(secret: str) -> set[str]:
    once = {json.dumps(secret, ensure_ascii=each)[1:-1] for each in (True, False)}
    twice = {json.dumps(spelled, ensure_ascii=each)[1:-1] for spelled in once for each in (True, False)}
    return once | twice | {each.upper() for each in once if "\\u" in each}


def test_a_secret_in_escapes_of_its_own_is_found() -> None:
    odd = r'{"a":"\u0068unter2\u0068unter2","b":"sl\/ash"}'
    assert json.loads(Redactor(("hunter2hunter2", "sl/ash")).json(odd)) == {"a": "[secret]", "b": "[secret]"}


def test_redacted_json_stays_json() -> None:
    redactor = Redactor(("true", "12345", "null}"))
    found = json.loads(redactor.json('{"ok":true,"n":12345,"m":123456,"t":"x 12345 true","true":1.5}'))
    assert found == {"ok": True, "n": "[secret]", "m": 123456, "t": "x [secret] [secret]", "[secret]": 1.5}


def test_what_holds_no_secret_stays_as_it_was_spelled() -> None:
    text = '{"a": "\\u00e9 \\/", "b": 1.50}'
    assert Redactor(("hunter2",)).json(text) == text


def test_the_longer_of_two_secrets_is_hidden_whole() -> None:
    assert Redactor(("hunter2", "hunter2-and-more")).plain("a hunter2-and-more b") == "a [secret] b"


def test_values_too_short_to_be_secrets_hide_nothing() -> None:
    assert Redactor(("a", "", "yes")).json('{"a":"yes"}') == '{"a":"yes"}'


def test_text_that_is_no_json_is_redacted_too() -> None:
    assert Redactor(("hunter2",)).json("no json: hunter2 \\") == "no json: [secret] \\"


@pytest.mark.parametrize(
    "result", [b'{"a":1}', b'"\xe2\x98\x83"', b'{"a":"' + b"x" * 100_000 + b'"}', b'"' + b" " * 70_000 + b'"']
)
def test_a_result_is_what_its_events_carry(result: bytes) -> None:
    found = result_of(encode_result(result))
    assert found is not None
    assert json.loads(found) == json.loads(result)


def test_events_of_other_servers_are_read_too() -> None:
    wire = (
        b": ping\r\n\r\n"
        + encode_event("task_id", "t").replace(b"\r\n", b"\n")
        + b'event: chunk\ndata: {"a":\n\n'
    )
    wire += b"event: end\ndata:1}\n\n"
    assert result_of(wire) == '{"a":1}'
    assert result_of(b"") is None


def test_the_input_is_taken_out_of_the_body() -> None:
    assert (
        input_of("call", b'{"name":"x","task_id":"t","input":{"a":[1,2.5,"\xc3\xa9"]}}')
        == '{"a":[1,2.5,"é"]}'
    )
    assert input_of("call", b'{"name":"x"}') == "null"
    assert input_of("call", b'{"name":"x","input":null}') == "null"
    assert input_of("call", b"\xff no json") == "\ufffd no json"
    assert input_of("score_group", b'{"candidates":[]}') == '{"candidates":[]}'


def test_what_nests_too_deep_to_be_read_is_kept_as_it_is() -> None:
    deep = "[" * 100_000
    body = f'{{"name":"echo","input":{deep}'
    assert input_of("call", body.encode()) == body
    assert Redactor(("a-secret",)).json(f"\\a-secret{deep}") == f"\\[secret]{deep}"
    half = "[" * 900 + "]" * 900  # can be read, and then not be walked through
    assert "a-secret" not in Redactor(("a-secret",)).json(f'["\\n","a-secret",{half}]')


def test_packed_texts_come_back() -> None:
    assert unpack(pack("é☃" * 10_000)) == "é☃" * 10_000
    assert len(pack("é☃" * 10_000)) < 2_000
