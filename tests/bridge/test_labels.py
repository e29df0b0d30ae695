"""What a training run calls its sessions, in the journal of the server: run, step, rollout and attempt."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from orsay_trl import EnvironmentSpec, Episode
from orsay_trl.trainer.run_context import run_name

from ..support.bridge_server import TRAINING, EnvServer, kill_worker, serve_environments

pytest.importorskip("trl", reason="needs the extra 'trl'")
from orsay_trl.rollout.rollout_func import reward_func, vllm_rollout_func

from .players import ConcurrentScripted, PlainScripted, call, make_trainer
from .rolling import ScriptedSampler, grpo

pytestmark = [pytest.mark.process, *TRAINING]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def env_server(tmp_path: Path, journal: Path) -> Iterator[EnvServer]:
    with serve_environments(tmp_path, "Words", journal=str(journal)) as found:
        yield found


def recorded(env_server: EnvServer, journal: Path) -> list[dict[str, Any]]:
    """The sessions in the journal, in order; the server has ended then."""
    env_server.process.end()
    connection = sqlite3.connect(journal)
    try:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM sessions ORDER BY id")]
    finally:
        connection.close()


def says_it(text: str) -> str:
    words = re.findall(r"Say the word: (\w+)\.", text)
    return call("say", word=words[-1]) if text.count("<|im_start|>assistant") == 1 else "I am done."


@pytest.mark.parametrize("cls", [PlainScripted, ConcurrentScripted], ids=["trl", "ours"])
def test_a_trainer_labels_its_sessions_by_itself(
    env_server: EnvServer, journal: Path, tmp_path: Path, cls: type
) -> None:
    spec = EnvironmentSpec(env_server.url, attach=False, discover_task_tools=False)
    arguments = {"output_dir": str(tmp_path / "words-at-night")}
    trainer = make_trainer(cls, tmp_path, player=says_it, spec=spec, steps=2, arguments=arguments)
    trainer.train()
    spec.close()
    rows = recorded(env_server, journal)
    assert {row["run"] for row in rows} == {"words-at-night"}
    assert Counter(row["step"] for row in rows) == {0: 4, 1: 4}
    assert len({row["rollout"] for row in rows}) == 8
    shown = set(trainer._logs["extra"]["rollout_id"])  # of TRL's completions table
    assert {row["rollout"] for row in rows if row["step"] == 1} == shown
    assert len({row["trace"] for row in rows}) == 8


def test_a_rollout_function_labels_its_sessions_by_itself(
    env_server: EnvServer, journal: Path, tmp_path: Path
) -> None:
    spec = EnvironmentSpec(env_server.url, num_tasks=4, discover_task_tools=False)
    trainer = grpo(
        tmp_path,
        arguments={"run_name": "by tokens"},
        train_dataset=spec.rollout_dataset,
        reward_funcs=reward_func,
    )
    sampler = ScriptedSampler(trainer.model, trainer.processing_class, says_it)
    play = vllm_rollout_func(spec, sampler=sampler)
    prompts = [row["prompt"] for row in spec.rollout_dataset]
    ids = []
    for step in (0, 7):
        trainer.state.global_step = step
        ids.append(play(prompts, trainer)["rollout_id"])
    spec.close()
    rows = recorded(env_server, journal)
    assert {row["run"] for row in rows} == {"by tokens"}
    for step, shown in zip((0, 7), ids, strict=True):
        assert sorted(row["rollout"] for row in rows if row["step"] == step) == sorted(shown)


def test_a_rollout_that_is_played_again_keeps_its_id_and_counts_its_attempts(
    env_server: EnvServer, journal: Path
) -> None:
    spec = EnvironmentSpec(env_server.url, run="mine", discover_task_tools=False)

    async def play(episode: Episode) -> list[str]:
        await episode.open()
        traces = [episode.trace]
        assert kill_worker(env_server)
        async with asyncio.timeout(60):
            while not env_server.process.events("worker_lost"):
                await asyncio.sleep(0.02)
        assert (await episode.call("say", {"word": "apple"})).text == "right"
        traces.append(episode.trace)
        await episode.close()
        return traces

    episode = spec.episode({"task_split": "train", "task_index": 0})
    traces = spec.run(play(episode))
    spec.close()
    assert episode.retried == ["worker_lost"]
    first, second = recorded(env_server, journal)
    assert first["rollout"] == second["rollout"] == episode.id
    assert (first["run"], second["run"]) == ("mine", "mine")
    assert first["labels"] is None and json.loads(second["labels"]) == {"attempt": 2}
    assert [first["trace"], second["trace"]] == traces


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"run_name": "night", "output_dir": "/runs/words"}, "night"),
        ({"run_name": None, "output_dir": "/runs/words/"}, "words"),
        ({"run_name": "/runs/words", "output_dir": "/runs/words"}, "words"),
        ({"run_name": None, "output_dir": "trainer_output"}, "Qwen3-4B 2031-05-06"),
        ({}, "Qwen3-4B 2031-05-06"),
    ],
)
def test_what_a_run_is_called(arguments: dict[str, Any], name: str) -> None:
    model = SimpleNamespace(config=SimpleNamespace(_name_or_path="Qwen/Qwen3-4B", model_type="qwen3"))
    assert run_name(SimpleNamespace(**arguments), model, "2031-05-06") == name
