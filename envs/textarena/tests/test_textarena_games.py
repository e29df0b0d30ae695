"""Every game: it ends, it repeats, episodes do not disturb each other, and its rewards are the package's."""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "textarena", reason="needs the package textarena: tests/envs/test_textarena.py runs this file where it is"
)

from textarena_env.catalog import GAMES, GAMES_BY_NAME, Game
from textarena_env.match import Match
from textarena_env.options import options_for

from .players import NONSENSE, WINNING, acting, finish

each = pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
SEEDS = (0, 1, 2, 1_000_000_000)
QUICK, QUICK_TOO = 26, 36
"""With these the package makes each puzzle in a moment: those of RushHour take up to a second and a half."""
EXCHANGING = {"Countdown", "Cryptarithm", "Slitherlink", "ThreeCardMonte"}
"""Games that exchange reason and reward of an invalid action, which package.py puts right."""


class Heard(Match):
    """Keeps what the player was told."""

    def __init__(self, game: Game, seed: int) -> None:
        super().__init__(game, seed)
        self.told: list[str] = []

    def act(self, action: str) -> str:
        self.told.append(super().act(action))
        return self.told[-1]


def played(game: Game, seed: int, nonsense: float = 0.0) -> Heard:
    heard = Heard(game, seed)
    finish(heard, acting(random.Random(seed), nonsense))
    return heard


@each
def test_a_random_player_reaches_the_end_within_the_limit(game: Game) -> None:
    for seed in SEEDS:
        match = played(game, seed)
        assert match.outcome is not None
        assert game.lowest <= match.outcome.reward <= game.highest
        assert match.turns <= game.turns
        assert match.actions <= game.calls
        assert game.our_limit or not match.outcome.cut_short


@each
def test_nonsense_does_not_break_a_game_and_ends_it(game: Game) -> None:
    for seed in SEEDS:
        match = played(game, seed, nonsense=0.4)
        assert match.outcome is not None
        assert game.lowest <= match.outcome.reward <= game.highest
    for said in NONSENSE:
        stubborn = Match(game, QUICK)
        finish(stubborn, lambda match: said)  # noqa: B023
        assert stubborn.over


@each
def test_the_first_prompt_tells_the_rules_and_a_second_invalid_action_ends_the_game(game: Game) -> None:
    match = Match(game, QUICK)
    assert len(match.opening) > 100
    told = match.act("I would rather not.")
    assert not match.over
    assert "invalid move" in told
    assert match.turns == 0
    match.act("I would rather not.")
    assert match.outcome is not None
    assert match.outcome.invalid_move
    assert match.outcome.reason
    assert match.outcome.reward < 1


@each
def test_the_same_seed_and_the_same_actions_lead_to_the_same_texts_and_the_same_reward(game: Game) -> None:
    for seed in SEEDS[:2]:
        first, second = Match(game, seed), Match(game, seed)
        assert first.opening == second.opening
        record = finish(first, acting(random.Random(seed)))
        assert [second.act(said) for said, _ in record] == [told for _, told in record]
        assert first.outcome == second.outcome


@each
def test_two_episodes_in_turn_go_as_one_alone(game: Game) -> None:
    alone = Match(game, QUICK)
    record = finish(alone, acting(random.Random(11)))
    first, other = Match(game, QUICK), Match(game, QUICK_TOO)
    act = acting(random.Random(12))
    random.seed(99)  # nor does the generator of the process matter
    for said, told in record:
        if not other.over:
            other.act(act(other))
        assert first.act(said) == told
    assert first.outcome == alone.outcome
    assert random.random() == random.Random(99).random()


