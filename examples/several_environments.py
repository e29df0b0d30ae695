"""Train one model on several environments at once, each with its share of the rows.

Needs `pip install 'orsay[trl,vllm]'` and what `examples/grpo.py` needs on a GPU.

    python examples/several_environments.py --url http://127.0.0.1:8080 \\
        --environments guessenvironment echoenvironment --weights 3 1
    python examples/several_environments.py --url http://127.0.0.1:8080 --smoke
"""

from __future__ import annotations

import flags
import smoke
from orsay_client import Client
from orsay_trl import EnvironmentSpec, GRPOTrainer
from trl import GRPOConfig


def main() -> None:
    parser = flags.parser(__doc__)
    parser.add_argument("--environments", nargs="+", help="names on the server; all that it has by default")
    parser.add_argument(
        "--weights", nargs="+", type=float, help="their shares of the rows; by their tasks by default"
    )
    args = parser.parse_args()
    with Client(args.url) as client:
        names = args.environments or client.environments()
    specs = [EnvironmentSpec(args.url, env_name=name, num_tasks=args.num_tasks) for name in names]
    mixture = EnvironmentSpec.combine(*specs, names=names, weights=args.weights)
    if args.smoke:
        smoke.shrink(args, *specs)
        args.max_steps = 4

    trainer = GRPOTrainer(
        model=args.model,
        args=GRPOConfig(**flags.settings(args)),
        train_dataset=mixture.train_dataset,
        environment_factory=mixture.environment_factory,
        reward_funcs=mixture.reward_funcs,
    )
    trainer.train()


if __name__ == "__main__":
    main()
