"""``/metrics`` of real servers: what is counted, who may look, and what must not be there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay.observe.names import RUNTIME_METRICS
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from ..support.server_process import ServerProcess, server
from ..support.session_api import api_for
from .scraping import BENCH, OTHER, Figures, play, scrape, session_of

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server with worker processes, a journal and sandboxes, for the whole file."""
    journal = tmp_path_factory.mktemp("journal") / "journal.db"
    options = ["--sandboxes", "docker"]
    with server(BENCH, OTHER, options=options, journal=str(journal), workers=2) as found:
        yield found


def grown(before: Figures, after: Figures, name: str, **labels: str) -> float:
    """How much more there is."""
    return after.sum(name, **labels) - sum(before.values(name, **labels))


async def test_calls_are_counted_by_environment_tool_and_outcome(served: ServerProcess) -> None:
    before = await scrape(served.url)
    await play(served.url)
    await play(served.url)
    after = await scrape(served.url)

    def calls(**labels: str) -> float:
        return grown(before, after, "orsay_calls_total", environment="Bench", **labels)

    assert calls(tool="add", outcome="answer") == 2
    assert calls(tool="fail", outcome="tool_error") == 2
    assert calls(tool="answer", outcome="answer") == 2
    assert calls(tool="other", outcome="answer") == 2, "a tool that there is not, refused by an answer"
    assert grown(before, after, "orsay_faults_total", environment="Bench", fault="tool_error") == 2
    assert grown(before, after, "orsay_sessions_opened_total", environment="Bench") == 2
    assert grown(before, after, "orsay_sessions_ended_total", environment="Bench") == 2
    assert grown(before, after, "orsay_session_seconds_count", environment="Bench") == 2
    assert grown(before, after, "orsay_call_seconds_count", environment="Bench") == 8


async def test_durations_are_counted_where_the_time_went(served: ServerProcess) -> None:
    before = await scrape(served.url)
    async with session_of(served) as session:
        await session.call("rest", {"seconds": 0.3})
    after = await scrape(served.url)
    for name in ("orsay_call_seconds", "orsay_call_run_seconds"):
        assert grown(before, after, f"{name}_sum", environment="Bench") >= 0.25
        assert grown(before, after, f"{name}_bucket", environment="Bench", le="0.25") == 0
        assert grown(before, after, f"{name}_bucket", environment="Bench", le="+Inf") == 1
    assert grown(before, after, "orsay_call_stream_seconds_count", environment="Bench") == 1


async def test_sessions_and_calls_are_shown_while_they_live(served: ServerProcess) -> None:
    async with session_of(served) as session:
        running = asyncio.create_task(session.call("rest", {"seconds": 3}))
        async with asyncio.timeout(60):
            while not (scraped := await scrape(served.url)).sum("orsay_calls_running", environment="Bench"):
                assert not running.done(), "it was not seen"
        assert scraped.sum("orsay_sessions", environment="Bench", state="ready") == 1
        assert scraped.sum("orsay_sessions", environment="Other") == 0
        assert scraped.sum("orsay_environments") == 2
        await running
    scraped = await scrape(served.url)
    assert scraped.sum("orsay_sessions") == 0
    assert scraped.sum("orsay_calls_running") == 0


async def test_a_worker_that_dies_is_counted(served: ServerProcess) -> None:
    before = await scrape(served.url)
    async with session_of(served) as session:
        with pytest.raises(Exception, match=r"\w"):
            await session.call("die")
    async with asyncio.timeout(60):
        while True:
            after = await scrape(served.url)
            if grown(before, after, "orsay_workers_started_total") == 1:
                break
            await asyncio.sleep(0.05)
    assert grown(before, after, "orsay_workers_lost_total") == 1
    assert after.sum("orsay_workers", state="ready") == 2
    assert after.sum("orsay_worker_memory_bytes") > 1_000_000
    assert grown(before, after, "orsay_sessions_ended_total", reason="worker_lost") == 1


async def test_a_session_ended_from_the_console_is_counted_as_such(served: ServerProcess) -> None:
    before = await scrape(served.url)
    async with session_of(served) as session, httpx.AsyncClient(base_url=served.url) as browser:
        ended = await browser.post(f"/console/api/sessions/{session.sid}/end")
        assert ended.status_code == 200, ended.text
    after = await scrape(served.url)
    assert grown(before, after, "orsay_sessions_ended_total", reason="console") == 1
    assert grown(before, after, "orsay_sessions_ended_total", environment="Bench") == 1


async def test_the_journal_shows_its_state(served: ServerProcess) -> None:
    await play(served.url)
    async with asyncio.timeout(60):
        while (scraped := await scrape(served.url)).sum("orsay_journal_rows_waiting"):
            await asyncio.sleep(0.05)
    assert scraped.sum("orsay_journal_state", state="ok") == 1
    assert scraped.sum("orsay_journal_state") == 1
    assert scraped.sum("orsay_journal_rows_written_total") > 4
    assert scraped.sum("orsay_journal_rows_lost_total") == 0
    assert scraped.sum("orsay_journal_lag_seconds") == 0


