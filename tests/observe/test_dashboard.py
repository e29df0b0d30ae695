"""The dashboard for Grafana, and what comes with it: whatever they name is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # has no stubs
from orsay.observe.names import RUNTIME_METRICS

from ..support.server_process import server
from .scraping import BENCH, Figures, play, scrape

pytestmark = pytest.mark.process

DOCKER = Path(__file__).parents[2] / "docker"
DASHBOARD: dict[str, Any] = json.loads((DOCKER / "observe" / "orsay.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
_SELECTOR = re.compile(r"((?:orsay|process)_\w+)(?:\{(.*?)\})?")


def queries() -> list[str]:
    """Every expression, and those that fill the choices at the top."""
    found = [str(target["expr"]) for panel in PANELS for target in panel["targets"]]
    asked = [variable["query"] for variable in DASHBOARD["templating"]["list"]]
    return [*found, *(str(query["query"]) for query in asked if isinstance(query, dict))]


def known(current: Figures) -> dict[str, set[str]]:
    """Names and labels: those of a scrape, and those of places that this server has none of."""
    found = {sample.name: set(sample.labels) for sample in current.samples}
    for name, figure in RUNTIME_METRICS.items():
        found.setdefault(f"orsay_{name}{'_total' * figure.total}", set(figure.labels))
    return found


async def test_every_metric_and_label_that_the_dashboard_names_is_there(tmp_path: Path) -> None:
    with server(BENCH, journal=str(tmp_path / "journal.db")) as process:
        await play(process.url)
        there = known(await scrape(process.url))
    found = [pair for query in queries() for pair in _SELECTOR.findall(query)]
    assert len(found) > 40
    for name, selector in found:
        assert name in there, name
        labels = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector))
        assert labels <= there[name] | {"instance", "job"}, (name, labels)


def test_what_is_grouped_by_is_a_label_of_what_is_summed() -> None:
    for query in queries():
        for grouped, name in re.findall(r"by \((.*?)\) \((?:\w+\()*((?:orsay)_\w+)", query):
            labels = {label.strip() for label in grouped.split(",")}
            figure = RUNTIME_METRICS.get(re.sub(r"^orsay_|_total$", "", name))
            if figure is not None:
                assert labels <= set(figure.labels), query


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_panel_reads_from_the_data_source_that_is_chosen() -> None:
    for panel in PANELS:
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_the_files_beside_it_lead_to_each_other() -> None:
    compose = yaml.safe_load((DOCKER / "compose.observe.yaml").read_text())
    mounted = [
        each.split(":") for service in compose["services"].values() for each in service.get("volumes", ())
    ]
    files = {target: DOCKER / source for source, target, *_ in mounted if source.startswith("./")}
    assert all(file.is_file() for file in files.values())
    scraped = yaml.safe_load(files["/etc/prometheus/prometheus.yml"].read_text())
    [job] = scraped["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    assert target.split(":")[0] in compose["services"] and target.endswith(":8080")
    [source] = yaml.safe_load(files["/etc/grafana/provisioning/datasources/orsay.yml"].read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in compose["services"]
    [folder] = yaml.safe_load(files["/etc/grafana/provisioning/dashboards/orsay.yml"].read_text())[
        "providers"
    ]
    assert f"{folder['options']['path']}/orsay.json" in files
