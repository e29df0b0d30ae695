"""One of two processes that train together on groups cut between them, for ``test_attack_group_ranks.py``.

    torchrun --nproc_per_node 2 -m tests.attack.group_rank URL FOLDER

Three rollouts a process make three groups of two: the one in the middle has a rollout of each. Its rollout in
the first process is lost in the second step, that in the second one in the third.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")  # of torch, transformers and TRL about each other

from orsay_trl import EnvironmentSpec  # noqa: E402

from tests.bridge.players import ConcurrentScripted, call, make_trainer  # noqa: E402

STEPS, BATCH, GENERATIONS = 4, 3, 2
LOST = {(1, 0, 2), (2, 1, 0), (3, 0, 2), (3, 1, 0)}  # step, process, place


class Watched(ConcurrentScripted):
    """Keeps what each rollout came to."""

    rows: list[dict[str, Any]]

    def _calculate_rewards(self, *args: Any) -> Any:
        found = super()._calculate_rewards(*args)
        self.rewards = found[:, 1].tolist()
        return found

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        for place, environment in enumerate(self.environments):
            text = self.processing_class.decode(output["completion_ids"][place])
            self.rows.append(
                {
                    "step": int(self.state.global_step),
                    "place": place,
                    "task": environment.episode.task.index,
                    "number": int(re.findall(r"number\W+(\d+)", text)[0]),
                    "fault": environment.episode.fault,
                    "score": self.rewards[self.accelerator.process_index * BATCH + place],
                    "learned": int((output["completion_mask"] * output["tool_mask"])[place].sum()),
                }
            )
        return output


def main() -> None:
    url, folder, rank = sys.argv[1], Path(sys.argv[2]), int(os.environ["RANK"])
    spec = EnvironmentSpec(url, retries=0, max_fault_share=1)
    turn = 0

    def player(text: str) -> str:
        nonlocal turn
        if "<tool_response>" in text:
            return "Done."
        step, place = divmod(turn, BATCH)
        turn += 1
        return call("fail" if (step, rank, place) in LOST else "give", number=1000 * (rank + 1) + turn)

    trainer = make_trainer(
        Watched,
        folder / f"work-{rank}",
        player=player,
        spec=spec,
        generations=GENERATIONS,
        batch=BATCH,
        steps=STEPS,
        reward_funcs=[spec.reward_funcs, spec.group_reward],
    )
    trainer.rows = []
    trainer.train()
    (folder / f"rank-{rank}.json").write_text(json.dumps(trainer.rows))


if __name__ == "__main__":
    main()