async def test_nothing_that_a_client_sends_is_in_a_metric(served: ServerProcess) -> None:
    async with api_for(served.url) as api:
        await api.create("bench", secret="task-5d1c", number=1)
        await api.call("tool-5d1c")
        sid = api.sid
        scraped = await scrape(served.url)
        await api.delete()
    labels = {"run": "run-5d1c", "rollout": "rollout-5d1c"}
    async with session_of(served, run_labels=labels, secrets={"token": "secret-5d1c"}) as session:
        with pytest.raises(Exception, match="broken"):
            await session.call("fail")
        later = await scrape(served.url)
        assert session.sid not in later.text and session.trace not in later.text
    assert sid not in scraped.text
    assert "5d1c" not in scraped.text + later.text


async def test_tools_that_clients_make_up_are_one_series(served: ServerProcess) -> None:
    async with api_for(served.url) as api:
        await api.create("bench", number=1)
        for number in range(20):
            await api.call(f"made-up-{number}")
        await api.delete()
    tools = {labels["tool"] for labels in (await scrape(served.url)).labels("orsay_calls_total")}
    assert tools <= {"add", "fail", "rest", "die", "answer", "echo", "other"}


async def test_the_process_is_measured_too(served: ServerProcess) -> None:
    scraped = await scrape(served.url)
    assert scraped.sum("process_resident_memory_bytes") > 10_000_000
    assert scraped.sum("process_open_fds") > 3
    assert "python_gc_collections_total" in scraped.names


async def test_a_scraper_that_asks_for_openmetrics_gets_it(served: ServerProcess) -> None:
    accept = "application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5"
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{served.url}/metrics", headers={"Accept": accept})
        plain = await http.get(f"{served.url}/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert plain.headers["content-type"].startswith("text/plain")
    read: Any = read_openmetrics  # has no types
    families = {family.name: family for family in read(answer.text)}
    assert families["orsay_calls"].type == "counter"
    assert families["orsay_call_seconds"].type == "histogram"


async def test_a_scrape_may_name_what_it_wants(served: ServerProcess) -> None:
    async with httpx.AsyncClient() as http:
        names = "name[]=orsay_sessions&name[]=orsay_environments"
        found = Figures((await http.get(f"{served.url}/metrics?{names}")).text)
    assert found.names == {"orsay_sessions", "orsay_environments"}


async def test_only_who_has_a_key_may_look() -> None:
    with server(BENCH, api_keys=["a-key-for-you"]) as process:
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{process.url}/metrics")).status_code == 401
            wrong = {"Authorization": "Bearer not-this-one"}
            assert (await http.get(f"{process.url}/metrics", headers=wrong)).status_code == 401
        scraped = await scrape(process.url, Authorization="Bearer a-key-for-you")
        assert scraped.sum("orsay_keys_refused_total") == 2
        assert "a-key-for-you" not in scraped.text


async def test_it_can_be_switched_off() -> None:
    with server(BENCH, metrics="false", runtime="local") as process:
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{process.url}/metrics")).status_code == 404


@pytest.fixture(scope="module")
def gateway(served: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of orsay.toml: workers of its own, and the server of this file behind it."""
    file = tmp_path_factory.mktemp("gateway") / "orsay.toml"
    file.write_text(
        "port = 0\nworkers = 1\n"
        f'[environments.behind]\nurl = "{served.url}"\nserve = {{ bench = "far" }}\n'
        f'[environments.here]\nclass = "{OTHER}"\n'
    )
    process = ServerProcess(["--config", str(file)], {})
    try:
        process.wait_for_url()
        yield process
    finally:
        process.end()


async def test_a_gateway_shows_what_is_behind_it(gateway: ServerProcess) -> None:
    async with session_of(gateway, "far") as session:
        await session.call("add", {"one": 1, "two": 2})
        scraped = await scrape(gateway.url)
        assert scraped.sum("orsay_upstream_up", runtime="behind") == 1
        assert scraped.sum("orsay_upstream_sessions", runtime="behind") == 1
        assert scraped.sum("orsay_runtime_sessions", runtime="behind") == 1
        assert scraped.sum("orsay_runtime_sessions", runtime="here") == 0
        assert scraped.sum("orsay_sessions", environment="far", state="ready") == 1
        assert scraped.sum("orsay_calls_total", environment="far", tool="add", outcome="answer") == 1
        assert scraped.sum("orsay_workers", runtime="here", state="ready") == 1


async def test_a_server_in_one_process_shows_its_sessions() -> None:
    with server(BENCH, runtime="local") as process:
        await play(process.url)
        scraped = await scrape(process.url)
        assert scraped.sum("orsay_calls_total", outcome="answer") == 3
        assert scraped.sum("orsay_journal_state", state="off") == 1
        assert "orsay_workers" not in scraped.names


def base(name: str) -> str:
    """What a histogram's series have in common."""
    return re.sub(r"_(bucket|count|sum)$", "", name) if "_seconds_" in name else name


async def test_every_metric_is_documented_and_no_other(served: ServerProcess, gateway: ServerProcess) -> None:
    await play(served.url)
    seen = (await scrape(served.url)).names | (await scrape(gateway.url)).names
    mine = {base(name) for name in seen if name.startswith("orsay_")}
    mine |= {f"orsay_{name}{'_total' * figure.total}" for name, figure in RUNTIME_METRICS.items()}
    rows = re.findall(r"^\| `(orsay_\w+)` \| (.*?) \|", (ROOT / "docs" / "observe.md").read_text(), re.M)
    assert {name for name, _ in rows} == mine
    scraped = await scrape(served.url)
    for name, text in rows:
        documented = set(re.findall(r"`(\w+)`", text))
        for labels in scraped.labels(name):
            assert set(labels) == documented, name
