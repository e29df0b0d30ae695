"""Spans and metrics of real servers, as a collector gets them; and when there are none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from orsay.errors import ConfigError
from orsay.observe.otel_settings import OtelSettings, read_settings
from orsay.observe.telemetry import make_telemetry
from orsay_client import errors

from ..support.server_process import ServerProcess
from .collector import Collector, collecting, plain
from .scraping import BENCH, play, session_of

pytestmark = pytest.mark.process

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
URL = "OTEL_EXPORTER_OTLP_ENDPOINT"


@contextmanager
def reported(*targets: str, **variables: str) -> Iterator[ServerProcess]:
    """A server in one process with these variables, ended in good order."""
    process = ServerProcess(
        ["--port", "0", *targets], {"ORSAY_WORKERS": "1", "ORSAY_LOG_FORMAT": "json", **variables}
    )
    try:
        process.wait_for_url()
        yield process
    finally:
        process.end()


def by_name(collector: Collector, trace: str) -> dict[str, Any]:
    """The spans of that trace."""
    return {span.name: span for span in collector.spans if span.trace_id.hex() == trace}


async def test_a_session_is_a_span_and_its_calls_are_spans_below_it() -> None:
    with collecting() as collector:
        with reported(BENCH, **{URL: collector.url, "OTEL_EXPORTER_OTLP_HEADERS": "x-who=me"}) as process:
            async with session_of(
                process, traceparent=PARENT, secrets={"token": "hunter2-5d1c"}, run_labels="night"
            ) as session:
                await session.prompt()
                await session.call("add", {"one": 20, "two": 22})
                with pytest.raises(errors.ToolError) as caught:
                    await session.call("fail")
                sid = session.sid
        spans = by_name(collector, TRACE)
        assert set(spans) == {"session Bench", "prompt", "call add", "call fail"}
        top = spans["session Bench"]
        assert top.parent_span_id.hex() == "00f067aa0ba902b7"
        assert top.kind == Span.SPAN_KIND_SERVER
        assert all(span.parent_span_id == top.span_id for span in spans.values() if span is not top)
        assert plain(top.attributes) == {
            "orsay.environment": "Bench",
            "orsay.session": sid,
            "orsay.split": "train",
            "orsay.index": 0,
            "orsay.run": "night",
        }
        added = plain(spans["call add"].attributes)
        assert (added["orsay.tool"], added["orsay.reward"], added["orsay.finished"]) == ("add", 0.5, False)
        failed = plain(spans["call fail"].attributes)
        assert (failed["orsay.fault"], failed["orsay.fault_id"]) == ("tool_error", caught.value.id)
        assert spans["call fail"].status.code == Status.STATUS_CODE_ERROR
        assert spans["call add"].status.code == Status.STATUS_CODE_UNSET
        assert top.start_time_unix_nano <= spans["call add"].start_time_unix_nano
        assert spans["call add"].end_time_unix_nano <= top.end_time_unix_nano
        assert b"hunter2-5d1c" not in collector.raw
        assert collector.resources[0]["service.name"] == "orsay"
        assert all(headers["x-who"] == "me" for headers in collector.headers)


async def test_a_trace_that_the_server_began_has_the_session_at_its_top() -> None:
    with collecting() as collector:
        with reported(BENCH, **{URL: collector.url, "OTEL_METRICS_EXPORTER": "none"}) as process:
            async with session_of(process, traceparent="none") as session:
                trace = session.trace
        spans = by_name(collector, trace)
        assert spans["session Bench"].parent_span_id == b""
        assert collector.metrics == []


async def test_a_server_behind_puts_its_spans_below() -> None:
    with collecting() as collector:
        with (
            reported(BENCH, **{URL: collector.url, "OTEL_SERVICE_NAME": "behind"}) as behind,
            reported(behind.url, **{URL: collector.url, "OTEL_SERVICE_NAME": "gateway"}) as gateway,
        ):
            async with session_of(gateway) as session:
                await session.call("add", {"one": 1, "two": 1})
        found = [span for span in collector.spans if span.trace_id.hex() == session.trace]
        sessions = [span for span in found if span.name == "session Bench"]
        assert len(sessions) == 2
        first, second = sorted(sessions, key=lambda span: span.start_time_unix_nano)
        assert second.parent_span_id == first.span_id
        assert {resource["service.name"] for resource in collector.resources} == {"behind", "gateway"}


async def test_a_session_that_cannot_be_opened_is_a_span_with_an_error() -> None:
    with collecting() as collector:
        with reported(BENCH, **{URL: collector.url}) as process, pytest.raises(errors.BadRequest):
            async with session_of(process, "bench", traceparent=PARENT, toolset="nonsense"):
                pass
        [span] = by_name(collector, TRACE).values()
        assert span.status.code == Status.STATUS_CODE_ERROR


async def test_a_session_whose_worker_died_is_a_span_with_its_fault() -> None:
    with collecting() as collector:
        with reported(BENCH, **{URL: collector.url}) as process:
            async with session_of(process, traceparent=PARENT) as session:
                with pytest.raises(errors.Fault):
                    await session.call("die")
        spans = by_name(collector, TRACE)
        for name in ("session Bench", "call die"):
            assert plain(spans[name].attributes)["orsay.fault"] == "worker_lost"


async def test_a_client_that_does_not_sample_its_trace_is_not_traced() -> None:
    with collecting() as collector:
        with reported(BENCH, **{URL: collector.url}) as process:
            async with session_of(process, traceparent=PARENT.removesuffix("01") + "00") as session:
                await session.call("add", {"one": 1, "two": 1})
        assert collector.spans == []


async def test_metrics_are_those_of_the_scrape() -> None:
    with collecting() as collector:
        with reported(BENCH, **{URL: collector.url, "OTEL_METRIC_EXPORT_INTERVAL": "200"}) as process:
            collector.until(lambda: collector.points("orsay_sessions"))  # before the end, too
            await play(process.url)
        calls = {
            (point["tool"], point["outcome"]): count
            for point, count in (
                (plain(found.attributes), found.as_double) for found in collector.points("orsay_calls")
            )
            if point["environment"] == "Bench" and count
        }
        assert calls == {
            ("add", "answer"): 1,
            ("fail", "tool_error"): 1,
            ("other", "answer"): 1,
            ("answer", "answer"): 1,
        }
        [durations] = collector.points("orsay_call_seconds")
        assert durations.count == sum(durations.bucket_counts) == 4
        assert len(durations.bucket_counts) == len(durations.explicit_bounds) + 1
        assert collector.points("orsay_sessions_opened")[0].as_double == 1


async def test_a_collector_that_is_away_disturbs_nothing() -> None:
    variables = {
        URL: "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    with reported(BENCH, **variables) as process:
        await play(process.url)
        assert process.end() == 0
    assert "127.0.0.1" in process.everything and "Traceback" not in "".join(process.output)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"OTEL_SERVICE_NAME": "x"}, None),
        ({URL: "http://c:4318"}, OtelSettings(True, True, 60.0)),
        ({URL: "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, None),
        ({URL: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, OtelSettings(False, True, 60.0)),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, OtelSettings(True, False, 60.0)),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c/m"}, OtelSettings(False, True, 60.0)),
        ({URL: "http://c", "OTEL_METRIC_EXPORT_INTERVAL": "5000"}, OtelSettings(True, True, 5.0)),
        ({URL: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, OtelSettings(True, True, 60.0)),
    ],
)
def test_what_the_variables_ask_for(variables: dict[str, str], found: OtelSettings | None) -> None:
    assert read_settings(variables) == found
    if found is None:
        assert make_telemetry(variables, version="0") is None


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({URL: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "4318"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin"),
        ({URL: "http://c", "OTEL_METRIC_EXPORT_INTERVAL": "soon"}, "milliseconds"),
    ],
)
def test_what_cannot_be_done_stops_the_start(variables: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_settings(variables)


def test_without_the_packages_the_start_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from orsay.cli import main\n"
        f"sys.exit(main(['serve', {BENCH!r}, '--port', '0', '--runtime', 'local']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**_clean(), URL: "http://127.0.0.1:9", "ORSAY_JOURNAL": "off"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'orsay[otel]'" in done.stderr and "Traceback" not in done.stderr


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("ORSAY_", "OTEL_"))}
