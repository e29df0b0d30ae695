"""The border where bytes become requests, against thousands of clients that get it wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from ..attack.hostile import honest_play, memory_mib, statuses, talk
from ..attack.mutations import mutated, requests_in
from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import api_for

pytestmark = pytest.mark.process

CASES = int(os.environ.get("FUZZED_REQUESTS", "2250"))
BATCH = 750
AT_ONCE = 150
GROWTH_MIB = 40.0
ALLOWED = frozenset(
    {
        101,
        200,
        202,
        204,
        400,
        401,
        403,
        404,
        405,
        406,
        408,
        409,
        410,
        413,
        414,
        415,
        422,
        429,
        431,
        501,
        503,
        505,
    }
)
SEED = int(os.environ.get("FUZZ_SEED", "20261122"))


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server(
        f"{ENVIRONMENTS}:Scripted",
        also="openenv,mcp",
        console="on",
        journal=str(tmp_path_factory.mktemp("fuzzed") / "journal.db"),
        head_time_limit_s=0.5,
        transfer_time_limit_s=0.5,
        keep_alive_s=1,
        workers=2,
        idle_limit_s=2,
        setup_wait_s=2,
    ) as found:
        yield found


async def send(url: str, pieces: list[bytes]) -> bytes | None:
    """All that is answered until the server closes; None when it never does."""
    async with talk(url) as client:
        for piece in pieces:
            await client.send(piece)
            if len(pieces) > 1:
                await asyncio.sleep(0)
        found = b""
        try:
            async with asyncio.timeout(20):
                with contextlib.suppress(ConnectionError):
                    while part := await client.reader.read(1 << 16):
                        found += part
                        if b"101 Switching" in found or b"text/event-stream" in found:
                            return found  # goes on for as long as the client likes
        except TimeoutError:
            return None
        return found


@pytest.mark.timeout(400)
async def test_bytes_gone_wrong_disturb_nobody_and_leave_nothing(fuzzed: ServerProcess) -> None:
    print(f"FUZZ_SEED={SEED}")
    await honest_play(fuzzed.url)
    descriptors, memory = fuzzed.descriptors(), 0.0
    room = asyncio.Semaphore(AT_ONCE)
    tally: Counter[int] = Counter()

    async def one(number: int) -> None:
        pieces = mutated(random.Random(f"{SEED} {number}"))
        async with room:
            answer = await send(fuzzed.url, pieces)
        sent = b"".join(pieces)
        about = (number, sent[:2000], answer and answer[:600])
        assert answer is not None, ("no end", about)
        found = [each for each in statuses(answer) if each != 100]
        tally.update(found)
        assert ALLOWED.issuperset(found), about
        expected = requests_in(sent)
        served = [each for each in found if each not in (400, 408, 414, 431, 501, 505)]
        if expected is not None:
            assert len(served) <= expected, ("more requests than were sent", expected, found, about)

    for start in range(0, CASES, BATCH):
        await asyncio.gather(*(one(number) for number in range(start, min(start + BATCH, CASES))))
        await honest_play(fuzzed.url)
        memory = memory or memory_mib(fuzzed.pid)  # what is loaded at the first use is there now
        assert memory_mib(fuzzed.pid) - memory < GROWTH_MIB
    assert tally[200] > CASES / 20 and tally[400] > CASES / 20, tally  # neither all good nor all bad
    async with asyncio.timeout(20):
        while fuzzed.descriptors() > descriptors + 8:  # the journal's, its readers' among them
            await asyncio.sleep(0.05)
    assert "Traceback" not in fuzzed.everything
    assert not fuzzed.events("request_failed") and not fuzzed.events("socket_failed")
    assert not [line for line in fuzzed.log if json.loads(line)["level"] == "error"]
    assert fuzzed.code is None


@pytest.mark.parametrize("request_", [b'{"name": "say", "input": {"text": "cut"}}'])
async def test_a_request_may_be_cut_at_every_byte(fuzzed: ServerProcess, request_: bytes) -> None:
    async with api_for(fuzzed.url) as api:
        await api.create()
        head = (
            b"POST /call HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Session-ID: "
            + api.sid.encode()
            + b"\r\n"
        )
        whole = head + b"Content-Length: %d\r\n\r\n" % len(request_) + request_
        chunked = (
            head
            + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\n"
            + request_[:5]
            + b"\r\n%x\r\n" % (len(request_) - 5)
        )
        chunked += request_[5:] + b"\r\n0\r\nX-Trailer: y\r\n\r\n"
        room = asyncio.Semaphore(30)

        async def cut(data: bytes, at: int) -> None:
            async with room, talk(fuzzed.url) as client:
                await client.send(data[:at])
                await asyncio.sleep(0.01)
                await client.send(data[at:])
                answer = await client.rest()
                assert statuses(answer) == [200] and b'"text":"cut"' in answer, (at, answer)

        await asyncio.gather(*(cut(data, at) for data in (whole, chunked) for at in range(1, len(data))))
        await api.delete()


def test_the_cases_are_the_same_for_the_same_seed() -> None:
    assert mutated(random.Random("1 1")) == mutated(random.Random("1 1"))
    assert (
        requests_in(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        == 2
    )
    assert requests_in(b"GET / HTTP/1.1\r\nHost: localhost\r\nA : b\r\n\r\n") == 0
