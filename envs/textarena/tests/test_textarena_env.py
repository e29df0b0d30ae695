"""The environment: what it offers, one episode from prompt to reward, and its scripted players."""

import json
from typing import Any

import pytest

pytest.importorskip(
    "textarena", reason="needs the package textarena: tests/envs/test_textarena.py runs this file where it is"
)

from orsay import TextBlock, host
from orsay.errors import ListingUnsupported
from orsay_protocol import ToolOutput
from textarena_env.env import TextArena
from textarena_env.policy import play, play_nonsense


class Direct:
    """A session without a server."""

    def __init__(self, environment: TextArena) -> None:
        self.environment = environment
        self.environment.setup()

    async def prompt(self) -> list[TextBlock]:
        return [TextBlock(text=self.environment.prompt())]

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput:
        assert name == "act"
        return self.environment.act(**input)


def episode(game: str, seed: int = 0) -> TextArena:
    environment = TextArena({"game": game, "seed": seed})
    environment.setup()
    return environment


def text_of(output: ToolOutput) -> str:
    return "".join(block.text for block in output.blocks if isinstance(block, TextBlock))


def test_it_is_called_textarena_and_offers_one_tool() -> None:
    hosted = host(TextArena)
    assert hosted.key == "textarena"
    (act,) = hosted.listing.tools
    assert act.name == "act"
    assert act.input_schema is not None
    assert act.input_schema["properties"]["action"]["maxLength"] == 4000


async def test_tasks_are_served_by_index_and_never_listed() -> None:
    tasks = host(TextArena).tasks
    assert await tasks.num_tasks("train") == 470_000
    assert await tasks.get_task("Mastermind-v0-test", 2) == {
        "id": "Mastermind-v0-1000000002",
        "game": "Mastermind-v0",
        "seed": 1_000_000_002,
    }
    with pytest.raises(ListingUnsupported):
        await tasks.list_tasks("train")


def test_a_game_that_is_not_offered_is_refused() -> None:
    with pytest.raises(ValueError, match="no game 'Wordle-v0' is offered"):
        TextArena({"game": "Wordle-v0", "seed": 1})


def test_a_task_survives_the_wire() -> None:
    task = json.loads(json.dumps(TextArena.get_task("test", -1)))
    assert TextArena(task).game.name == "WildTicTacToe-v0"


def test_the_prompt_holds_rules_board_and_tool_and_does_not_change() -> None:
    environment = episode("TowerOfHanoi-v0")
    prompt = environment.prompt()
    for part in ("You are playing Tower of Hanoi with 3 disks", "A: [3, 2, 1]", "the tool `act`"):
        assert part in prompt
    environment.act("[A C]")
    assert environment.prompt() == prompt


def test_a_result_tells_what_is_new_and_nothing_else() -> None:
    environment = episode("TowerOfHanoi-v0")
    first, second = environment.act("[A C]"), environment.act("A B")
    assert text_of(first) == "You moved disk 1 from A to C.\n\nCurrent Board: \nA: [3, 2]\nB: []\nC: [1]\n."
    assert text_of(second) == "You moved disk 2 from A to B.\n\nCurrent Board: \nA: [3]\nB: [2]\nC: [1]\n."
    assert (second.reward, second.finished) == (None, False)
    assert second.metadata == {"game": "TowerOfHanoi-v0", "turn": 2, "actions": 2}


def test_the_end_brings_reward_and_reason() -> None:
    environment = episode("TowerOfHanoi-v0")
    output = environment.act("[A C] [A B] [C B] [A C] [B A] [B C] [A C]")
    assert (output.reward, output.finished) == (1.0, True)
    assert text_of(output).endswith(
        "The game is over. Congratulations! You solved the Tower of Hanoi puzzle."
    )
    assert output.metadata == {
        "game": "TowerOfHanoi-v0",
        "turn": 1,
        "actions": 1,
        "reason": "Congratulations! You solved the Tower of Hanoi puzzle.",
        "invalid_move": False,
        "cut_short": False,
    }
    again = environment.act("[A C]")
    assert (again.reward, again.finished, text_of(again)) == (
        None,
        True,
        "The game is over; nothing was done.",
    )


def test_one_invalid_action_is_forgiven_and_the_second_in_a_row_ends_the_game_with_what_was_reached() -> None:
    environment = episode("TowerOfHanoi-v0")
    for action in ("[A C]", "[A B]", "[C B]", "[A C]"):
        environment.act(action)
    assert "Reason: You tried to move a disk from an empty tower." in text_of(environment.act("[A B]"))
    assert environment.act("[B A]").metadata["turn"] == 5  # type: ignore[index]
    assert not environment.act("[A A A]").finished
    output = environment.act("nothing")
    assert output.reward == pytest.approx(1 / 3)
    assert output.finished
    assert output.metadata is not None
    assert output.metadata["invalid_move"] is True


def test_the_other_player_moves_in_between() -> None:
    environment = episode("TicTacToe-v0", seed=next(seed for seed in range(9) if begins(seed)))
    told = text_of(environment.act("[4]"))
    assert "Player 0 placed their symbol (O) in cell 4" in told
    assert "[Player 1] [" in told
    assert "Player 1 placed their symbol (X)" in told


def begins(seed: int) -> bool:
    return episode("TicTacToe-v0", seed).match.seat == 0


def test_a_game_without_a_limit_is_cut_short_and_pays_for_what_was_reached() -> None:
    environment = episode("RushHour-v0")
    cars = environment.match.play.bare.state.game_state["vehicles"]
    there = next(
        f"[{name}{sign}]"
        for name, car in cars.items()
        for sign in "+-"
        if name != "X" and environment.match.play.bare._can_move(cars, car, sign == "+")
    )
    back = there.replace("+", "±").replace("-", "+").replace("±", "-")
    outputs = [environment.act((there, back)[turn % 2]) for turn in range(100)]
    assert [output.finished for output in outputs] == [False] * 99 + [True]
    assert outputs[-1].reward == environment.match.play.progress()
    assert outputs[-1].metadata is not None
    assert outputs[-1].metadata["cut_short"] is True


async def test_the_scripted_player_finds_every_number() -> None:
    for index in range(20):
        task = TextArena.get_task("GuessTheNumber-v0-train", index)
        outputs: list[ToolOutput] = []
        reward = await play(Direct(TextArena(task)), lambda name, input, output: outputs.append(output))  # noqa: B023
        assert (reward, outputs[-1].finished) == (1.0, True)


async def test_the_scripted_player_says_that_it_knows_one_game_only() -> None:
    with pytest.raises(ValueError, match="GuessTheNumber only"):
        await play(Direct(TextArena({"game": "Mastermind-v0", "seed": 0})))


async def test_nonsense_earns_nothing() -> None:
    assert await play_nonsense(Direct(TextArena({"game": "GuessTheNumber-v0", "seed": 0}))) == 0.0
    assert await play_nonsense(Direct(TextArena({"game": "Nim-v0", "seed": 0}))) == -1.0
