"""Released Gymnasium behind a real server, in both runtimes."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from orsay.adapters import gymnasium_environment
from orsay.authoring.hosted import host
from orsay.errors import BadTask, LoadError
from orsay.runtimes.loader import load, source_of
from orsay_client import BadRequest, Client, Session, ToolRefused
from orsay_protocol import ImageBlock, TextBlock

from tests.support.server_process import server

pytest.importorskip("gymnasium", reason="needs the extra gymnasium")

pytestmark = pytest.mark.process

LAKE = "gymnasium:FrozenLake-v1?is_slippery=false&train_tasks=7&test_tasks=3"
NAMED = (
    'gymnasium:FrozenLake-v1?is_slippery=false&name=named&actions=["left","down","right","up"]&render=ansi'
)
TARGETS = (
    LAKE,
    NAMED,
    "gymnasium:Pendulum-v1?max_episode_steps=5",
    "gymnasium:CartPole-v1?name=poles",
    "gymnasium:Blackjack-v1",
    "tests/adapters/gymnasium_environments.py:everything",
    "tests/adapters/gymnasium_environments.py:letters",
)
TO_THE_GOAL = [1, 1, 2, 2, 1, 2]


def play(client: Client, name: str, index: int = 0, split: str = "train") -> Session:
    return client.environment(name).session(split=split, index=index)


def text(blocks: Any) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def test_the_lake_is_crossed_and_pays_at_the_goal_only(client: Client) -> None:
    with play(client, "frozenlake-v1") as session:
        assert "Frozen lake involves crossing" in text(session.prompt())
        assert text(session.prompt()).endswith("\n0")
        outputs = [session.call("step", {"action": action}) for action in TO_THE_GOAL]
        assert [output.reward for output in outputs] == [0, 0, 0, 0, 0, 1]
        assert [text(output.blocks) for output in outputs] == ["4", "8", "9", "10", "14", "15"]
        assert [output.finished for output in outputs] == [False] * 5 + [True]
        assert outputs[-1].metadata == {
            "terminated": True,
            "truncated": False,
            "info": {"prob": 1.0},
            "observation": 15,
        }
        with pytest.raises(ToolRefused, match="finished"):
            session.call("step", {"action": 0})


def test_actions_have_bounds_or_names_in_the_schema(client: Client) -> None:
    (step,) = client.environment("frozenlake-v1").tools()
    assert step.input_schema is not None
    action = step.input_schema["properties"]["action"]
    assert (action["type"], action["minimum"], action["maximum"]) == ("integer", 0, 3)
    assert action["description"] == "0: Move left, 1: Move down, 2: Move right, 3: Move up"
    (step,) = client.environment("named").tools()
    assert step.input_schema is not None
    assert step.input_schema["properties"]["action"]["enum"] == ["left", "down", "right", "up"]


def test_an_action_outside_the_space_is_refused_and_the_episode_goes_on(client: Client) -> None:
    with play(client, "frozenlake-v1") as session:
        for wrong in (4, -1, "left", None, [0]):
            with pytest.raises(ToolRefused, match="validation"):
                session.call("step", {"action": wrong})
        assert text(session.call("step", {"action": 1}).blocks) == "4"


def test_named_actions_and_a_lake_drawn_in_letters(client: Client) -> None:
    with play(client, "named") as session:
        assert "[S]FFF" in text(session.prompt())
        shown = text(session.call("step", {"action": "down"}).blocks)
        assert shown.split() == ["(Down)", "SFFF", "[F]HFH", "FFFH", "HFFG"]
        with pytest.raises(ToolRefused, match="'left', 'down', 'right' or 'up'"):
            session.call("step", {"action": 1})


def test_tasks_are_seeds_that_are_counted_and_got_but_never_listed(client: Client) -> None:
    environment = client.environment("frozenlake-v1")
    assert [split.name for split in environment.splits()] == ["train", "test"]
    assert (environment.tasks("train").count(), environment.tasks("test").count()) == (7, 3)
    train = {environment.tasks("train").get(index).spec["seed"] for index in range(7)}
    test = {environment.tasks("test").get(index).spec["seed"] for index in range(3)}
    assert len(train) == 7 and len(test) == 3 and not train & test
    assert environment.tasks("train").get(-1).spec == environment.tasks("train").get(6).spec
    with pytest.raises(BadRequest, match="7 tasks"):
        environment.tasks("train").get(7)


def test_a_seed_is_an_episode(client: Client) -> None:
    def first(index: int, split: str = "train") -> str:
        with play(client, "poles", index, split) as session:
            return text(session.prompt()) + text(session.call("step", {"action": 1}).blocks)

    assert first(3) == first(3)
    assert len({first(0), first(1), first(0, "test")}) == 3


def test_a_number_for_a_torque_and_a_limit_of_steps(client: Client) -> None:
    with play(client, "pendulum-v1") as session:
        outputs = [session.call("step", {"action": [0.5]}) for _ in range(5)]
    assert [output.finished for output in outputs] == [False] * 4 + [True]
    assert outputs[-1].metadata is not None and outputs[-1].metadata["truncated"]
    assert all(output.reward is not None and output.reward < 0 for output in outputs)
    assert len(json.loads(text(outputs[0].blocks))) == 3


def test_an_observation_of_several_parts_is_a_list(client: Client) -> None:
    with play(client, "blackjack-v1") as session:
        output = session.call("step", {"action": 0})
    assert output.finished and output.reward in (-1.0, 0.0, 1.0, 1.5)
    assert len(json.loads(text(output.blocks))) == 3


def test_composed_spaces_and_pictures_arrive_as_json_and_images(client: Client) -> None:
    with play(client, "everything") as session:
        first = session.prompt()
        assert isinstance(first[-1], ImageBlock)
        action = {"move": [1, 2], "flags": [0, 1], "say": "ab", "push": [0.25]}
        output = session.call("step", {"action": action})
    assert [block.type for block in output.blocks] == ["text", "image"]
    assert json.loads(text(output.blocks)) == {"heard": "ab", "moved": [1, 2]}
    assert output.metadata is not None
    assert output.metadata["info"] == {"push": 0.25, "nothing": "inf", "seen": [1, 2]}
    assert output.reward == 3.0


def test_text_in_and_text_out(client: Client) -> None:
    with play(client, "letters") as session:
        assert text(session.prompt()).endswith("say abc")
        assert text(session.call("step", {"action": "abc"}).blocks) == "cba"
        with pytest.raises(ToolRefused):
            session.call("step", {"action": "xyz"})


def test_a_task_that_is_no_seed_is_refused(client: Client) -> None:
    for spec in ({}, {"seed": "1"}, {"seed": -1}, {"seed": True}):
        with (
            pytest.raises(BadRequest, match="seed"),
            client.environment("frozenlake-v1").session(task_spec=spec) as session,
        ):
            session.prompt()


def test_sessions_that_run_at_once_do_not_mix(client: Client) -> None:
    def walk(number: int) -> list[str]:
        actions = TO_THE_GOAL if number % 2 else [2, 2, 1, 1, 1, 2]
        with play(client, "frozenlake-v1", number % 7) as session:
            return [text(session.call("step", {"action": action}).blocks) for action in actions]

    with ThreadPoolExecutor(8) as pool:
        walks = list(pool.map(walk, range(16)))
    assert {tuple(found) for found in walks[1::2]} == {("4", "8", "9", "10", "14", "15")}
    assert {tuple(found) for found in walks[::2]} == {("1", "2", "6", "10", "14", "15")}


def test_rendered_states_are_images() -> None:
    pytest.importorskip("pygame", reason="Gymnasium draws with pygame")
    with (
        server("gymnasium:CartPole-v1?render=image") as running,
        Client(running.url) as client,
        play(client, "cartpole-v1") as session,
    ):
        first = session.prompt()[-1]
        for _ in range(5):
            output = session.call("step", {"action": 1})
    (after,) = output.blocks
    assert isinstance(first, ImageBlock) and isinstance(after, ImageBlock)
    assert after.mimeType == "image/png" and after.data != first.data
    assert output.metadata is not None and len(output.metadata["observation"]) == 4


def test_a_class_from_python_is_loaded_again_from_its_target() -> None:
    cls = gymnasium_environment("FrozenLake-v1", is_slippery=False, desc=["SF", "HG"], seed=4, name="pond")
    (again,) = load(source_of(cls))
    assert host(again).name == host(cls).name == "pond"
    assert again.get_task("train", 0) == {"id": "train-0", "seed": 4}  # type: ignore[attr-defined]  # an environment
    assert source_of(again) == source_of(cls)


def test_a_class_with_settings_that_no_target_can_say_is_for_this_process_only() -> None:
    cls = gymnasium_environment("CartPole-v1", max_episode_steps=None, prompt="x")
    assert source_of(cls) == "gymnasium:CartPole-v1?prompt=x&max_episode_steps=null"
    pond = gymnasium_environment("FrozenLake-v1", desc=("SF", "HG"))
    with pytest.raises(LoadError, match="local runtime"):
        source_of(pond)


def test_a_derived_class_is_the_authors_own() -> None:
    base = gymnasium_environment("FrozenLake-v1")
    derived = type("Mine", (base,), {"prompt": lambda self: "walk"})
    with pytest.raises(LoadError, match="no Mine"):
        source_of(derived)
    assert host(derived).name == "FrozenLake-v1"


def test_a_step_after_the_end_says_so_and_does_nothing() -> None:
    cls: Any = gymnasium_environment("FrozenLake-v1", is_slippery=False)
    episode = cls(task_spec={"seed": 0})
    episode.setup()
    for action in TO_THE_GOAL:
        output = episode.step(action)
    after = episode.step(0)
    episode.teardown()
    assert output.finished and output.reward == 1.0
    assert after.reward is None and after.finished and "over" in after.blocks[0].text


def test_teardown_closes_the_environment() -> None:
    from tests.adapters import gymnasium_environments

    cls: Any = gymnasium_environments.letters
    before = gymnasium_environments.Letters.closed
    episode = cls(task_spec={"seed": 0})
    episode.setup()
    episode.teardown()
    assert gymnasium_environments.Letters.closed == before + 1
    cls(task_spec={"seed": 0}).teardown()  # as after a setup that never ran


def test_a_bad_task_is_refused_before_anything_is_made() -> None:
    cls: Any = gymnasium_environment("FrozenLake-v1")
    with pytest.raises(BadTask):
        cls(task_spec={"seed": None})
