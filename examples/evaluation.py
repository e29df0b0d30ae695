"""Evaluate on held-out tasks while training goes on.

Needs `pip install 'orsay[trl,vllm]'` and what `examples/grpo.py` needs on a GPU.

    python examples/evaluation.py --url http://127.0.0.1:8080 --eval-steps 20
    python examples/evaluation.py --url http://127.0.0.1:8080 --smoke
"""

from __future__ import annotations

import flags
import smoke
from orsay_trl import EnvironmentSpec, GRPOTrainer
from trl import GRPOConfig


def main() -> None:
    parser = flags.parser(__doc__)
    parser.add_argument("--eval-split", default="test")
    parser.add_argument("--eval-num-tasks", type=int, default=32)
    parser.add_argument("--eval-generations", type=int, default=4, help="rollouts of each held-out task")
    parser.add_argument(
        "--eval-steps", type=int, default=10, help="steps of training between two evaluations"
    )
    args = parser.parse_args()
    if args.smoke:
        args.eval_num_tasks = args.eval_generations = 2
        args.eval_steps = 1
    spec = EnvironmentSpec(
        args.url,
        env_name=args.env_name,
        num_tasks=args.num_tasks,
        eval_split=args.eval_split,
        eval_num_tasks=args.eval_num_tasks,
    )
    if args.smoke:
        smoke.shrink(args, spec)

    trainer = GRPOTrainer(
        model=args.model,
        args=GRPOConfig(
            **flags.settings(args),
            eval_strategy="steps",
            eval_steps=args.eval_steps,
            num_generations_eval=args.eval_generations,
            per_device_eval_batch_size=4 * args.eval_generations,
        ),
        train_dataset=spec.train_dataset,
        eval_dataset=spec.eval_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )
    trainer.evaluate()  # before the first step, to compare with
    trainer.train()
    spec.close()


if __name__ == "__main__":
    main()
