"""Training while workers and servers die: it goes on, and no reward is false."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from orsay_trl import EnvironmentSpec, TooManyFaults

from ..support.bridge_server import TRAINING, EnvServer, kill_worker, serve_environments

pytest.importorskip("trl", reason="needs the extra 'trl'")
from .players import ConcurrentScripted, PlainScripted, call, make_trainer
from .rolling import logged
from .test_trainer import turns_of, word_of

pytestmark = [pytest.mark.process, *TRAINING]

CLASSES = pytest.mark.parametrize("cls", [PlainScripted, ConcurrentScripted], ids=["trl", "ours"])


def earned(word: str) -> float:
    """What the script earns with a task: the mean of 1, its length, and 1 or 0 for the last call."""
    return (1.0 + len(word) + float(len(word) % 2)) / 3


def player(text: str) -> str:
    word = word_of(text)
    last = call("say", word=word if len(word) % 2 else "no")
    plan = [
        call("points", number=1),
        call("sleep", seconds=0.15),
        call("points", number=len(word)) + call("look"),
        last,
    ]
    turn = turns_of(text)
    return plan[turn] if turn < len(plan) else "I am done."


class Rewards:
    """A reward function that only watches: what each rollout was given, and whether it was lost."""

    __name__ = "watch"

    def __init__(self) -> None:
        self.seen: list[tuple[str, float | None, str | None, int]] = []

    def __call__(self, environments: Any, word: Any, **_: Any) -> list[None]:
        for environment, one in zip(environments, word, strict=True):
            episode = environment.episode
            self.seen.append((one, environment.reward, episode.fault, len(episode.retried)))
        return [None] * len(environments)

    def check(self) -> int:
        """Every reward is what was earned, and a lost rollout has none; returns how many were lost."""
        for word, reward, fault, _ in self.seen:
            if fault is None:
                assert reward == pytest.approx(earned(word)), word
            else:
                assert reward is None
        return sum(fault is not None for _, _, fault, _ in self.seen)


@contextmanager
def _meanwhile(work: Any) -> Iterator[threading.Event]:
    """Run ``work(stop)`` beside, and stop it at the end."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(60)


def _train(cls: type, folder: Path, spec: EnvironmentSpec, rewards: Rewards, **more: Any) -> Any:
    trainer = make_trainer(
        cls,
        folder,
        player=player,
        spec=spec,
        reward_funcs=[spec.reward_funcs, rewards],
        arguments={"max_tool_calling_iterations": 8},
        **more,
    )
    trainer.train()
    return trainer


@CLASSES
def test_training_goes_on_while_workers_are_killed(tmp_path: Path, cls: type) -> None:
    kills, steps = 0, 2 if cls is ConcurrentScripted else 1
    with serve_environments(tmp_path, "Words", workers=2) as env_server:
        spec = EnvironmentSpec(env_server.url, reward="mean", retries=2, max_fault_share=1.0)

        def kill(stop: threading.Event) -> None:
            nonlocal kills
            draw = random.Random(0)
            while kills < 6 and not stop.wait(0.05):  # often, so that no step is over before it is hit
                if kill_worker(env_server):
                    kills += 1
                    stop.wait(draw.uniform(0.2, 0.5))

        rewards = Rewards()
        with _meanwhile(kill):
            trainer = _train(cls, tmp_path, spec, rewards, batch=8, steps=steps)
        spec.close()
    assert len(rewards.seen) == 8 * steps
    lost = rewards.check()
    assert kills >= 2
    retries = sum(again for *_, again in rewards.seen)
    assert retries > 0, "the kills hit no rollout, so that nothing was shown"
    assert sum(logged(trainer, "env/faults")) * 8 == pytest.approx(lost)
    assert sum(logged(trainer, "env/retries")) * 8 == pytest.approx(retries)
    assert len(logged(trainer, "loss")) == steps


