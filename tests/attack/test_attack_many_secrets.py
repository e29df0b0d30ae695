"""Secrets of a session are bounded, and forgotten with it: many of them stop no server and fill no memory."""

from __future__ import annotations

import base64
import gc
import json
import random
import time
import weakref
from typing import Any

import pytest
from orsay_protocol.headers import MOST_SECRET_BYTES, MOST_SECRETS, encode_secrets
from orsay_protocol.redact import redactor

from ..support.server_process import ServerProcess, server
from ..support.session_api import Api, api_for
from .test_attack_secrets import LEAKY

pytestmark = [pytest.mark.process, pytest.mark.conformance("S3")]

_TASK = {"env_name": "leaky", "task_spec": {}}


def _secrets(
    count: int, length: int, letters: str = "abcdefghijklmnopqrstuvwxyz0123456789"
) -> dict[str, str]:
    chance = random.Random(count)
    return {
        f"n{number}": "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))
        for number in range(count)
    }


@pytest.fixture(scope="module")
def served() -> Any:
    with server(LEAKY, runtime="process", workers=1) as found:
        yield found


async def _both(api: Api, secrets: dict[str, str]) -> tuple[Any, Any]:
    in_body = await api.post("/create", {**_TASK, "secrets": secrets})
    other = api.other()
    in_header = await other.post("/create", _TASK, **{"X-Secrets": encode_secrets(secrets)})
    for each in (api, other):
        await each.delete()
    return in_body, in_header


async def test_as_many_secrets_as_a_session_may_have_are_taken(served: ServerProcess) -> None:
    async with api_for(served.url) as api:
        for secrets in (_secrets(MOST_SECRETS, 20), {"big": "x" * 40_000}):
            assert [answer.status_code for answer in await _both(api, secrets)] == [200, 200]
        whole = {"n": "x" * (MOST_SECRET_BYTES - 1)}  # no header is that long
        assert (await api.other().post("/create", {**_TASK, "secrets": whole})).status_code == 200


async def test_more_secrets_than_a_session_may_have_are_refused(served: ServerProcess) -> None:
    async with api_for(served.url) as api:
        many = _secrets(MOST_SECRETS + 1, 20)
        in_body, in_header = await _both(api, many)
        assert (in_body.status_code, in_header.status_code) == (422, 400)
        for answer in (in_body, in_header):
            assert "64 secrets, not 65" in answer.text
            assert not any(value in answer.text for value in many.values())
        big = {"n": "x" * MOST_SECRET_BYTES}
        answer = await api.post("/create", {**_TASK, "secrets": big})
        assert answer.status_code == 422 and "65,536 bytes together, not 65,537" in answer.text
        assert len(answer.text) < 1000


async def test_a_third_of_a_million_secrets_stop_no_server(served: ServerProcess) -> None:
    async with api_for(served.url) as api:
        for value in ("abcdefghijkl", 17):
            body = {**_TASK, "secrets": {f"n{number}": value for number in range(300_000)}}
            began = time.monotonic()
            answer = await api.post("/create", body)
            assert answer.status_code == 422 and len(answer.content) < 1000
            assert time.monotonic() - began < 5
        assert (await api.get("/health")).status_code == 200


async def test_the_header_is_bounded_for_what_is_no_text_too(served: ServerProcess) -> None:
    async with api_for(served.url) as api:
        value = base64.b64encode(json.dumps(dict.fromkeys(map(str, range(1000)), "1")).encode()).decode()
        answer = await api.post("/create", _TASK, **{"X-Secrets": value})
        assert answer.status_code == 400 and "64 secrets, not 1,000" in answer.text


def test_nothing_keeps_the_secrets_of_a_session_that_ended() -> None:
    secrets = ("a-secret-of-a-session", "and-another-one")
    held = redactor(secrets)
    assert redactor(iter(secrets)) is held
    kept = weakref.ref(held)
    del held
    gc.collect()
    assert kept() is None
