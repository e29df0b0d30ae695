"""One of several processes that train together, for ``test_two_processes.py``; started by torchrun.

    torchrun --nproc_per_node 2 -m tests.bridge.rank URL SECOND_URL FOLDER --losing RANKS

Step by step another rank loses all its rollouts. Each writes what it saw into ``FOLDER/rank-N.json``. Then
they train once more, on the second server, where one loses more than is allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")  # of torch, transformers and TRL about each other

from orsay_trl import EnvironmentSpec  # noqa: E402

from .players import ConcurrentScripted, call, make_trainer  # noqa: E402

GENERATIONS, BATCH = 4, 2  # a group has rollouts of both processes


class Watched(ConcurrentScripted):
    """Keeps what each batch came to."""

    rows: list[dict[str, Any]]
    counted: list[float]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self.counted.append(float(output["num_items_in_batch"]))
        learned = (output["completion_mask"] * output["tool_mask"]).sum(1)
        for at, (row, environment) in enumerate(zip(inputs, self.environments, strict=True)):
            episode = environment.episode
            self.rows.append(
                {
                    "step": int(self.state.global_step),
                    "task": row["task_index"],
                    "played": episode.task.index,
                    "prompt": episode.observation,
                    "reward": episode.reward,
                    "fault": episode.fault,
                    "advantage": float(output["advantages"][at]),
                    "tokens": int(learned[at]),
                }
            )
        return output


def train(url: str, folder: Path, losing: str, max_fault_share: float) -> dict[str, Any]:
    """One step for each letter of ``losing``, the rank that loses all its rollouts of that step."""
    rank = int(os.environ["RANK"])
    spec = EnvironmentSpec(url, retries=0, call_timeout_s=2.0, max_fault_share=max_fault_share)
    turn = 0

    def player(text: str) -> str:
        """In each group every second rollout is right; a rank that loses sleeps too long."""
        nonlocal turn
        if "<tool_response>" in text:
            return "Done."
        turn += 1
        if losing[trainer.state.global_step] == str(rank):
            return call("sleep", seconds=30)
        word = re.findall(r"Say the word: (\w+)", text)[-1]
        return call("say", word=word if turn % 2 else "wrong")

    trainer = make_trainer(
        Watched,
        folder / f"work-{rank}",
        player=player,
        spec=spec,
        generations=GENERATIONS,
        batch=BATCH,
        steps=len(losing),
    )
    trainer.rows, trainer.counted = [], []
    trainer.train()
    return {
        "rows": trainer.rows,
        "counted": trainer.counted,
        "log": trainer.state.log_history,
        "open": spec.pool.open_episodes,
        "weights": float(sum(parameter.double().sum() for parameter in trainer.model.parameters())),
        "processes": trainer.accelerator.num_processes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("second_url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--losing", required=True, help="a rank for each step; 9 for none")
    args = parser.parse_args()
    seen = train(args.url, args.folder, args.losing, max_fault_share=1.0)
    (args.folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(seen))
    train(args.second_url, args.folder, "1" * 6, max_fault_share=0.5)
    raise SystemExit("the second training should have ended with an error")


if __name__ == "__main__":
    main()
