"""Each reward, advantage and mask sits at its own completion, where the loss sees it, in trainings."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from orsay_trl import EnvironmentSpec

from tests.support.bridge_server import TRAINING, EnvServer, serve_environments

pytest.importorskip("trl", reason="needs the extra 'trl'")
from datasets import Dataset
from orsay_trl.rollout.rollout_func import reward_func

from tests.bridge.players import ConcurrentScripted, PlainScripted, call, make_trainer

pytestmark = [pytest.mark.process, *TRAINING]

WEIGHTS = (1.0, 0.5, 0.25)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(tmp_path_factory.mktemp("groups"), "Numbered", "Single") as found:
        yield found


@pytest.fixture
def env_server(server: EnvServer) -> EnvServer:
    """The server with an empty diary."""
    server.diary.clear()
    return server


def third(completions: Sequence[Any], **_: Any) -> list[float | None]:
    """A reward function of one's own, which knows the completion alone and has no opinion of some."""
    return [_third(_number_in(str(completion))) for completion in completions]


def _third(number: int) -> float | None:
    return None if number % 3 == 0 else float(number % 5)


def _number_in(text: str) -> int:
    [number] = set(re.findall(r"number\W+(\d+)", text))
    return int(number)


class Recorded:
    """Before a trainer among the bases: what it generated, by rollout, and what its loss then saw."""

    lost_places: Sequence[Sequence[int]]
    batches: list[list[int]]
    seen: list[dict[str, Any]]

    def begin(self, lost_places: Sequence[Sequence[int]]) -> None:
        """``lost_places`` are the places that faults take, batch by batch."""
        self.lost_places = lost_places
        self.batches, self.seen = [], []
        self.lost: set[int] = set()
        self.sizes: list[int] = []
        self.tasks: dict[int, int] = {}

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.batches.append([])
        self.sizes.append(self.num_generations if self.model.training else self.num_generations_eval)  # type: ignore[attr-defined]
        return super()._generate_and_score_completions(inputs)  # type: ignore[misc]

    def say(self, text: str) -> str:
        """The next rollout gives its number, or fails; in its second turn it is done."""
        if "<tool_response>" in text:
            return "Done."
        batch, number = self.batches[-1], 100 + sum(map(len, self.batches))
        plan = self.lost_places[(len(self.batches) - 1) % len(self.lost_places)]
        fails = len(batch) in plan
        batch.append(number)
        self.tasks[number] = int(re.findall(r"Task (\d+):", text)[-1])
        if fails:
            self.lost.add(number)
        return call("fail" if fails else "give", number=number)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        tokenizer = self.processing_class  # type: ignore[attr-defined]
        for place, ids in enumerate(inputs["completion_ids"]):
            prompt = tokenizer.decode(inputs["prompt_ids"][place])
            mask = inputs["completion_mask"][place] * inputs["tool_mask"][place]
            self.seen.append(
                {
                    "mode": "train" if self.model.training else "eval",  # type: ignore[attr-defined]
                    "task": int(re.findall(r"Task (\d+):", prompt)[-1]),
                    "number": _number_in(tokenizer.decode(ids)),
                    "learned": tokenizer.decode(ids[mask.bool()]),
                    "advantage": float(inputs["advantages"][place]),
                }
            )
        return super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[misc]


class PlainRecorded(Recorded, PlainScripted):
    """TRL's."""


class ConcurrentRecorded(Recorded, ConcurrentScripted):
    """Ours."""


def wanted_rewards(trainer: Any, group: Sequence[int]) -> list[float | None]:
    """What the rollouts of a group are worth: ours leaves out those that were lost, whatever others say."""
    kept = [number for number in group if number not in trainer.lost]
    found: list[float | None] = []
    for number in group:
        parts: list[float | None] = [None, None, _third(number)]
        if number in kept:
            parts[0] = trainer.tasks[number] + (number % 10) / 16
            parts[1] = 1000.0 * len(kept) + (sum(kept) - number) / 64
        elif isinstance(trainer, ConcurrentRecorded):
            parts[2] = None
        given = [weight * part for weight, part in zip(WEIGHTS, parts, strict=True) if part is not None]
        found.append(sum(given) if given else None)
    return found


def wanted_advantages(trainer: Any, numbers: Sequence[int], size: int) -> dict[int, float]:
    """By the definition of GRPO, for a batch in the order in which it was generated."""
    found: dict[int, float] = {}
    for at in range(0, len(numbers), size):
        group = numbers[at : at + size]
        assert len({trainer.tasks[number] for number in group}) == 1, "TRL's own order is another one"
        rewards = wanted_rewards(trainer, group)
        scored = [reward for reward in rewards if reward is not None]
        mean = statistics.fmean(scored) if scored else 0.0
        spread = statistics.stdev(scored) if len(scored) > 1 else 0.0
        for number, reward in zip(group, rewards, strict=True):
            found[number] = 0.0 if reward is None else (reward - mean) / (spread + 1e-4)
    return found


