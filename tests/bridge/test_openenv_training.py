"""OpenEnv's own echo server, hosted by Orsay, trains by both paths; its reward is the length of the text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")
pytest.importorskip("openenv", reason="needs the extra 'openenv'")

from orsay_trl import EnvironmentSpec, vllm_rollout_func
from orsay_trl.testing import tiny_model as tiny

from ..support.bridge_server import TRAINING
from ..support.server_process import server
from ..support.servers import WITH_OPENENV
from .parrot import Parrot
from .players import ConcurrentScripted, call, make_trainer
from .rolling import ScriptedSampler, grpo, logged, smallest

pytestmark = [
    pytest.mark.process,
    *TRAINING,
    pytest.mark.timeout(300),
]  # the import of openenv alone takes seconds

LENGTHS = (2, 4, 6, 8)


class Talker:
    """Says texts of different lengths, each in one call, and nothing more."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def __call__(self, text: str) -> str:
        if "<tool_response>" in text:
            return "Enough."
        length = LENGTHS[len(self.sent) % len(LENGTHS)]
        self.sent.append(length)
        return call("step", message="x" * length)

    def reward(self) -> float:
        """The mean reward of all that was sent: a tenth of the length, 1 at most, as OpenEnv's echo pays."""
        return sum(self.sent) / len(self.sent) / 10


@pytest.fixture(scope="module")
def spec(parrot: Parrot) -> Iterator[EnvironmentSpec]:
    with server(f"openenv:{parrot.url}?max_steps=1", imported=WITH_OPENENV) as hosted:
        made = EnvironmentSpec(hosted.url, num_tasks=4)
        yield made
        made.close()


def test_by_environment_factory(spec: EnvironmentSpec, tmp_path: Path) -> None:
    talker = Talker()
    trainer = make_trainer(ConcurrentScripted, tmp_path, player=talker, spec=spec, batch=4, generations=2)
    trainer.train()
    assert len(talker.sent) == 4
    assert logged_once(trainer, "reward") == pytest.approx(talker.reward())
    assert logged_once(trainer, "env/faults") == 0 and logged_once(trainer, "env/finished") == 1
    assert math.isfinite(logged_once(trainer, "loss")) and logged_once(trainer, "grad_norm") > 0


def test_by_rollout_function(spec: EnvironmentSpec, tmp_path: Path) -> None:
    talker = Talker()
    tokenizer: Any = tiny.tokenizer()
    model = smallest(tokenizer)
    trainer = grpo(
        tmp_path,
        model=model,
        tokenizer=tokenizer,
        steps=1,
        train_dataset=spec.rollout_dataset,
        rollout_func=vllm_rollout_func(spec, sampler=ScriptedSampler(model, tokenizer, talker)),
        reward_funcs=spec.reward_funcs,
    )
    trainer.train()
    assert len(talker.sent) == 4
    assert logged_once(trainer, "reward") == pytest.approx(talker.reward())
    assert logged_once(trainer, "rollout/stop/finished") == 1
    assert logged_once(trainer, "sampling/parity") < 1e-3
    assert math.isfinite(logged_once(trainer, "loss")) and logged_once(trainer, "grad_norm") > 0


def logged_once(trainer: Any, name: str) -> float:
    (value,) = logged(trainer, name)
    return value
