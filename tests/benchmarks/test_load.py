import asyncio
import os

import pytest
from orsay_bench.loops import closed_loop, quantiles
from orsay_bench.machine import cpu_model
from orsay_bench.openenv_load import parser as openenv_parser
from orsay_bench.ors_load import OrsLoad
from orsay_bench.ors_load import parser as ors_parser
from orsay_bench.processes import TICK, Clock, ProcessTree, parse_fields, parse_stat
from orsay_bench.websocket import CLOSE, frame, parse_frame
from orsay_bench.wire import Target, answer_length, connect, drain

pytestmark = pytest.mark.process

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nright"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nright\r\n0\r\n\r\n"
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"


def test_quantiles_are_in_milliseconds() -> None:
    seconds = [i / 1000 for i in range(1, 101)]
    assert quantiles(seconds) == {"p50_ms": 51.0, "p90_ms": 91.0, "p99_ms": 100.0, "max_ms": 100.0}


def test_quantiles_of_nothing_are_empty() -> None:
    assert quantiles([]) == {}


def test_the_length_of_an_answer_is_read_from_its_head() -> None:
    assert answer_length(OK) == len(OK)
    assert answer_length(CHUNKED) == -1
    assert answer_length(OK[:20]) == 0


def test_a_request_names_session_and_length() -> None:
    request = Target("http://127.0.0.1:81/base/").request("POST", "/ping", "s1", b"{}")
    head, body = request.split(b"\r\n\r\n")
    assert head.startswith(b"POST /base/ping HTTP/1.1\r\nHost: 127.0.0.1:81\r\n")
    assert b"X-Session-ID: s1" in head
    assert b"Content-Length: 2" in head
    assert body == b"{}"


@pytest.mark.parametrize("size", [0, 125, 126, 65_535])
def test_a_frame_is_masked_and_says_its_length(size: int) -> None:
    made = frame(b"a" * size)
    start = 6 if size < 126 else 8
    assert len(made) == start + size
    assert made[1] & 0x80
    assert made[start:][:1] == (b"" if not size else bytes([ord("a") ^ 1]))


def test_a_frame_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        frame(b"a" * 65_536)


@pytest.mark.parametrize("head", [b"\x81\x02", b"\x81\x7e\x00\x02", b"\x81\x7f" + (2).to_bytes(8, "big")])
def test_a_frame_of_the_server_is_parsed_in_each_length(head: bytes) -> None:
    assert parse_frame(head + b"okmore") == (1, b"ok", b"more")
    assert parse_frame(head + b"o") is None
    assert parse_frame(head[:1]) is None


def test_a_close_frame_is_distinguished() -> None:
    parsed = parse_frame(b"\x88\x00")
    assert parsed is not None
    assert parsed[0] == CLOSE


def test_stat_is_read_after_the_last_bracket_of_the_name() -> None:
    fields = " ".join(["S", "7", *["0"] * 9, "100", "50", "30", "20", *["0"] * 10])
    stat = parse_stat(f"12 (a ) name) {fields}")
    assert stat.parent == 7
    assert stat.cpu_s == pytest.approx(200 / TICK)


def test_numeric_fields_are_read_and_others_skipped() -> None:
    assert parse_fields("Name:\tx y\nVmRSS:\t  1200 kB\nThreads:\t3\n") == {"VmRSS": 1200, "Threads": 3}


def test_the_cpu_model_is_found_or_replaced() -> None:
    assert cpu_model("processor : 0\nmodel name\t: Big CPU\n") == "Big CPU"
    assert cpu_model("") != ""


def test_this_process_has_memory_and_threads() -> None:
    tree = ProcessTree(os.getpid())
    memory = tree.memory()
    assert memory.rss_kib > 1000
    assert memory.threads >= 1
    assert tree.cpu_s() > 0


async def serve(answers: list[bytes]) -> asyncio.Server:
    """Answers each request with the next of `answers`, over and over."""
    turn = iter(range(1_000_000))

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answers[next(turn) % len(answers)])
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(client, "127.0.0.1", 0)


def url_of(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_drain_counts_errors_by_kind() -> None:
    async with await serve([OK, BUSY, CHUNKED, OK]) as server:
        target = Target(url_of(server))
        channels = await connect(target, 1)
        _, errors = await drain(channels, [target.request("GET", "/")] * 4, must=b"right", timeout_s=10)
        _, wrong = await drain(channels, [target.request("GET", "/")], must=b"left", timeout_s=10)
        channels[0].close()
    assert errors == {"http 503": 1}
    assert wrong == {"body": 1}


async def test_a_closed_loop_ends_by_itself() -> None:
    async with await serve([OK]) as server:
        target = Target(url_of(server))
        channels = await connect(target, 3)
        requests = [[target.request("GET", "/")]] * 3
        result = await closed_loop(channels, requests, 0.05, b"right", Clock(None))
        for channel in channels:
            channel.close()
    assert result["n"] >= 3
    assert result["error_count"] == 0


@pytest.mark.parametrize("mode", ["calls", "pings", "episodes", "rate", "burst"])
async def test_each_mode_runs_against_any_answering_server(mode: str) -> None:
    async with await serve([OK]) as server:
        options = ["--url", url_of(server), "--mode", mode, "--sessions", "2", "--must", "right"]
        load = OrsLoad(ors_parser().parse_args([*options, "--seconds", "0.05", "--warmup", "0"]))
        result = await getattr(load, mode)()
    assert result["n"] >= 1
    assert result["error_count"] == 0


def test_both_generators_take_the_options_of_the_run() -> None:
    options = [
        "--url",
        "http://127.0.0.1:1",
        "--server-pid",
        "1",
        "--warmup",
        "0.5",
        "--seconds",
        "2",
        "--core",
        "1",
    ]
    assert ors_parser().parse_args(options).seconds == 2
    assert openenv_parser().parse_args(options).core == 1
