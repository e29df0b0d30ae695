"""The command line of ``scripts/train-demo``."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import warnings
from pathlib import Path

__all__ = ["main"]

NO_GPU = 2
DESCRIPTION = """
Make a tiny model, serve an environment, and train the one on the other with GRPO; on a CPU, without a
model hub, in minutes. Held-out tasks tell before and after what the model can do.
"""
EXAMPLES = """
examples:
  scripts/train-demo                       # minutes; a curve in the terminal, a report in train-demo/
  scripts/train-demo --seed 1 --out /tmp/one
  scripts/train-demo --vllm                # the same, sampling from a vLLM server (installed once, 3.5 GB)
  scripts/train-demo --smoke               # one batch, to see that everything is in place
  scripts/train-demo --gpu                 # how fast a larger model goes on a GPU

The exit code is 0 when the model learned, 1 when it did not, 2 for --gpu without a GPU.
"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(
        prog="scripts/train-demo",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--seed", type=int, default=0, help="of the model, the warm-up and the training (0)")
    found.add_argument("--steps", type=int, default=120, help="optimizer steps, four on each batch (120)")
    found.add_argument(
        "--out", type=Path, default=Path("train-demo"), help="folder of the report (train-demo)"
    )
    found.add_argument("--vllm", action="store_true", help="train by vllm_rollout_func, sampling from vLLM")
    found.add_argument("--smoke", action="store_true", help="a run of seconds, which teaches nothing")
    found.add_argument("--gpu", action="store_true", help="measure a larger random model on a GPU")
    found.add_argument("--vllm-python", type=Path, help=argparse.SUPPRESS)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run and report; the exit code is 0 if the model learned."""
    options = parser()
    args = options.parse_args(arguments)
    if args.steps < 1:
        options.error("--steps must be at least 1")
    if args.vllm and args.vllm_python is None:
        options.error(
            "--vllm needs vLLM in a virtual environment of its own: start this by scripts/train-demo"
        )
    _quiet()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the servers must not outlive this process

    # After the command line was read: these take seconds to import.
    from transformers.utils.logging import disable_progress_bar

    from . import gpu
    from .report import write
    from .run import Plan, run
    from .screen import Screen

    disable_progress_bar()
    screen = Screen()
    if args.gpu:
        if (missing := gpu.missing()) is not None:
            print(missing, file=sys.stderr)
            return NO_GPU
        gpu.measure(args.seed, args.out, screen)
        return 0
    plan = Plan(args.seed, args.steps, vllm_python=args.vllm_python if args.vllm else None)
    if args.smoke:
        plan = Plan(args.seed, 4, 40, 40, evaluations=1, vllm_python=plan.vllm_python)
    report = run(plan, args.out, screen)
    write(report, args.out)
    screen.say("")
    screen.table(report.rows())
    screen.say(f"\n{args.out / 'report.md'} has the details, {args.out / 'reward.png'} the curve.")
    if not args.smoke and not report.learned:
        screen.say("This run does not show that the model learned.", style="red")
        return 1
    return 0


def _quiet() -> None:
    """Silence libraries, so that the curve has the screen; errors still raise."""
    os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|trl")
    warnings.filterwarnings("ignore", category=UserWarning, module="transformers|trl|train_demo")
    logging.getLogger("httpx").setLevel(logging.WARNING)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
