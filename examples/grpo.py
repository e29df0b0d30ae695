"""Train a model with GRPO on any ORS environment.

Needs `pip install 'orsay[trl,vllm]'` and CUDA. Training in float32 takes about 16 bytes for each parameter of
the model (weights, gradients, both moments of Adam), and activations beside: four billion parameters barely
fit an 80 GB card. Shard a larger model over several cards (`accelerate config`), or name a smaller one.

    # one GPU, vLLM colocated with the trainer
    python examples/grpo.py --url http://127.0.0.1:8080 --vllm-mode colocate

    # two terminals: vLLM as a server on GPU 1, training on GPU 0
    CUDA_VISIBLE_DEVICES=1 VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen3-4B --port 8000 \\
        --weight-transfer-config '{"backend": "nccl"}' --logprobs-mode processed_logprobs --max-logprobs -1
    CUDA_VISIBLE_DEVICES=0 python examples/grpo.py --url http://127.0.0.1:8080 \\
        --vllm-mode server --vllm-server-base-url http://127.0.0.1:8000

    # several processes, one for each GPU
    accelerate launch --num_processes 4 examples/grpo.py --url http://127.0.0.1:8080 --vllm-mode colocate

    # an environment of the OpenReward catalog (needs OPENREWARD_API_KEY, and pip install openreward)
    python examples/grpo.py --target Eigent/SETA

    # no GPU: two steps of a tiny model, to see that everything is connected
    python examples/grpo.py --url http://127.0.0.1:8080 --smoke
"""

from __future__ import annotations

import argparse
from typing import Any

import smoke
from orsay_trl import EnvironmentSpec, GRPOTrainer
from trl import GRPOConfig


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="Qwen/Qwen3-4B", help="name on the model hub, or a folder")
    parser.add_argument(
        "--target",
        "--url",
        default="http://127.0.0.1:8080",
        help="URL of an ORS server, or owner/name in the OpenReward catalog",
    )
    parser.add_argument("--env-name", help="which environment of the server; its first by default")
    parser.add_argument("--split", default="train")
    parser.add_argument("--num-tasks", type=int, default=64, help="at most that many tasks of the split")

    parser.add_argument("--learning-rate", type=float, default=5e-7)
    parser.add_argument(
        "--per-device-train-batch-size", type=int, default=8, help="rollouts for each process"
    )
    parser.add_argument("--gradient-accumulation-steps", type=int, default=1)
    parser.add_argument("--num-generations", type=int, default=8, help="rollouts of each task: the group")
    parser.add_argument("--max-completion-length", type=int, default=2048, help="tokens of a whole rollout")
    parser.add_argument("--max-steps", type=int, default=100)
    parser.add_argument("--max-tool-calling-iterations", type=int, default=20)

    parser.add_argument("--vllm-mode", choices=("colocate", "server"), default="colocate")
    parser.add_argument("--vllm-server-base-url", default="http://127.0.0.1:8000")
    parser.add_argument(
        "--vllm-gpu-memory-utilization", type=float, default=0.15, help="colocated: vLLM's share"
    )

    parser.add_argument("--output-dir", default="grpo")
    parser.add_argument("--report-to", default="none", help="wandb, trackio, …; several with commas between")
    smoke.add_flag(parser)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    spec = EnvironmentSpec(args.target, env_name=args.env_name, num_tasks=args.num_tasks, split=args.split)
    if args.smoke:
        smoke.shrink(args, spec)
    settings: dict[str, Any] = {
        "output_dir": args.output_dir,
        "learning_rate": args.learning_rate,
        "per_device_train_batch_size": args.per_device_train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "num_generations": args.num_generations,
        "max_completion_length": args.max_completion_length,
        "max_steps": args.max_steps,
        "max_tool_calling_iterations": args.max_tool_calling_iterations,
        "chat_template_kwargs": {"enable_thinking": False},
        "log_completions": not args.smoke,
        "logging_steps": 1,
        "report_to": args.report_to.split(","),
        "use_vllm": True,
        "vllm_mode": args.vllm_mode,
    }
    if args.vllm_mode == "server":
        settings["vllm_server_base_url"] = args.vllm_server_base_url
    else:
        settings["vllm_gpu_memory_utilization"] = args.vllm_gpu_memory_utilization
    if args.smoke:
        settings |= smoke.SETTINGS

    trainer = GRPOTrainer(
        model=args.model,
        args=GRPOConfig(**settings),
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )
    trainer.train()
    if trainer.accelerator.is_main_process and not args.smoke:
        trainer.save_model()


if __name__ == "__main__":
    main()
