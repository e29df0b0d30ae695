"""Uses TRL's released OpenRewardSpec as a trainer does: ``python trl_spec.py PLANS``.

PLANS is a JSON list: ``url``, ``num_tasks``, ``split``, and ``calls``, for each episode a list of
``[tool, arguments]``. An argument ``"$name"`` stands for that column of the row. Prints one JSON list.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from importlib import import_module
from typing import Any


def train(plan: dict[str, Any]) -> dict[str, Any]:
    url = plan["url"]
    os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = url
    spec = import_module("trl.experimental.openreward").OpenRewardSpec(
        url, num_tasks=plan["num_tasks"], split=plan["split"], env_name=plan.get("env_name")
    )
    dataset = spec.train_dataset
    make = spec.environment_factory
    environments: list[Any] = []
    episodes = []
    for number, planned in enumerate(plan["calls"]):
        row = dataset[number]
        environment = make()
        prompt = environment.reset(**row)
        texts = []
        for name, arguments in planned:
            filled = {
                key: row[value[1:]] if isinstance(value, str) and value.startswith("$") else value
                for key, value in arguments.items()
            }
            texts.append(getattr(environment, name)(**filled))
        episodes.append(
            {
                "prompt": prompt,
                "texts": texts,
                "rewards": environment.rewards,
                "finished": environment.finished,
                "metadata": environment.metadata,
            }
        )
        environments.append(environment)
    scores = spec.reward_funcs(environments)
    bound = {
        name: {"signature": str(inspect.signature(method)), "doc": method.__doc__}
        for name, method in inspect.getmembers(make(), inspect.ismethod)
        if not name.startswith("_") and name != "reset"
    }
    for environment in environments:
        environment._close()
    report = {"columns": dataset.column_names, "rows": list(dataset), "tools": bound}
    return {**report, "episodes": episodes, "scores": scores}


def main() -> int:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    print(json.dumps([train(plan) for plan in json.loads(sys.argv[1])]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
