"""The table of games in the README is that of the code."""

from pathlib import Path

from textarena_env.catalog import GAMES, Game

README = Path(__file__).parents[1] / "README.md"


def row(game: Game) -> str:
    rewards = f"{game.lowest:g} to {game.highest:g}"
    turns = f"{game.turns}{' *' if game.our_limit else ''}"
    return f"| `{game.name}` | {game.goal} | {game.opponent or '–'} | {rewards} | {turns} |"


def test_the_readme_lists_the_games_as_they_are() -> None:
    lines = README.read_text().splitlines()
    start = lines.index("| game | to win | opponent | rewards | turns |") + 2
    assert lines[start : lines.index("", start)] == [row(game) for game in GAMES]


def test_the_readme_counts_them_right() -> None:
    assert f"short_description: {len(GAMES)} games of text" in README.read_text()


def test_at_least_twenty_different_games_are_offered() -> None:
    assert len({game.name.partition("-")[0] for game in GAMES}) >= 20