def test_another_process_plays_the_same_whatever_its_hashes_are() -> None:
    code = (
        "import random, sys\n"
        "sys.path.insert(0, '.')\n"
        "from tests.players import acting, finish\n"
        "from textarena_env.catalog import GAMES\n"
        "from textarena_env.match import Match\n"
        "for game in GAMES:\n"
        f"    match = Match(game, {QUICK})\n"
        "    print(match.opening, finish(match, acting(random.Random(41))), match.outcome)\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].count("Outcome(") == len(GAMES)


def test_episodes_on_several_threads_go_as_one_alone() -> None:
    names = ["2048-v0-ultra-easy", "Blackjack-v0-long", "Minesweeper-v0", "PigDice-v0-50", "Sokoban-v0"]
    alone = {name: played(GAMES_BY_NAME[name], 21).outcome for name in names}
    found: list[tuple[str, Any]] = []

    def play(name: str) -> None:
        for _ in range(3):
            found.append((name, played(GAMES_BY_NAME[name], 21).outcome))

    threads = [threading.Thread(target=play, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 3 * len(names)
    assert all(outcome == alone[name] for name, outcome in found)


@pytest.mark.parametrize("name", WINNING)
def test_a_winning_line_earns_one(name: str) -> None:
    for seed in (3, 1_000_000_003):
        match = Match(GAMES_BY_NAME[name], seed)
        for said in WINNING[name](match.play.bare):
            assert not match.over
            match.act(said)
        assert match.outcome is not None
        assert match.outcome.reward == 1.0, (name, seed, match.outcome)
        assert not match.outcome.invalid_move


@pytest.fixture(scope="module")
def directly() -> Iterator[list[tuple[Heard, dict[str, Any]]]]:
    """Episodes of all games, and the same actions played by the package alone, in a process of its own."""
    matches = []
    for game in GAMES:
        for seed, nonsense in ((31, 0.0), (32, 0.15), (33, 0.5)):
            matches.append(played(game, seed, nonsense))
    games = [
        {
            "game": match.game.name,
            "players": match.game.players,
            "seed": match.seed,
            "options": options_for(match.game.name, match.seed),
            "actions": match.play.actions,
        }
        for match in matches
    ]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("direct.py"))],
        input=json.dumps(games),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    yield list(zip(matches, json.loads(done.stdout), strict=True))


def test_rewards_are_those_of_the_package_played_directly(
    directly: list[tuple[Heard, dict[str, Any]]],
) -> None:
    compared = exchanged = 0
    for match, end in directly:
        assert match.outcome is not None
        if match.outcome.cut_short:
            assert not end["done"]
            continue
        assert end["done"]
        reward = end["rewards"][str(match.seat)]
        if isinstance(reward, str):
            assert match.game.name.partition("-")[0] in EXCHANGING
            assert match.outcome.reason == f"Invalid Move: {reward}"
            exchanged += 1
            continue
        assert match.outcome.reward == reward, match.game.name
        compared += 1
    assert compared > 2 * len(GAMES)
    assert exchanged > 0


def test_the_player_is_told_what_the_package_tells_and_in_that_order(
    directly: list[tuple[Heard, dict[str, Any]]],
) -> None:
    for match, end in directly:
        if match.game.name.partition("-")[0] in EXCHANGING:
            continue
        text, at = "\n\n".join([match.opening, *match.told]), 0
        for message in end["told"][str(match.seat)]:
            if any(message in (said, f"[{said}]") for said in match.play.actions):
                continue
            found = text.find(message.strip("\n"), at)
            assert found >= 0, (match.game.name, match.seed, message)
            at = found + len(message.strip("\n"))


def test_turn_limits_of_the_package_are_those_of_the_catalog() -> None:
    for game in GAMES:
        limit = Match(game, 0).play.bare.state.max_turns
        if limit is not None and not game.our_limit:
            per_player = (limit + 1) / game.players
            assert game.turns <= per_player + 1, game.name


def test_no_game_asks_for_the_network(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "def refuse(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'subprocess.Popen'):\n"
        "        raise RuntimeError(f'{event} {arguments}')\n"
        "sys.addaudithook(refuse)\n"
        "from textarena_env.catalog import GAMES\n"
        "from textarena_env.match import Match\n"
        "for game in GAMES:\n"
        "    Match(game, 1).act('x')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]
