"""Tools as a model sees and calls them: whole schemas, odd names, pictures, terminal tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay_trl import EnvironmentSpec
from orsay_trl.play.episode import Tools
from orsay_trl.play.naming import attribute_names, model_names
from orsay_trl.trainer.environment import RolloutEnvironment

from ..support.bridge_environments import ODD_NAMES
from ..support.bridge_server import TRAINING, EnvServer, serve_environments

pytest.importorskip("trl", reason="needs the extra 'trl'")
from .players import ConcurrentScripted, PlainScripted, call, make_trainer

pytestmark = [pytest.mark.process, *TRAINING]

ROW = {"task_split": "train", "task_index": 0}


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(
        tmp_path_factory.mktemp("tools"), "Schemas", "Odd", "Pictures", "Judged"
    ) as found:
        yield found


def _place(env_server: EnvServer, name: str, row: dict[str, Any] | None = None, **more: Any) -> Any:
    environment = EnvironmentSpec(env_server.url, env_name=name, **more).environment_factory()
    environment.reset(**(row or ROW))
    return environment


def _listed(env_server: EnvServer, name: str) -> dict[str, Any]:
    found = httpx.get(f"{env_server.url}/{name}/tools").json()["tools"]
    return {tool["name"]: tool for tool in found}


# Schemas


@pytest.mark.parametrize("cls", [PlainScripted, ConcurrentScripted])
def test_the_model_reads_the_whole_schemas(env_server: EnvServer, tmp_path: Path, cls: type) -> None:
    read: list[str] = []

    def player(text: str) -> str:
        read.append(text)
        return "Nothing to do."

    spec = EnvironmentSpec(env_server.url, env_name="Schemas")
    make_trainer(cls, tmp_path, player=player, spec=spec, batch=2).train()
    spec.close()
    [block] = re.findall(r"<tools>\n(.*?)\n</tools>", read[0], re.DOTALL)
    shown = {tool["function"]["name"]: tool["function"] for tool in map(json.loads, block.splitlines())}
    listed = _listed(env_server, "schemas")
    assert set(shown) == set(listed) == {"draw", "short", "nothing"}
    for name, tool in listed.items():
        assert shown[name]["description"] == tool["description"]
        if tool["input_schema"] is not None:
            assert json.dumps(shown[name]["parameters"]) == json.dumps(tool["input_schema"])
    text = json.dumps(shown["draw"])
    for part in ('"enum": ["red", "blue"]', '"minimum": 0', '"maximum": 9', '"minItems": 1', "multipleOf"):
        assert part in text, "the server's schema itself lost something"
    assert shown["nothing"]["parameters"]["type"] == "object"


def test_what_the_model_leaves_out_is_not_sent(env_server: EnvServer) -> None:
    environment = _place(env_server, "Schemas")
    assert environment.draw(colour="red", points=[{"x": 1}]) == '{"colour":"red","points":[{"x":1}]}'
    assert env_server.diary.lines("call", tool="draw")[-1]["given"] == ["colour", "points"]
    assert environment.draw(colour="red", points=[{"x": 1}], label=None) == (
        '{"colour":"red","points":[{"x":1}],"label":null}'
    )
    assert environment.short(1, ["a", "b"]) == '[1, ["a", "b"], "c"]'
    assert environment.nothing() == "no parameters"
    environment.live.close()


def test_what_the_model_got_wrong_is_answered_in_words(env_server: EnvServer) -> None:
    environment = _place(env_server, "Schemas")
    for arguments in ({}, {"colour": "green", "points": [{"x": 1}]}, {"colour": "red", "points": "none"}):
        answer = environment.draw(**arguments)
        assert isinstance(answer, str)
        assert re.search("colour|points|input", answer)
    assert environment.rewards == [None] * 3
    assert environment.episode.fault is None
    assert environment.reward == 0.0
    environment.live.close()


# Names


def test_each_tool_is_found_by_trl_and_reaches_the_environment(env_server: EnvServer) -> None:
    environment = _place(env_server, "Odd", reward="sum")
    tools = {
        tool.__name__: tool
        for attribute, tool in vars(environment).items()
        if not attribute.startswith("_") and callable(tool)
    }
    seen = {environment.live.tools.names[name]: name for name in tools}
    assert set(seen) == set(ODD_NAMES), "a tool vanished"
    assert seen["do-it"] == "do-it"
    assert seen["reset"] == "reset"
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in tools)
    for own, name in seen.items():
        assert tools[name](text="hi") == f"{own} got 'hi'"
        assert tools[name]["function"]["description"] == f"Known as {own}."
    assert environment.reward == len(ODD_NAMES) * 0.5
    assert environment.finished is False
    assert environment.reset(**ROW) == "Odd."
    assert environment.get_reward() == 0.0
    environment.live.close()


@pytest.mark.parametrize("cls", [PlainScripted, ConcurrentScripted])
def test_a_model_calls_oddly_named_tools_in_training(
    env_server: EnvServer, tmp_path: Path, cls: type
) -> None:
    names = ["reset", "get_reward", "do-it", "_private", "class", "reward", "spec"]

    def player(text: str) -> str:
        turn = text.count("<tool_response>")
        return call(names[turn], text="hi") if turn < len(names) else "Done."

    spec = EnvironmentSpec(env_server.url, env_name="Odd", reward="sum")
    trainer = make_trainer(
        cls,
        tmp_path,
        player=player,
        spec=spec,
        batch=2,
        arguments={"max_tool_calling_iterations": 20, "max_completion_length": 2000},
    )
    trainer.train()
    spec.close()
    [entry] = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert entry["reward"] == len(names) * 0.5
    assert entry["tools/failure_frequency"] == 0.0
    assert {name: entry[f"env/calls/{name}"] for name in names} == dict.fromkeys(names, 1.0)


def test_nothing_public_of_a_rollout_can_be_hidden_by_a_tool() -> None:
    live = EnvironmentSpec("http://127.0.0.1:1").live
    live.__dict__["tools"] = Tools()
    environment = RolloutEnvironment(live)
    public = {name for name in {*dir(RolloutEnvironment), *vars(environment)} if not name.startswith("_")}
    assert public.isdisjoint(attribute_names(public).values())


def test_names_for_models_are_all_different() -> None:
    found = model_names(["a b", "a_b", "a.b", "", "é", "x" * 70, "x" * 71, "a_b_2"])
    assert len(set(found.values())) == 8
    assert found["a_b"] == "a_b"
    assert found["a_b_2"] == "a_b_2"


# Pictures


def test_pictures_are_handed_on(env_server: EnvServer) -> None:
    environment = _place(env_server, "Pictures")
    prompt = environment.reset(**ROW)
    assert [part["type"] for part in prompt] == ["text", "image", "text"]
    assert prompt[0] == {"type": "text", "text": "before"}
    assert (prompt[1]["image"].size, prompt[1]["image"].getpixel((0, 0))) == ((2, 3), (255, 0, 0))
    shown = environment.show()
    assert [part["type"] for part in shown] == ["image", "text"]
    assert shown[0]["image"].getpixel((1, 2)) == (0, 0, 255)
    assert environment.last_output == "[image: image/png]\nblue"
    environment.live.close()


def test_without_pictures_the_model_reads_that_there_was_one(env_server: EnvServer) -> None:
    environment = _place(env_server, "Pictures", images=False)
    assert environment.reset(**ROW) == "before\n[image: image/png]\nafter"
    assert environment.show() == "[image: image/png]\nblue"
    assert environment.reset(**{**ROW, "task_index": 1}) == "before\n[image: image/png]\nafter"
    environment.live.close()


def test_a_picture_that_is_none_is_a_fault_of_the_environment(env_server: EnvServer) -> None:
    environment = _place(env_server, "Pictures")
    environment.show(good=False)
    assert (environment.episode.fault, environment.reward) == ("bad_image", None)
    assert environment.reset(**{**ROW, "task_index": 1}) == ""
    assert (environment.episode.fault, environment.reward) == ("bad_image", None)
    assert environment.reset(**ROW)
    assert environment.reward == 0.0
    environment.live.close()


# Terminal tools


def test_a_plain_message_is_graded_by_the_terminal_tool(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Judged")
    assert list(spec.tools.names) == ["hint"], "a terminal tool is not for models to call"
    expected: list[Any] = [
        [{"role": "assistant", "content": "yes"}],
        [{"role": "assistant", "content": "maybe"}],
        "yes",
        [{"role": "assistant", "content": "", "tool_calls": [{"type": "function"}]}],
        [{"role": "assistant", "content": "yes"}, {"role": "tool", "name": "hint", "content": "yes"}],
        [],
        [{"role": "assistant", "content": [{"type": "text", "text": "yes"}]}],
    ]
    places = [spec.environment_factory() for _ in expected]
    for place in places:
        place.reset(**ROW)
    rewards = spec.reward_funcs(environments=places, completions=expected, prompts=[])
    assert rewards == [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    assert [place.finished for place in places] == [True, True, True, False, False, False, True]
    assert spec.reward_funcs(environments=places, completions=expected) == rewards, "graded twice"
    spec.close()


def test_a_terminal_tool_can_be_offered_beside_the_others(env_server: EnvServer) -> None:
    environment = _place(env_server, "Judged", terminal="tool")
    assert set(environment.live.tools.names) == {"hint", "answer"}
    [schema] = [s for s in environment.live.tools.schemas if s["function"]["name"] == "answer"]
    assert schema["function"]["parameters"]["required"] == ["text"]
    assert environment.answer(text="yes") == "graded"
    assert (environment.reward, environment.finished) == (1.0, True)
    environment.live.close()
