"""An episode in a container that is killed between two of its calls, behind a gateway with a journal."""

from __future__ import annotations

from pathlib import Path

import pytest
from orsay_client import Client, Retry, Session

from tests.support.engine import image, needs_engine
from tests.support.waiting import until_true

from .gateways import LEASE_S, docker_kill, gateway

pytestmark = [needs_engine, pytest.mark.timeout(600)]  # the first may build images


@pytest.mark.conformance("I4", "L7")
def test_an_episode_goes_on_in_another_container(tmp_path: Path) -> None:
    text = f"""
[environments.games]
image = "{image("server")}"
serve = ["guessenvironment"]
lease_s = {LEASE_S}
"""
    with gateway(tmp_path, text, ORSAY_JOURNAL=str(tmp_path / "journal.db")) as running:
        (victim,) = running.containers("games")
        patient = Retry(tries=60, first_delay_s=0.1, max_delay_s=1.0)
        with (
            Client(running.url, retry=patient) as client,
            client.environment("guessenvironment").session(split="train", index=0) as session,
        ):
            session.prompt()
            left = [guesses_left(session, number) for number in (50, 25)]
            docker_kill(victim)
            until_true(lambda: "session_suspended" in running.everything, timeout_s=60)
            left.append(guesses_left(session, 12))
            assert left == [left[0], left[0] - 1, left[0] - 2]
        assert victim not in running.containers("games")
        assert "session_rebuilt" in running.everything


def guesses_left(session: Session, number: int) -> int:
    found = session.call("guess", {"number": number}).metadata
    assert found is not None
    left: int = found["guesses_left"]
    return left
