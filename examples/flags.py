"""Shared flags of the smaller examples, and their arguments of ``GRPOConfig``; ``grpo.py`` has its own."""

from __future__ import annotations

import argparse
from typing import Any

import smoke

__all__ = ["parser", "settings"]


def parser(description: str | None) -> argparse.ArgumentParser:
    """Parser for an example; ``description`` is its docstring."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--model", default="Qwen/Qwen3-4B", help="name on the model hub, or a folder")
    made.add_argument("--url", default="http://127.0.0.1:8080", help="an ORS server")
    made.add_argument("--env-name", help="which environment of the server; its first by default")
    made.add_argument("--num-tasks", type=int, default=64, help="at most that many tasks of the split")
    made.add_argument("--learning-rate", type=float, default=1e-6)
    made.add_argument("--per-device-train-batch-size", type=int, default=8, help="rollouts for each process")
    made.add_argument("--num-generations", type=int, default=8, help="rollouts of each task: the group")
    made.add_argument("--max-completion-length", type=int, default=2048, help="tokens of a whole rollout")
    made.add_argument("--max-tool-calling-iterations", type=int, default=20)
    made.add_argument("--max-steps", type=int, default=100)
    made.add_argument("--vllm-mode", choices=("colocate", "server"), default="colocate")
    made.add_argument("--vllm-server-base-url", default="http://127.0.0.1:8000")
    made.add_argument("--output-dir", default="trained")
    smoke.add_flag(made)
    return made


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Arguments of ``GRPOConfig``."""
    found: dict[str, Any] = {
        name: getattr(args, name)
        for name in (
            "output_dir",
            "learning_rate",
            "per_device_train_batch_size",
            "num_generations",
            "max_completion_length",
            "max_tool_calling_iterations",
            "max_steps",
        )
    }
    found |= {
        "chat_template_kwargs": {"enable_thinking": False},
        "logging_steps": 1,
        "report_to": "none",
        "use_vllm": True,
        "vllm_mode": args.vllm_mode,
    }
    if args.vllm_mode == "server":
        found["vllm_server_base_url"] = args.vllm_server_base_url
    else:
        found["vllm_gpu_memory_utilization"] = 0.15
    return {**found, **smoke.SETTINGS} if args.smoke else found
