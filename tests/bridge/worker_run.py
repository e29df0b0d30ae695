"""TRL's asynchronous rollout worker with our environments, without a trainer; for ``test_async_grpo.py``.

    python -m tests.bridge.worker_run URL FOLDER VLLM_URL --groups N [--max-fault-share S]

Prints the rollouts that it made as JSON, or the error that the trainer would see.
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

GENERATIONS = 4
LIMIT_S = 80.0


def main() -> None:
    import smoke_async
    from accelerate import PartialState

    PartialState()  # TRL's loggers ask for it
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("vllm_server_base_url")
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--max-fault-share", type=float, default=1.0)
    args = parser.parse_args()
    specs = [
        EnvironmentSpec(
            args.url, env_name=name, retries=0, call_timeout_s=0.3, max_fault_share=args.max_fault_share
        )
        for name in ("draw", "lottery")
    ]
    settings = {
        "num_generations": GENERATIONS,
        "max_inflight_tasks": 6,
        "queue_maxsize": 64,
        "max_completion_length": 64,
        "max_tool_calling_iterations": 2,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    mixture: Any = EnvironmentSpec.combine(*specs, names=["draw", "lottery"])
    worker = smoke_async.slots(args, mixture, settings)["rollout_worker"]
    found: dict[str, Any] = {"samples": [], "error": None}
    deadline = time.monotonic() + LIMIT_S
    try:
        worker.start()
        while time.monotonic() < deadline and len(found["samples"]) < args.groups * GENERATIONS:
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
        found["error"] = f"{exc} {exc.__cause__}"
    finally:
        worker.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
