"""TRL's asynchronous rollout worker with our environments, without a trainer; for ``test_async_grpo.py``.

    python -m tests.bridge.worker_run URL FOLDER NAME VLLM_URL

Runs two workers, the second of which may lose next to nothing. Prints the rollouts of each as JSON, and the
error that the trainer would see.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import time
from pathlib import Path
from typing import Any

from orsay_trl import EnvironmentSpec

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

GENERATIONS, GROUPS = 4, 8
LIMIT_S = 45.0
CAUSE_LIMIT_S = 10.0
SETTINGS = {
    "num_generations": GENERATIONS,
    "max_inflight_tasks": 6,
    "queue_maxsize": 64,
    "max_completion_length": 64,
    "max_tool_calling_iterations": 2,
    "chat_template_kwargs": {"enable_thinking": False},
}


def run(args: argparse.Namespace, max_fault_share: float) -> dict[str, Any]:
    """Rollouts of one worker, until there are enough or it failed."""
    import smoke_async

    names = ["draw", "lottery"]
    specs = [
        EnvironmentSpec(
            args.url, env_name=name, retries=0, call_timeout_s=1.5, max_fault_share=max_fault_share
        )
        for name in names
    ]
    mixture: Any = EnvironmentSpec.combine(*specs, names=names)
    worker = smoke_async.slots(args, mixture, SETTINGS)["rollout_worker"]
    worker._loop_kwargs["model_name"] = args.name
    found: dict[str, Any] = {"samples": [], "error": None}
    deadline = time.monotonic() + LIMIT_S
    try:
        worker.start()
        while time.monotonic() < deadline and len(found["samples"]) < GROUPS * GENERATIONS:
            worker.check_health(60)
            try:
                sample = worker.rollout_buffer.get(timeout=0.2)
            except queue.Empty:
                continue
            found["samples"].append(
                {
                    "group": sample.group_id,
                    "prompt": sample.prompt[-1]["content"],
                    "completion": sample.completion,
                    "advantage": sample.advantage,
                    "metrics": sample.metrics,
                    "tokens": int(sample.completion_mask.sum()),
                }
            )
    except RuntimeError as exc:
        found["error"] = _with_cause(worker, exc)
    finally:
        worker.stop()
    return found


def _with_cause(worker: Any, error: BaseException) -> str:
    """The error and its cause, which TRL's queue may bring later than the event that something failed."""
    end = time.monotonic() + CAUSE_LIMIT_S
    while error.__cause__ is None and time.monotonic() < end:
        time.sleep(0.1)
        try:
            worker.check_health(60)
        except RuntimeError as exc:
            error = exc
    return f"{error} {error.__cause__}"


def main() -> None:
    from accelerate import PartialState

    PartialState()  # TRL's loggers ask for it
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("model", help="folder of the tokenizer")
    parser.add_argument("name", help="the model's name on the server")
    parser.add_argument("vllm_server_base_url")
    args = parser.parse_args()
    print(json.dumps([run(args, max_fault_share=1.0), run(args, max_fault_share=0.05)]))


if __name__ == "__main__":
    main()
