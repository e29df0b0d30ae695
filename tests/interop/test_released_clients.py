"""Unmodified released clients play on our server to the end."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..support.cold_server import cold_server
from .conftest import CLIENTS
from .player import Player, Players, player
from .servers import ServerProcess
from .venvs import OPENREWARD

pytestmark = [pytest.mark.process, pytest.mark.conformance("C1")]


def knows(client: Player, *, since: tuple[int, ...]) -> bool:
    return client.package == "openreward" and client.release >= since


def text_of(output: dict[str, Any]) -> str:
    return "".join(block["text"] for block in output["blocks"] if block["type"] == "text")


def values(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Outputs of calls that all went well."""
    assert [entry["type"] for entry in report["outputs"]] == [None] * len(report["outputs"]), report[
        "outputs"
    ]
    return [entry["value"] for entry in report["outputs"]]


def name_of(client: Player, name: str) -> dict[str, Any]:
    """How this client addresses an environment that is not the server's first."""
    if client.package == "ors-sdk":
        # By split and index it always opens the first one: it sends no name then.
        return {"environment": name, "by": "task"}
    return {"environment": "my/deployment", "variant": name}


@pytest.mark.conformance("P-3.1-tasks", "P-3.1-num-tasks", "P-3.1-task", "P-7-task-range", "P-3.1-splits")
def test_it_discovers_splits_tasks_and_tools(client: Player) -> None:
    seen = client.once("discover", **name_of(client, "kit"))
    assert seen["splits"] == ["train", "held-out", "empty"]
    assert seen["num_tasks"] == 12
    specs = [task["task_spec"] for task in seen["tasks"]]
    assert [spec["id"] for spec in specs] == [f"train-{i}" for i in range(12)]
    assert specs[0]["unicode"] == "héé\u2028 \u0085"
    assert seen["first"]["task_spec"] == specs[0]
    assert seen["last"]["task_spec"] == specs[11]
    assert [task["task_spec"] for task in seen["middle"]] == specs[2:5]
    assert [task["task_spec"] for task in seen["tail"]] == specs[-2:]
    assert seen["first"]["environment_name"] == "kit"


@pytest.mark.conformance("P-3.1-tools", "P-8-input-schema")
def test_it_reads_tools_and_converts_them_for_models(client: Player) -> None:
    seen = client.once("discover", **name_of(client, "kit"))
    names = ["add", "fail", "finish", "look", "picture", "repeat", "reveal", "slow"]
    assert [tool["name"] for tool in seen["tools"]] == names
    assert [tool["name"] for tool in seen["openai"]] == names
    assert [tool["name"] for tool in seen["anthropic"]] == names
    schemas = {tool["name"]: tool["input_schema"] for tool in seen["tools"]}
    assert schemas["look"] is None
    assert schemas["add"]["required"] == ["n"]


@pytest.mark.conformance("P-7-index-beyond", "P-3.1-invalid-split", "P-3.2-create-invalid-task")
def test_it_gets_the_error_of_a_wrong_index_and_a_wrong_split(client: Player) -> None:
    seen = client.play("wrong_tasks", **name_of(client, "kit"))
    assert seen["beyond"]["status"] == 400
    assert "Invalid index" in seen["beyond"]["text"]
    # Some releases wrap what /create answered.
    assert "Invalid split" in seen["create_no_split"]["text"]


@pytest.mark.conformance(
    "P-3.2-create-index", "P-3.2-create-task", "P-3.2-prompt", "P-3.2-task-tools", "P-6-delete"
)
@pytest.mark.parametrize("by", ["index", "task"])
def test_it_plays_an_episode(client: Player, orsay_server: ServerProcess, by: str) -> None:
    where = {"by": by, **name_of(client, "kit")}
    calls = [["add", {"n": 2}], ["look", {}], ["add", {"n": 3}], ["finish", {"n": 7}]]
    seen = client.play("episode", **where, index=4, calls=calls)
    assert seen["prompt"][0]["text"] == "  Task train-4: say 4\n"
    assert seen["prompt"][1]["detail"] == {"note": "pixel"}
    assert "add" in [tool["name"] for tool in seen["tools"]]
    outputs = values(seen)
    assert [text_of(output) for output in outputs] == ["2", "train-4", "5", "done"]
    assert [output["reward"] for output in outputs] == [2.0, None, 3.0, 7.0]
    assert [output["finished"] for output in outputs] == [False, False, False, True]
    assert outputs[0]["metadata"] == {"n": 2}
    after = httpx.post(f"{orsay_server.url}/ping", headers={"X-Session-ID": seen["sid"]})
    assert after.status_code == 410, "leaving the session did not end it on the server"