LOST = [
    [],
    [0],  # the first of a group, and of the batch
    [1, 2],  # in the middle
    [4, 5, 6, 7],  # a whole group
    [15],  # the last
    [0, 5, 10, 15],  # one of each group
    [0, 1, 2, 3],  # the first group
    [12, 13, 14, 15, 3],
]
RUNS: dict[str, dict[str, Any]] = {
    "small batches, each used twice": {
        "per_device_train_batch_size": 4,
        "steps_per_generation": 4,
        "gradient_accumulation_steps": 2,
        "num_iterations": 2,
        "max_steps": 12,
        "eval_steps": 6,
    },
    "a new batch for each step, not shuffled": {
        "per_device_train_batch_size": 16,
        "max_steps": 8,
        "eval_steps": 4,
        "shuffle_dataset": False,
    },
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("cls", [PlainRecorded, ConcurrentRecorded], ids=["trl", "ours"])
def test_every_advantage_and_mask_is_that_of_its_completion(
    env_server: EnvServer, tmp_path: Path, cls: type, name: str
) -> None:
    specs = [
        EnvironmentSpec(
            env_server.url,
            env_name=which,
            attach=False,
            max_fault_share=1,
            discover_task_tools=False,
            retries=0,
        )
        for which in ("Numbered", "Single")
    ]
    mixture = EnvironmentSpec.combine(*specs, names=["many", "one"], weights=[1, 2])
    settings = RUNS[name]
    trainer = make_trainer(
        cls,
        tmp_path,
        player=lambda text: trainer.say(text),
        spec=mixture,
        generations=4,
        batch=settings["per_device_train_batch_size"],
        steps=settings["max_steps"],
        reward_funcs=[mixture.reward_funcs, mixture.group_reward, third],
        eval_dataset=mixture.eval_dataset,
        arguments={
            **settings,
            "eval_strategy": "steps",
            "num_generations_eval": 3,
            "per_device_eval_batch_size": 6,
            "reward_weights": list(WEIGHTS),
            "loss_type": "grpo",
        },
    )
    trainer.begin(LOST)
    trainer.train()
    mixture.close()

    batches = list(zip(trainer.batches, trainer.sizes, strict=True))
    assert {(len(numbers), size) for numbers, size in batches} == {(16, 4), (6, 3), (3, 3)}
    # Two groups in a row played one task: only their places say where the first one ends.
    edges = [
        (numbers[at - 1], numbers[at]) for numbers, size in batches for at in range(size, len(numbers), size)
    ]
    assert any(trainer.tasks[before] == trainer.tasks[after] for before, after in edges)

    compared = [line["numbers"] for line in env_server.diary.lines("numbers")]
    groups = [numbers[at : at + size] for numbers, size in batches for at in range(0, len(numbers), size)]
    kept = [[number for number in group if number not in trainer.lost] for group in groups]
    assert compared == [group for group in kept if group]

    wanted = {
        number: advantage
        for numbers, size in batches
        for number, advantage in wanted_advantages(trainer, numbers, size).items()
    }
    for row in trainer.seen:
        number = row["number"]
        assert row["task"] == trainer.tasks[number]
        assert row["advantage"] == pytest.approx(wanted[number], rel=1e-3, abs=1e-3), row
        if number in trainer.lost and cls is ConcurrentRecorded:
            assert row["learned"] == ""
            assert row["advantage"] == 0
        else:
            assert f'"number": {number}' in row["learned"]
            assert "taken" not in row["learned"]
    times = {"train": settings.get("num_iterations", 1), "eval": 1}
    for mode, size in (("train", 4), ("eval", 3)):
        seen = sorted(row["number"] for row in trainer.seen if row["mode"] == mode)
        made = [number for numbers, of in batches if of == size for number in numbers]
        assert seen == sorted(made * times[mode])

    logs = trainer.state.log_history
    for prefix, size in (("", 4), ("eval_", 3)):
        means = [entry[f"{prefix}env/one/reward"] for entry in logs if f"{prefix}env/one/reward" in entry]
        low = 50 if size == 4 else 150
        assert means and all(low <= mean < low + 1 for mean in means)
    assert all(math.isfinite(entry["loss"]) for entry in logs if "loss" in entry)


def test_a_rollout_function_keeps_what_it_lost_out_of_the_mean_too(tmp_path: Path) -> None:
    """Whatever another reward function says of it; by our trainer, since TRL's does not ask."""

    def roll(prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        tokenizer = trainer.processing_class
        ids = [tokenizer(f"answer {place}")["input_ids"] for place in range(len(prompts))]
        lost = [place in (1, 6) for place in range(len(prompts))]
        return {
            "prompt_ids": [tokenizer("question")["input_ids"]] * len(prompts),
            "completion_ids": ids,
            "logprobs": [[-1.0] * len(each) for each in ids],
            "env_mask": [[0 if gone else 1] * len(each) for gone, each in zip(lost, ids, strict=True)],
            "env_reward": [None if gone else float(place) for place, gone in enumerate(lost)],
            "rollout_id": [f"{place}" for place in range(len(prompts))],
            "fault": ["worker_lost" if gone else None for gone in lost],
        }

    def length(completions: Sequence[Any], **_: Any) -> list[float]:
        return [1000.0] * len(completions)

    class Kept(ConcurrentScripted):
        """Keeps what a batch came to, before it is shuffled."""

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            self.__dict__.setdefault("outputs", []).append(output)
            return output

    trainer = make_trainer(
        Kept,
        tmp_path,
        player=str,
        batch=8,
        generations=4,
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "question"}]}] * 2),
        reward_funcs=[reward_func, length],
        rollout_func=roll,
    )
    trainer.train()
    [advantages] = [output["advantages"].tolist() for output in trainer.outputs]
    for at, lost in ((0, 1), (4, 6)):
        kept = [place for place in range(at, at + 4) if place != lost]
        middle, spread = statistics.fmean(kept), statistics.stdev(kept)
        for place in kept:
            assert advantages[place] == pytest.approx((place - middle) / spread, abs=1e-3)
        assert advantages[lost] == 0
