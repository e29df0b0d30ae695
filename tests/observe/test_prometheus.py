"""The dashboard, read as Grafana reads it, from a real Prometheus that scraped real servers."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # has no stubs

from ..support.server_process import ServerProcess, server
from .prometheus import Prometheus, Series, binary, prometheus, promtool
from .scraping import BENCH, OTHER, play, scrape, session_of
from .test_dashboard import DASHBOARD, DOCKER, PANELS

pytestmark = pytest.mark.process

DOCS = (Path(__file__).parents[2] / "docs" / "observe.md").read_text()
KEY = "a-key-for-prometheus"
_SPECIAL = re.compile(r"[$^*{}\[\]'+?.()|]")  # what Grafana escapes in a value
EVERY_S = 1  # the only figure that is another than in what we ship
TARGETS = {f"{panel['title']} {target['refId']}": target for panel in PANELS for target in panel["targets"]}
# What happened while Prometheus looked, and so is more than nothing.
HAPPENED = (
    "Sessions A",
    "Calls per second A",
    "Share of faults A",
    "95% of calls within A",
    "Workers ready A",
    "Sessions by state A",
    "Sessions by environment A",
    "Opened and ended A",
    "Opened and ended B",
    "Age of sessions when they ended A",
    "Age of sessions when they ended B",
    "Calls per second by environment A",
    "Calls per second, the ten busiest tools A",
    "Faults per second by class A",
    "Time of a call A",
    "Time of a call B",
    "Time of a call C",
    "Where the time of a call goes B",
    "Calls that run now A",
    "Worker processes A",
    "Workers lost A",
    "Memory of workers A",
    "Servers behind this one A",
    "Rows A",
    "CPU A",
    "Memory A",
    "Open files and refused keys A",
)


@dataclass
class Watched:
    """A gateway with workers and a journal, a server with keys behind it, and Prometheus."""

    prometheus: Prometheus
    gateway: str
    behind: str
    at: float


@pytest.fixture(scope="module")
def behind() -> Iterator[ServerProcess]:
    binary("prometheus")
    with server(BENCH, api_keys=[KEY]) as found:
        yield found


@pytest.fixture(scope="module")
def gateway(behind: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    file = folder / "orsay.toml"
    file.write_text(
        f'port = 0\nworkers = 2\njournal = "{folder / "journal.db"}"\n'
        f'[environments.behind]\nurl = "{behind.url}"\napi_key = "{KEY}"\nserve = {{ bench = "far" }}\n'
        f'[environments.here]\nclass = "{BENCH}"\n[environments.other]\nclass = "{OTHER}"\n'
    )
    process = ServerProcess(["--config", str(file)], {"ORSAY_JOURNAL": str(folder / "journal.db")})
    try:
        process.wait_for_url()
        yield process
    finally:
        process.end()


def address(process: ServerProcess) -> str:
    return process.url.removeprefix("http://")


def config_for(folder: Path, gateway: ServerProcess, behind: ServerProcess) -> Path:
    """The file that we ship, and the lines of the documentation beside: other targets, more often."""
    config = yaml.safe_load((DOCKER / "observe" / "prometheus.yml").read_text())
    [shipped] = config["scrape_configs"]
    [block] = re.findall(r"```yaml\n(scrape_configs:.*?)```", DOCS, re.S)
    [documented] = yaml.safe_load(block)["scrape_configs"]
    shipped["static_configs"][0]["targets"] = [address(gateway)]
    documented["static_configs"][0]["targets"] = [address(behind)]
    key = folder / "key"
    key.write_text(f"{KEY}\n")
    documented["authorization"]["credentials_file"] = str(key)
    documented["job_name"] = "with-a-key"
    config["scrape_configs"] = [shipped, documented]
    config["global"]["scrape_interval"] = f"{EVERY_S}s"
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    return file


@pytest.fixture(scope="module")
def watched(
    gateway: ServerProcess, behind: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("prometheus")
    config = config_for(folder, gateway, behind)
    assert "SUCCESS" in promtool("check", "config", str(config))
    with prometheus(config, folder / "data") as running:
        asyncio.run(live(running, gateway))
        yield Watched(running, address(gateway), address(behind), time.time())


async def live(running: Prometheus, gateway: ServerProcess) -> None:
    """Sessions that Prometheus sees; more, so that counters grow; the loss of a worker; a call that runs."""
    url = gateway.url
    at = f'{{instance="{address(gateway)}"}}'

    async def seen(query: str) -> None:
        await asyncio.to_thread(running.wait_for, query)

    for name in ("bench", "far"):
        await play(url, name=name)
    await seen(f"sum(orsay_calls_total{at}) >= 8")
    for name in ("bench", "far"):
        await play(url, name=name)
    async with session_of(url, "bench") as session:
        with pytest.raises(Exception, match=r"\w"):
            await session.call("die")
    await seen(f"sum(orsay_calls_total{at}) >= 17")
    await seen(f"sum(orsay_workers_lost_total{at}) >= 1")
    async with session_of(url, "bench") as session:
        looking = asyncio.create_task(seen(f"sum(orsay_calls_running{at}) > 0"))
        while not looking.done():
            await session.call("rest", {"seconds": 2})
        await looking
    await seen(f"sum(orsay_sessions{at}) == 0")
    await seen(f"sum(orsay_journal_rows_waiting{at}) == 0")


def filled(query: str, **chosen: list[str]) -> str:
    """As Grafana fills in what is chosen at the top; nothing chosen is All."""
    for variable in DASHBOARD["templating"]["list"]:
        values = [_SPECIAL.sub(r"\\\\\g<0>", value) for value in chosen.get(variable["name"], ())]
        either = f"({'|'.join(values)})" if len(values) > 1 else "".join(values)
        query = query.replace(f"${variable['name']}", either or variable.get("allValue", ""))
    # Four times the interval that Grafana supposes where the data source has none, 15 seconds.
    query = query.replace("$__rate_interval", "1m0s")
    assert "$" not in query, query
    return query


def asked(watched: Watched, target: dict[str, Any], **chosen: list[str]) -> Series:
    """What a panel shows, without the gaps."""
    ask = watched.prometheus.now if target.get("instant") else watched.prometheus.until
    found = [
        (labels, [value for value in values if not math.isnan(value)])
        for labels, values in ask(filled(target["expr"], **chosen), watched.at)
    ]
    return [(labels, values) for labels, values in found if values]


def names_containers(query: str) -> bool:
    """These servers have none: their metrics are shown by the tests of containers."""
    return "orsay_container" in query


@pytest.mark.parametrize("name", TARGETS)
def test_every_query_of_the_dashboard_has_data(watched: Watched, name: str) -> None:
    target = TARGETS[name]
    found = asked(watched, target)
    assert bool(found) is not names_containers(target["expr"])
    for label in re.findall(r"{{(\w+)}}", target.get("legendFormat", "")) if found else ():
        assert any(label in labels for labels, _ in found), "what the legend shows"
    chosen = asked(watched, target, instance=[watched.gateway, watched.behind], environment=["Bench", "far"])
    assert bool(chosen) is bool(found)
    assert not asked(watched, target, instance=["127.0.0.1:1"])


@pytest.mark.parametrize("name", HAPPENED)
def test_what_happened_is_seen(watched: Watched, name: str) -> None:
    target = {**TARGETS[name], "instant": False}
    assert max(value for _, values in asked(watched, target) for value in values) > 0


def test_the_choices_at_the_top_are_filled(watched: Watched) -> None:
    choices = {}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            query = filled(variable["query"]["query"])
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
            assert found, query
            asked = {"match[]": found.group(1)}
            choices[variable["name"]] = watched.prometheus.ask(f"label/{found.group(2)}/values", **asked)
    assert set(choices["instance"]) == {watched.gateway, watched.behind}
    assert set(choices["environment"]) >= {"Bench", "far", "Other"}


def test_the_alarms_of_the_documentation_can_be_used(watched: Watched, tmp_path: Path) -> None:
    [documented] = re.findall(r"^Suggested alerts: (.*?)\n\n", f"{DOCS}\n\n", re.M | re.S)
    alarms = [each for each in re.findall(r"`([^`]+)`", documented) if each != "answer"]
    assert len(alarms) == 4
    rules = [{"alert": f"Alarm{number}", "expr": each} for number, each in enumerate(alarms)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "orsay", "rules": rules}]}))
    assert "4 rules found" in promtool("check", "rules", str(file))
    for alarm in alarms:
        assert not watched.prometheus.now(alarm, watched.at), "all is well"
        metric = re.sub(r" (==|>) \d+$", "", alarm)
        assert watched.prometheus.now(metric, watched.at), "what is compared is there"


def test_both_servers_are_up_and_nothing_of_a_scrape_is_dropped(watched: Watched) -> None:
    up = {labels["instance"]: values for labels, values in watched.prometheus.now("up", watched.at)}
    assert up == {watched.gateway: [1.0], watched.behind: [1.0]}
    assert watched.prometheus.log and not [line for line in watched.prometheus.log if "level=warn" in line]


async def test_the_metrics_are_as_prometheus_wants_them(gateway: ServerProcess) -> None:
    await play(gateway.url, name="bench")
    promtool("check", "metrics", given=(await scrape(gateway.url)).text)


def test_the_configuration_that_is_shipped_is_valid() -> None:
    assert "SUCCESS" in promtool("check", "config", str(DOCKER / "observe" / "prometheus.yml"))