@pytest.mark.conformance("P-3.3-default-environment", "P-3.3-bare-session-path")
@pytest.mark.parametrize("name", ["echoenvironment", "some/EchoEnvironment"])
def test_it_plays_echo_as_the_default_environment(client: Player, name: str) -> None:
    if client.package == "ors-sdk":
        name = "EchoEnvironment"
    task = client.once("discover", name)["first"]["task_spec"]
    calls = [["echo", {"text": "wrong"}], ["hint", {}], ["echo", {"text": task["target"]}]]
    outputs = values(client.play("episode", name, calls=calls))
    assert [output["reward"] for output in outputs] == [0.0, None, 1.0]
    assert [output["finished"] for output in outputs] == [False, False, True]


@pytest.mark.conformance("P-3.2-task-tools")
def test_it_sees_tools_of_the_session_only_inside_it(client: Player) -> None:
    outside = client.once("discover", "echoenvironment")["tools"]
    inside = client.play("episode", "echoenvironment", calls=[])["tools"]
    assert [tool["name"] for tool in outside] == ["echo"]
    assert [tool["name"] for tool in inside] == ["echo", "hint"]


@pytest.mark.conformance("P-7-task-range")
def test_it_plays_guess_to_the_right_number(client: Player) -> None:
    where = name_of(client, "guessenvironment")
    assert client.once("discover", **where, list=False)["num_tasks"] == 100_000
    prompt = client.play("episode", **where, index=77_777, calls=[])["prompt"][0]["text"]
    found = re.search(r"from (\d+) to (\d+)", prompt)
    assert found is not None, prompt
    low, high = map(int, found.groups())
    seen = client.play("guess", **where, index=77_777, low=low, high=high, tool="guess", field="number")
    assert seen["outputs"][-1]["reward"] == 1.0
    assert seen["outputs"][-1]["finished"] is True
    assert all(0.0 <= output["reward"] <= 0.1 for output in seen["outputs"][:-1])


@pytest.mark.conformance("P-8-terminal-tool")
def test_it_plays_arithmetic_to_the_right_answer(client: Player) -> None:
    from arithmetic_env.problems import solution

    where = name_of(client, "arithmeticenvironment")
    question = client.play("episode", **where, index=5, calls=[])["prompt"][0]["text"].partition("\n\n")[0]
    calculation = ["calculator", {"expression": solution(question)}]
    result = text_of(values(client.play("episode", **where, index=5, calls=[calculation]))[0]).partition(" ")[
        0
    ]
    message = f"So it is this.\nAnswer: {result}"
    if knows(client, since=(0, 1, 140)):
        seen = client.play("terminal", **where, index=5, calls=[calculation], message=message)
        assert (seen["spec"]["name"], seen["spec"]["arg"], seen["final"]) == ("answer", "message", True)
        output = seen["output"]
    else:
        # Older clients know no terminal tools; called by its name it works for them too.
        calls = [calculation, ["answer", {"message": message}]]
        output = values(client.play("episode", **where, index=5, calls=calls))[-1]
    assert (output["reward"], output["finished"]) == (1.0, True)


@pytest.mark.conformance("P-9-call-unknown-tool", "P-9-call-bad-input", "P-9-call-after-refusal")
def test_it_distinguishes_refused_calls(client: Player) -> None:
    seen = client.once("errors", **name_of(client, "kit"))
    refused = ("not_found", "input_validation", "out_of_range", "bad_input_shape", "bad_key")
    assert [seen[name]["type"] for name in refused] == ["ToolCallError"] * 5
    if knows(client, since=(0, 1, 140)):
        reasons = ["not_found", "input_validation", "input_validation", "bad_input_shape", "bad_input_shape"]
        assert [seen[name]["reason"] for name in refused] == reasons
    assert text_of(seen["after_refusals"]["value"]) == "3"


