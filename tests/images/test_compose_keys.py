"""The compose files keep to what Compose 1.29 and the Compose Specification of 2.x both know."""

from __future__ import annotations

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # has no stubs

from tests.support.engine import ROOT

FILES = sorted([ROOT / "compose.yaml", *(ROOT / "docker").glob("compose.*.yaml")])

TOP = {"services", "networks", "volumes"}
SERVICE = {
    *("build", "cap_drop", "command", "depends_on", "environment", "extends", "healthcheck", "image", "init"),
    *("logging", "mem_limit", "networks", "pids_limit", "ports", "read_only", "restart", "security_opt"),
    *("stop_grace_period", "tmpfs", "volumes"),
}
"""Keys of a service that were looked up in both; a new one is to be looked up before it is added here."""
BUILD = {"context", "dockerfile", "target", "args"}
NETWORK = {"internal"}


def test_there_are_files_to_look_at() -> None:
    assert len(FILES) >= 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_only_keys_are_used_that_both_know(path: Any) -> None:
    found = yaml.safe_load(path.read_text())
    assert {key for key in found if not key.startswith("x-")} <= TOP
    for name, service in found["services"].items():
        assert set(service) <= SERVICE, name
        assert isinstance(service.get("build", ""), str) or set(service["build"]) <= BUILD, name
    for network in found.get("networks", {}).values():
        assert set(network or {}) <= NETWORK


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_container_is_held_in_bounds(path: Any) -> None:
    for name, service in yaml.safe_load(path.read_text())["services"].items():
        if "extends" in service:
            continue  # as in the file that it names
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped", name
        assert {"mem_limit", "pids_limit", "stop_grace_period"} <= set(service), name
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ())), name
