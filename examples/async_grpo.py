"""Train with TRL's asynchronous GRPO: a process of its own keeps playing while the trainer computes.

Needs `pip install 'orsay[trl,vllm]' kernels`, and at least two GPUs: one for vLLM, and one for training that
FlashAttention 3 runs on, which TRL's trainer uses.

    # two terminals: vLLM on GPU 1, training on GPU 0
    CUDA_VISIBLE_DEVICES=1 VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen3-4B --port 8000 \\
        --weight-transfer-config '{"backend": "nccl"}' --logprobs-mode processed_logprobs --max-logprobs -1
    CUDA_VISIBLE_DEVICES=0 python examples/async_grpo.py --url http://127.0.0.1:8080 \\
        --vllm-server-base-url http://127.0.0.1:8000

    # no GPU: two steps of a tiny model that a vLLM for CPUs serves
    python examples/smoke.py /tmp/tiny --url http://127.0.0.1:8080
    VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model /tmp/tiny --dtype float32 \\
        --enforce-eager --logprobs-mode processed_logprobs
    python examples/async_grpo.py --url http://127.0.0.1:8080 --model /tmp/tiny --smoke
"""

from __future__ import annotations

import argparse
from typing import Any

import smoke
from orsay_trl import EnvironmentSpec
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="Qwen/Qwen3-4B", help="name on the model hub, or a folder")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="an ORS server")
    parser.add_argument("--env-name", help="which environment of the server; its first by default")
    parser.add_argument("--num-tasks", type=int, default=64, help="at most that many tasks of the split")
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    parser.add_argument(
        "--per-device-train-batch-size", type=int, default=8, help="rollouts for each process"
    )
    parser.add_argument("--num-generations", type=int, default=8, help="rollouts of each task: the group")
    parser.add_argument("--max-completion-length", type=int, default=1024, help="tokens of one turn")
    parser.add_argument("--max-tool-calling-iterations", type=int, default=20)
    parser.add_argument("--max-steps", type=int, default=100)
    parser.add_argument(
        "--max-staleness", type=int, default=4, help="weight updates that a rollout may lag behind"
    )
    parser.add_argument("--vllm-server-base-url", default="http://127.0.0.1:8000")
    parser.add_argument("--output-dir", default="trained")
    smoke.add_flag(parser)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    spec = EnvironmentSpec(
        args.url,
        env_name=args.env_name,
        num_tasks=args.num_tasks,
        terminal="tool",  # this trainer keeps plain messages to itself
    )
    if args.smoke:
        smoke.shrink(args)
    settings: dict[str, Any] = {
        "output_dir": args.output_dir,
        "learning_rate": args.learning_rate,
        "per_device_train_batch_size": args.per_device_train_batch_size,
        "num_generations": args.num_generations,
        "max_completion_length": args.max_completion_length,
        "max_tool_calling_iterations": args.max_tool_calling_iterations,
        "max_steps": args.max_steps,
        "max_staleness": args.max_staleness,
        "vllm_server_base_url": args.vllm_server_base_url,
        "chat_template_kwargs": {"enable_thinking": False},
        "logging_steps": 1,
        "report_to": "none",
    }
    slots: dict[str, Any] = {}
    if args.smoke:
        import smoke_async  # stands in for what only CUDA has

        settings |= smoke_async.SETTINGS
        slots = smoke_async.slots(args, spec, settings)

    trainer = AsyncGRPOTrainer(
        model=args.model,
        args=AsyncGRPOConfig(**settings),
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,  # its get_reward() is the reward
        **slots,
    )
    if args.smoke:
        slots["weight_transfer"].model = trainer.model
    trainer.train()


if __name__ == "__main__":
    main()