@pytest.mark.conformance("P-9-tool-raises", "P-11-client-faults")
def test_it_gets_the_error_of_a_tool_that_raised(client: Player) -> None:
    seen = client.once("errors", **name_of(client, "kit"))
    assert "the tool broke" in seen["raised"]["text"]
    if knows(client, since=(0, 1, 140)):
        assert seen["raised"]["type"] == "ToolFailed"
        assert seen["after_raise"]["type"] == "SessionTerminatedError"
    else:
        assert seen["raised"]["type"] == "RuntimeError"
        assert text_of(seen["after_raise"]["value"]) == "7"


@pytest.mark.conformance("D4", "P-9-episode-finished")
def test_it_cannot_call_past_the_end_of_an_episode(client: Player) -> None:
    late = client.once("errors", **name_of(client, "kit"))["episode_finished"]
    assert late["type"] == "ToolCallError"
    if knows(client, since=(0, 1, 157)):
        assert late["reason"] == "episode_finished"


@pytest.mark.conformance("P-2-secrets-header", "C1")
def test_its_secrets_arrive(client: Player) -> None:
    output = client.play("secrets", **name_of(client, "kit"))["output"]
    name = "own_name" if client.package == "ors-sdk" else "OPENAI_API_KEY"
    assert output["metadata"]["lengths"][name] == len("s3cret")


@pytest.mark.conformance("P-4-call-result")
def test_it_reads_texts_and_images(client: Player) -> None:
    seen = client.play("blocks", **name_of(client, "kit"))
    assert [block["type"] for block in seen["prompt"]] == ["text", "image"]
    assert [block["type"] for block in seen["output"]["blocks"]] == ["text", "image", "text"]
    assert seen["output"]["blocks"][1]["data"] == seen["prompt"][1]["data"]


@pytest.mark.conformance("D1")
def test_its_texts_arrive_whole_whatever_white_space_they_hold(client: Player) -> None:
    seen = client.play("white_space", **name_of(client, "kit"), tool="repeat", field="text")
    assert seen["cases"] > 50
    assert seen["wrong"] == []


@pytest.mark.conformance("P-1-sessions-apart", "P-9-sessions-at-once")
def test_its_sessions_at_the_same_time_do_not_mix(client: Player) -> None:
    seen = client.play("together", **name_of(client, "kit"), sessions=40, calls=3)
    assert seen["counters"] == [[str(number * i) for i in (1, 2, 3)] for number in range(40)]


@pytest.mark.conformance("P-3.2-messages", "P-3.2-score-group", "P-3.1-version")
def test_the_newest_client_reads_messages_and_scores_groups(players: Players) -> None:
    client = players.get("openreward", "0.1.167")
    seen = client.play("group", **name_of(client, "kit"))
    assert [message["role"] for message in seen["messages"]] == ["user"]
    assert seen["supported"] is True
    assert [score["reward"] for score in seen["scores"]] == [4.0, 5.0]
    assert seen["scores"][1]["metadata"] == {"text": "seven"}
    assert seen["broken"]["type"] == "ScoreGroupFailed"
    assert "the judge broke" in seen["broken"]["text"]
    assert seen["after"] == [{"reward": 1.0, "metadata": {"text": "!"}}]
    assert isinstance(seen["version"]["version"], str)


@pytest.mark.conformance("P-5.4-comments", "D1")
def test_calls_of_many_seconds_reach_every_client(players: Players) -> None:
    clients = [players.get(package, version) for package, version in CLIENTS]
    # All at once: the call outlasts a round of pings and the interval of the comments.
    value = {"seconds": 11, "text": " " * 40_000}
    with ThreadPoolExecutor(len(clients)) as pool:
        seen = list(pool.map(lambda one: one.play("slow", **name_of(one, "kit"), input=value), clients))
    assert [text_of(report["output"]) == value["text"] for report in seen] == [True] * len(clients)


@pytest.mark.venv
@pytest.mark.parametrize("version", OPENREWARD[-1:])
async def test_it_plays_on_a_server_that_has_just_been_started(version: str, tmp_path: Path) -> None:
    async with cold_server(tmp_path) as server:
        with player("openreward", version, server.url) as client:
            playing = asyncio.create_task(
                asyncio.to_thread(client.play, "episode", "my/late", calls=[["say", {}]])
            )
            done, _ = await asyncio.wait([playing], timeout=2)
            assert not done, playing.result()
            server.load()
            assert text_of(values(await playing)[0]) == "said"
