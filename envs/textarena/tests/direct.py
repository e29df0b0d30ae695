"""Plays the package itself, without anything of this project: ``python direct.py < games.json > ends.json``.

In: a list of objects with ``game``, ``players``, ``seed``, ``options`` and the ``actions`` of all players.
Out: for each, the rewards by player, and all that each player was told.
"""

import contextlib
import json
import random
import sys
from typing import Any

import textarena


def play(game: dict[str, Any]) -> dict[str, Any]:
    random.seed(game["seed"])
    wrapped = textarena.make(game["game"], **game["options"])
    wrapped.reset(num_players=game["players"], seed=game["seed"])
    done = False
    for action in game["actions"]:
        assert not done, game
        done, _ = wrapped.step(action)
    bare = wrapped
    while isinstance(bare, textarena.Wrapper):
        bare = bare.env
    told = {
        player: [str(entry[1]) for entry in bare.state.observations[player]]
        for player in range(game["players"])
    }
    rewards, _ = wrapped.close()
    return {"done": done, "rewards": rewards, "told": told}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        ends = [play(game) for game in json.load(sys.stdin)]
    json.dump(ends, sys.stdout)