def test_lost_rollouts_are_counted_by_class(tmp_path: Path) -> None:
    with serve_environments(tmp_path, "Words") as env_server:
        spec = EnvironmentSpec(env_server.url, reward="mean", retries=0, max_fault_share=1.0)

        def kill(stop: threading.Event) -> None:
            while not stop.wait(0.05):
                if kill_worker(env_server):
                    stop.wait(0.4)

        rewards = Rewards()
        with _meanwhile(kill):
            trainer = _train(ConcurrentScripted, tmp_path, spec, rewards, batch=8, steps=2)
        spec.close()
    lost = rewards.check()
    assert lost > 0
    assert sum(logged(trainer, "env/faults")) * 8 == lost
    by_class = {
        name: 8 * value
        for entry in trainer.state.log_history
        for name, value in entry.items()
        if name.startswith("env/faults/")
    }
    assert set(by_class) <= {"env/faults/worker_lost", "env/faults/session_gone", "env/faults/shutdown"}


def test_training_goes_on_when_the_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    with serve_environments(tmp_path, "Words") as first:
        spec = EnvironmentSpec(first.url, reward="mean", max_fault_share=1.0)
        rewards = Rewards()
        starts = 0

        def restart(stop: threading.Event) -> None:
            nonlocal starts
            server: EnvServer = first
            managers: list[Any] = []
            known = 0
            try:
                while not stop.wait(0.02) and starts < 2:
                    begun = len(first.diary.lines("setup"))  # all servers write into one diary
                    if begun < known + 4:
                        continue  # kill one that has sessions
                    known = begun
                    server.process.signal(signal.SIGKILL)
                    server.process.wait()
                    again = serve_environments(tmp_path, "Words", port=first.port)
                    server = again.__enter__()
                    managers.append(again)
                    starts += 1
                stop.wait(100)
            finally:
                for manager in managers:
                    manager.__exit__(None, None, None)

        with _meanwhile(restart):
            trainer = _train(ConcurrentScripted, tmp_path, spec, rewards, batch=8, steps=4)
            spec.close()
    assert starts >= 1
    assert len(rewards.seen) == 32
    assert rewards.check() == 0, "two retries outlast a restart"
    assert sum(again for *_, again in rewards.seen) > 0
    assert sum(logged(trainer, "env/faults")) == 0


@CLASSES
def test_a_server_that_stays_away_stops_training_with_the_reason(tmp_path: Path, cls: type) -> None:
    with serve_environments(tmp_path, "Words") as env_server:
        spec = EnvironmentSpec(
            env_server.url, reward="mean", retries=0, request_tries=1, discover_task_tools=False, attach=False
        )
        rewards = Rewards()

        def kill(stop: threading.Event) -> None:
            while len(rewards.seen) < 4 and not stop.wait(0.01):
                pass
            env_server.process.signal(signal.SIGKILL)
            env_server.process.wait()

        with (
            _meanwhile(kill),
            pytest.raises(TooManyFaults, match=r"4 of 4 .*4 connection_lost.*Connect") as caught,
        ):
            _train(cls, tmp_path, spec, rewards, batch=4, steps=50)
        began = time.monotonic()
        spec.close()
        assert time.monotonic() - began < 40
    assert "max_fault_share" in str(caught.value)
    rewards.check()


def test_a_worker_that_hangs_is_a_fault_and_not_a_reward(tmp_path: Path) -> None:
    """A process that is stopped answers nothing; the spec's own limit ends the wait."""
    with serve_environments(tmp_path, "Words") as env_server:
        spec = EnvironmentSpec(
            env_server.url, reward="mean", retries=0, call_timeout_s=3.0, discover_task_tools=False
        )
        environment: Any = spec.environment_factory()
        environment.reset(task_split="train", task_index=0)
        environment.points(number=5)
        environment.pid()
        pid = environment.metadata[-1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            environment.points(number=5)
            assert (environment.episode.fault, environment.reward) in (
                ("time_limit", None),
                ("worker_lost", None),
            )
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        spec.close()
