"""Shape the reward: by what an episode's calls amount to, and by a reward function of your own beside it.

Needs `pip install 'orsay[trl,vllm]'` and what `examples/grpo.py` needs on a GPU.

    python examples/custom_reward.py --url http://127.0.0.1:8080 --brevity 0.1
    python examples/custom_reward.py --url http://127.0.0.1:8080 --smoke
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flags
import smoke
from orsay_trl import EnvironmentSpec, Episode, GRPOTrainer
from trl import GRPOConfig


def best_but_honest(episode: Episode) -> float | None:
    """The best reward of the episode, less a tenth for each call that the environment refused."""
    scored = [reward for reward in episode.rewards if reward is not None]
    refused = sum(step.output is None for step in episode.steps)
    return max(scored) - 0.1 * refused if scored else None


def brevity(environments: Sequence[Any], **_: Any) -> list[float | None]:
    """1 for an episode of one call, less for longer ones; None, no opinion, where a fault ended it."""
    return [
        1 / max(len(environment.rewards), 1) if environment.reward is not None else None
        for environment in environments
    ]


def main() -> None:
    parser = flags.parser(__doc__)
    parser.add_argument("--brevity", type=float, default=0.1, help="weight of the reward for short episodes")
    args = parser.parse_args()
    spec = EnvironmentSpec(args.url, env_name=args.env_name, num_tasks=args.num_tasks, reward=best_but_honest)
    if args.smoke:
        smoke.shrink(args, spec)

    trainer = GRPOTrainer(
        model=args.model,
        args=GRPOConfig(**flags.settings(args), reward_weights=[1.0, args.brevity]),
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=[spec.reward_funcs, brevity],
    )
    trainer.train()


if __name__ == "__main__":
    main()
