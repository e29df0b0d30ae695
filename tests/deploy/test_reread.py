"""A gateway's file changes while sessions live in its containers: SIGHUP moves nobody.

How a file is taken up, and refused, is shown with classes in tests/config/test_sighup.py.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from orsay_client import Client

from tests.support.config_server import SCRIPTED
from tests.support.engine import needs_engine
from tests.support.waiting import until_true

from .gateways import Gateway, gateway, scripted_entry

pytestmark = [needs_engine, pytest.mark.timeout(600)]  # the first may build the image

OTHER = f'[environments.other]\n{SCRIPTED}\nserve = {{ scripted = "Other" }}\n'


def reread(running: Gateway, text: str, event: str = "config_applied") -> None:
    """Change the file, say so, and wait until the log reports that it was taken up, or refused."""
    before = len(running.events(event))
    running.path.write_text(text)
    running.signal(signal.SIGHUP)
    until_true(lambda: len(running.events(event)) > before)


def test_containers_change_under_sessions_that_go_on(tmp_path: Path) -> None:
    with (
        gateway(tmp_path, scripted_entry("scripted") + OTHER) as running,
        Client(running.url) as client,
    ):
        old = running.containers("scripted")
        scripted = client.environment("scripted")
        with scripted.session(task_spec={}) as first:
            first.call("add")
            reread(running, scripted_entry("scripted", replicas="2") + OTHER)
            new = running.containers("scripted") - old
            assert len(new) == 2 and old < running.containers("scripted"), "the old one still has a session"
            assert first.call("add").reward == 2.0
        until_true(lambda: running.containers("scripted") == new, what="the old container stays")

        with scripted.session(task_spec={}) as second:
            reread(running, OTHER)
            assert client.environments() == ["other"]
            assert second.call("add").reward == 1.0
        until_true(lambda: not running.left(), what="a container of what was removed stays")

        reread(
            running,
            OTHER + scripted_entry("bad", image='"orsay-no-such-image:1"', pull='"never"'),
            "config_refused",
        )
        assert "no image orsay-no-such-image:1" in running.events("config_refused")[0]["error"]
        assert client.environments() == ["other"] and not running.left()
