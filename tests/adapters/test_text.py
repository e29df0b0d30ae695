"""Objects with TRL-ENV's two methods behind a real server, in both runtimes."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from orsay.adapters import text_environment
from orsay.errors import LoadError
from orsay.runtimes.loader import load, source_of
from orsay_client import Client, Session, ToolError, ToolRefused
from orsay_protocol import TextBlock

from tests.adapters import text_environments

pytestmark = pytest.mark.process

FILE = "tests/adapters/text_environments.py"
TARGETS = (
    f"text:{FILE}:Count?start=100&prompt=Say the next number.&train_tasks=20",
    f"text:{FILE}:Purse?reward=total&max_steps=3",
    f"text:{FILE}:Newer?seed=5",
    f"text:{FILE}:Dead",
    f"text:{FILE}:Broken",
    f"text:{FILE}:make_count?name=made",
)


def play(client: Client, name: str, index: int = 0) -> Session:
    return client.environment(name).session(split="train", index=index)


def text(blocks: Any) -> list[str]:
    return [block.text for block in blocks if isinstance(block, TextBlock)]


def test_a_game_is_played_to_its_end(client: Client) -> None:
    with play(client, "count") as session:
        lead, first = text(session.prompt())
        assert lead == "Say the next number." and 100 <= int(first) < 1100
        outputs = [session.call("step", {"action": str(int(first) + step)}) for step in (1, 2, 3)]
        assert [output.reward for output in outputs] == [1.0, 1.0, 1.0]
        assert [output.finished for output in outputs] == [False, False, True]
        assert text(outputs[0].blocks) == ["right"]
        with pytest.raises(ToolRefused, match="finished"):
            session.call("step", {"action": "x"})


def test_a_wrong_step_ends_it_with_its_own_reward(client: Client) -> None:
    with play(client, "count") as session:
        output = session.call("step", {"action": "?"})
    assert (output.reward, output.finished) == (-1.0, True)


def test_of_a_total_each_step_gives_what_was_added_and_steps_are_limited(client: Client) -> None:
    with play(client, "purse") as session:
        outputs = [session.call("step", {"action": action}) for action in ("2", "-0.5", "0")]
    assert [output.reward for output in outputs] == [2.0, -0.5, 0.0]
    assert [output.finished for output in outputs] == [False, False, True]
    assert text(outputs[1].blocks) == ["you have 11.5"]


def test_a_seed_is_text_where_the_class_says_so(client: Client) -> None:
    with play(client, "newer", 2) as session:
        assert text(session.prompt()) == ["seed '7'"]
        output = session.call("step", {"action": "ééè"})
        assert (text(output.blocks), output.reward, output.finished) == (["ééè"], 0.25, False)


def test_an_episode_that_is_over_before_it_began_says_so(client: Client) -> None:
    with play(client, "dead") as session:
        output = session.call("step", {"action": "x"})
    assert "over" in text(output.blocks)[0] and output.finished and output.reward is None


def test_what_the_object_raises_is_a_fault_and_no_reward(client: Client) -> None:
    with play(client, "broken") as session:
        with pytest.raises(ToolError):
            session.call("step", {"action": "x"})
        assert session.reward is None and not session.finished


def test_a_function_may_make_the_object(client: Client) -> None:
    with play(client, "made") as session:
        assert int(text(session.prompt())[0]) >= 5000


def test_seeds_decide_and_sessions_that_run_at_once_do_not_mix(client: Client) -> None:
    def first(index: int) -> str:
        with play(client, "count", index) as session:
            start = text(session.prompt())[1]
            for step in (1, 2, 3):
                assert session.call("step", {"action": str(int(start) + step)}).reward == 1.0
            return start

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(first, [number % 10 for number in range(30)]))
    assert found[:10] == found[10:20] == found[20:] and len(set(found)) > 5


def test_the_tool_takes_one_text(client: Client) -> None:
    (step,) = client.environment("count").tools()
    assert step.name == "step" and step.input_schema is not None
    assert step.input_schema["properties"]["action"]["type"] == "string"
    assert step.input_schema["required"] == ["action"]


def test_a_class_is_loaded_again_from_its_target() -> None:
    cls = text_environment(text_environments.Count, start=7, max_steps=2)
    assert source_of(cls) == "text:tests.adapters.text_environments:Count?max_steps=2&start=7"
    (again,) = load(source_of(cls))
    assert source_of(again) == source_of(cls)


def test_a_class_of_a_function_is_for_this_process_only() -> None:
    class Inner(text_environments.Count):
        pass

    with pytest.raises(LoadError, match="inside a function"):
        source_of(text_environment(Inner))


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (f"text:{FILE}:Conut", "did you mean 'Count'?"),
        (f"text:{FILE}:NoStep", "lacks step"),
        (f"text:{FILE}:one_for_all", "one object for all"),
        (f"text:{FILE}:Count?strat=1", "did you mean 'start'"),
        (f"text:{FILE}:Newer?start=1", "has no setting 'start'"),
        (f"text:{FILE}:Count?reward=sum", "reward must be step or total"),
        (f"text:{FILE}:Count?max_steps=0", "max_steps must be"),
        (f"text:{FILE}:Count?train_tasks=0&test_tasks=0", "no task"),
        ("text:no/such.py:Count", "no file"),
        ("text:tests.adapters.text_environment:Count", "did you mean"),
    ],
)
def test_what_is_wrong_with_a_target_is_reported(target: str, problem: str) -> None:
    with pytest.raises(LoadError) as caught:
        load(target)
    assert problem in str(caught.value)
