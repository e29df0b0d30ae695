"""What the documentation shows of adapters is served and played."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from orsay_client import Client
from orsay_protocol import TextBlock

from tests.support.server_process import server

pytestmark = pytest.mark.process

FOLDER = "docs/examples/adapters"


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with server(request.param) as running, Client(running.url) as client:
        yield client


def text(blocks: Any) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


@pytest.mark.parametrize("client", [f"{FOLDER}/lake.py:Lake"], indirect=True)
def test_the_lake_is_crossed(client: Client) -> None:
    pytest.importorskip("gymnasium", reason="needs the extra gymnasium")
    environment = client.environment("lake")
    assert environment.tasks("train").count() == 500
    with environment.session(split="test", index=0) as session:
        assert "keep off the holes" in text(session.prompt()) and "[S]FFF" in text(session.prompt())
        outputs = [
            session.call("step", {"action": action})
            for action in ("down", "down", "right", "right", "down", "right")
        ]
    assert outputs[-1].reward == 1.0 and outputs[-1].finished


@pytest.mark.parametrize("client", [f"text:{FOLDER}/countdown_game.py:Countdown?highest=9"], indirect=True)
def test_the_countdown_is_won_and_lost(client: Client) -> None:
    environment = client.environment("countdown")
    with environment.session(split="train", index=0) as session:
        number = int(re.findall(r"\d+", text(session.prompt()))[0])
        assert 5 <= number <= 9
        while not session.finished:
            number = max(number - 3, 1)
            output = session.call("step", {"action": str(number)})
        assert (text(output.blocks), output.reward) == ("You have won.", 1.0)
    with environment.session(split="train", index=0) as session:
        output = session.call("step", {"action": "100"})
        assert (output.reward, output.finished) == (0.0, True)


def test_the_reward_for_length_takes_both_forms_of_a_result() -> None:
    from orsay.authoring.imports import attribute, import_source

    length = attribute(import_source(f"{FOLDER}/echo_length.py"), "length")
    assert length({"observation": {"result": "12345"}}) == 0.5
    assert length({"observation": {"result": {"data": "12345", "content": []}}}) == 0.5
