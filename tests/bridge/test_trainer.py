"""A real GRPOTrainer, TRL's and ours, with a model that follows a script."""

from __future__ import annotations

import copy
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from orsay_trl import EnvironmentSpec

from ..support.bridge_server import TRAINING, EnvServer, serve_environments
from ..support.trainers import trainers

pytest.importorskip("trl", reason="needs the extra 'trl'")
import torch
import trl
from orsay_trl import GRPOTrainer, attach
from orsay_trl.testing import tiny_model as tiny
from orsay_trl.trainer.concurrent import ConcurrentEnvironments, attach_quietly

from .players import ConcurrentScripted, PlainScripted, Scripted, call, make_trainer
from .rolling import logged, smallest

pytestmark = [pytest.mark.process, *TRAINING]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    names = ("Words", "Judged", "Unseeded", "Broken")
    with serve_environments(tmp_path_factory.mktemp("trainer"), *names) as found:
        yield found


@pytest.fixture
def env_server(server: EnvServer) -> EnvServer:
    """The server with an empty diary."""
    server.diary.clear()
    return server


@pytest.fixture
def spec(env_server: EnvServer) -> Iterator[EnvironmentSpec]:
    made = EnvironmentSpec(env_server.url, attach=False, discover_task_tools=False)
    yield made
    made.close()


class Watching:
    """Before a trainer among the bases: keeps what a batch came to."""

    outputs: list[dict[str, Any]]
    losses: list[dict[str, Any]]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        self.__dict__.setdefault("outputs", []).append(copy.deepcopy(output))
        return output


class PlainWatched(Watching, PlainScripted):
    """TRL's."""


class ConcurrentWatched(Watching, ConcurrentScripted):
    """Ours."""


WATCHED = {"trl": PlainWatched, "ours": ConcurrentWatched}


def word_of(text: str) -> str:
    """The word of the task; "" for a rollout that a fault left without a prompt."""
    return str(["", *re.findall(r"Say the word: (\w+)", text)][-1])


def turns_of(text: str) -> int:
    """How many turns were played before this one."""
    return text.count("<|im_start|>assistant") - 1


def says_it(text: str) -> str:
    """Looks, says a wrong word, then the right one, then chats."""
    plan = [call("look"), call("say", word="nonsense"), call("say", word=word_of(text)), "I am done."]
    return plan[min(turns_of(text), 3)]


# Same results


def by_place(text: str) -> str:
    """Plays each task in a way of its own: some finish, some give up, some call what there is not."""
    word, turn = word_of(text), turns_of(text)
    right = call("say", word=word)
    plans = {
        "apple": [right],
        "pear": [call("look"), right],
        "plum": [call("say", word="no"), call("look"), "I give up."],
        "fig": ["I do not play."],
        "cherry": [call("fly"), call("look", where="up") + "\n" + call("say", word="no"), right],
        "lime": ['<tool_call>\n{"name": "say", "argu\n</tool_call>', right],
        "quince": ['<tool_call>\n{"name": "say", "arguments": "none"}\n</tool_call>', right],
        "grape": [call("points", number=0.5) + call("points", number=0.25), "Enough."],
    }
    plan = plans[word]
    return plan[turn] if turn < len(plan) else "I am done."


def _batch(trainer: Any) -> list[Any]:
    """What a rollout was, for each: sampled and seen tokens, mask, reward. In the order of the batch."""
    [output] = trainer.outputs
    rows = []
    for ids, mask, tool in zip(
        output["completion_ids"], output["completion_mask"], output["tool_mask"], strict=True
    ):
        length = int(mask.sum())
        rows.append((ids[:length].tolist(), tool[:length].tolist()))
    return rows


def _run(cls: type, folder: Path, spec: EnvironmentSpec, player: Callable[[str], str], **more: Any) -> Any:
    trainer = make_trainer(cls, folder, player=player, spec=spec, **more)
    trainer.train()
    return trainer


@dataclass(frozen=True)
class Trained:
    """A trainer after its step, and the calls that reached the environments."""

    trainer: Any
    calls: list[dict[str, Any]]


@pytest.fixture(scope="module")
def trained(server: EnvServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """The same batch in TRL's trainer and in ours, each task played in its own way."""
    found = {}
    for name, cls in WATCHED.items():
        server.diary.clear()
        spec = EnvironmentSpec(server.url, attach=False, discover_task_tools=False)
        trainer = _run(cls, tmp_path_factory.mktemp(name), spec, by_place, batch=16)
        spec.close()
        found[name] = Trained(trainer, server.diary.lines("call"))
    return found


def test_ours_samples_scores_and_masks_as_trls(trained: dict[str, Trained]) -> None:
    found = {name: each.trainer for name, each in trained.items()}
    theirs, ours = _batch(found["trl"]), _batch(found["ours"])
    assert len(ours) == len(theirs) == 16
    shorter = 0
    for (ids, mask), (own_ids, own_mask) in zip(theirs, ours, strict=True):
        assert ids[: len(own_ids)] == own_ids
        assert mask[: len(own_mask)] == own_mask
        assert own_mask[-1] == 1, "a rollout ends with what the model said"
        shorter += len(own_ids) < len(ids)
    assert shorter == 2 * 4, "of eight tasks four are finished by a call"
    for name in ("reward", "reward_std", "rewards/environment_reward/mean", "tools/call_frequency"):
        assert logged(found["ours"], name) == logged(found["trl"], name)
    assert logged(found["ours"], "env/success") == [4 / 8]
    one, two = (found[name].outputs[0]["advantages"] for name in ("ours", "trl"))
    assert torch.equal(one, two)


# Generation


def test_nothing_is_generated_after_the_end(
    env_server: EnvServer, spec: EnvironmentSpec, tmp_path: Path
) -> None:
    ours = _run(ConcurrentScripted, tmp_path, spec, says_it, batch=4)
    assert ours.generated == [4, 4, 4]
    assert logged(ours, "env/length") == [3.0]
    theirs = _run(PlainScripted, tmp_path, spec, says_it, batch=4)
    assert theirs.generated == [4, 4, 4, 4], "TRL itself goes on, or this test shows nothing"


def test_only_those_who_still_play_generate(trained: dict[str, Trained]) -> None:
    theirs, ours = (trained[name].trainer.generated for name in ("trl", "ours"))
    # Apple is over after its first call, fig and lime make none; then pear and quince are over, and grape
    # gives up; at last cherry is over, and plum gives up.
    assert ours == [16, 10, 4]
    assert sum(ours) < sum(theirs)


# Calls


def test_calls_of_a_turn_run_at_the_same_time(env_server: EnvServer, tmp_path: Path) -> None:
    def player(text: str) -> str:
        return call("together", seconds=0.1) if turns_of(text) < 2 else "Done."

    most = {}
    for name, cls in {"trl": PlainScripted, "ours": ConcurrentScripted}.items():
        seen: list[int] = []

        def watch(environments: Any, seen: list[int] = seen, **_: Any) -> list[float]:
            seen += [found["most"] for e in environments for found in e.metadata if found]
            return [0.0] * len(environments)

        spec = EnvironmentSpec(env_server.url, attach=False, discover_task_tools=False)
        trainer = make_trainer(
            cls, tmp_path, player=player, spec=spec, batch=8, reward_funcs=[spec.reward_funcs, watch]
        )
        trainer.train()
        spec.close()
        assert len(seen) == 16
        most[name] = max(seen)
    assert most["trl"] == 1
    assert most["ours"] >= 4


def test_sessions_open_together_and_end_with_the_training(
    env_server: EnvServer, spec: EnvironmentSpec, tmp_path: Path
) -> None:
    _run(ConcurrentScripted, tmp_path, spec, says_it, batch=8, steps=2)
    assert spec.pool.open_episodes == 0
    assert len(env_server.diary.lines("setup")) == 16
    first = [line["event"] for line in env_server.diary.lines() if line["event"] in ("setup", "call")][:8]
    assert first == ["setup"] * 8
    assert env_server.diary.open_sessions() == set()


@pytest.mark.parametrize("name", WATCHED)
def test_each_call_is_made_once(trained: dict[str, Trained], name: str) -> None:
    made = Counter((line["tool"], line.get("word"), line.get("where")) for line in trained[name].calls)
    called: dict[Any, int] = {("say", word, None): 2 for word in ("apple", "pear", "cherry", "quince")}
    called |= {("say", "no", None): 4, ("look", None, "here"): 4, ("look", None, "up"): 2}
    assert made == {**called, ("points", None, None): 4}, "lime's call is no call"


def test_calls_are_the_same_as_trls(trained: dict[str, Trained]) -> None:
    made = {}
    for name, each in trained.items():
        played: dict[str, list[Any]] = {}
        for line in each.calls:
            played.setdefault(line["key"], []).append([line["tool"], line.get("word"), line.get("where")])
        made[name] = Counter(json.dumps(calls) for calls in played.values())
    assert made["ours"] == made["trl"]


def test_cut_short_ours_is_as_trls(env_server: EnvServer, tmp_path: Path) -> None:
    def player(text: str) -> str:
        plan = [call("look", where="x" * 5), call("look", where="y" * 25), call("look", where="z")]
        return plan[turns_of(text) % 3]

    for arguments in (
        {"max_completion_length": 60, "max_tool_calling_iterations": 20},
        {"max_completion_length": 100, "max_tool_calling_iterations": 20},
        {"max_tool_calling_iterations": 1},
        {"max_tool_calling_iterations": 3},
    ):
        seen = {}
        for name, cls in WATCHED.items():
            env_server.diary.clear()
            spec = EnvironmentSpec(env_server.url, attach=False, discover_task_tools=False)
            trainer = _run(cls, tmp_path, spec, player, batch=4, arguments=arguments)
            spec.close()
            seen[name] = (_batch(trainer), len(env_server.diary.lines("call")), trainer.generated)
        assert seen["ours"] == seen["trl"]
        assert max(len(ids) for ids, _ in seen["ours"][0]) <= trainer.max_completion_length


# Lost rollouts


def _losing(lost: str) -> Callable[[str], str]:
    """Scores by task, and lets the rollouts of one task break."""

    def player(text: str) -> str:
        if turns_of(text):
            return "I am done."
        return call("fail") if word_of(text) == lost else call("points", number=len(word_of(text)))

    return player


@pytest.mark.parametrize("cls", [ConcurrentWatched])
def test_a_lost_rollout_counts_in_no_sum(env_server: EnvServer, tmp_path: Path, cls: type) -> None:
    spec = EnvironmentSpec(env_server.url, attach=False, discover_task_tools=False, indices=[0, 1])
    trainer = _run(cls, tmp_path, spec, _losing("pear"), batch=4)
    spec.close()
    [output] = trainer.outputs
    lost = [not int(row.sum()) for row in output["tool_mask"] * output["completion_mask"]]
    assert sum(lost) == 2
    assert int(output["num_items_in_batch"]) == int((output["completion_mask"] * output["tool_mask"]).sum())
    assert [float(a) for a, gone in zip(output["advantages"], lost, strict=True) if gone] == [0.0, 0.0]
    assert logged(trainer, "reward") == [5.0]
    assert (logged(trainer, "env/faults"), logged(trainer, "env/faults/tool_error")) == ([0.5], [0.5])
    assert all(torch.isfinite(parameter).all() for parameter in trainer.model.parameters())


class _Group:
    """A group of rollouts of one task: each says something of its own, and gets its own reward."""

    def __init__(self, plans: list[str]) -> None:
        self._plans = plans
        self._next = 0

    def __call__(self, text: str) -> str:
        if turns_of(text):
            return "I am done."
        plan = self._plans[self._next % len(self._plans)]
        self._next += 1
        return plan


@pytest.mark.parametrize(
    ("loss", "beta"),
    [("grpo", 0.0), ("grpo", 0.5), ("dapo", 0.0), ("dapo", 0.5), ("dr_grpo", 0.0), ("bnpo", 0.0)],
)
def test_a_lost_rollout_leaves_the_step_as_if_it_had_not_been(
    env_server: EnvServer, tmp_path: Path, loss: str, beta: float
) -> None:
    torch.manual_seed(0)
    start = smallest(tiny.tokenizer())
    start.save_pretrained(tmp_path / "start")  # TRL loads the reference policy by the model's name
    kept = [call("points", number=1), call("points", number=0.25), call("points", number=-3.5)]
    steps = []
    for plans in ([*kept[:1], call("fail"), *kept[1:]], kept):
        model = copy.deepcopy(start)
        model.config._name_or_path = str(tmp_path / "start")
        spec = EnvironmentSpec(env_server.url, attach=False, discover_task_tools=False, indices=[0])
        arguments = {
            "loss_type": loss,
            "beta": beta,
            "optim": "sgd",
            "learning_rate": 0.5,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 0.0,
            "num_iterations": 2,  # so that the policy has moved when KL counts
        }
        trainer = make_trainer(
            ConcurrentScripted,
            tmp_path,
            player=_Group(plans),
            spec=spec,
            model=model,
            generations=len(plans),
            batch=len(plans),
            steps=2,
            arguments=arguments,
        )
        before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
        trainer.train()
        spec.close()
        steps.append({name: p.detach() - before[name] for name, p in trainer.model.named_parameters()})
    with_it, without = steps
    moved = max(float(change.abs().max()) for change in without.values())
    assert moved > 1e-4
    for name, change in without.items():
        torch.testing.assert_close(with_it[name], change, rtol=1e-3, atol=moved * 1e-4)


# Sessions end


class Stumbling:
    """Fails in its fifth turn."""

    def _generate_single_turn(
        self,
        prompt_ids: Any,
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> Any:
        if len(self.generated) >= 4:  # type: ignore[attr-defined]
            raise OSError("the model broke")
        return super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations)  # type: ignore[misc]


class PlainStumbling(Stumbling, PlainScripted):
    """TRL's."""


class ConcurrentStumbling(GRPOTrainer, Stumbling, Scripted, trl.GRPOTrainer):  # type: ignore[misc]
    """Ours."""

    _generate_single_turn = GRPOTrainer._generate_single_turn


@pytest.mark.parametrize("cls", [PlainStumbling, ConcurrentStumbling], ids=["attached", "ours"])
def test_sessions_end_when_training_fails(env_server: EnvServer, tmp_path: Path, cls: type) -> None:
    spec = EnvironmentSpec(env_server.url, discover_task_tools=False)
    trainer = make_trainer(cls, tmp_path, player=says_it, spec=spec, batch=4, steps=4)
    with pytest.raises(OSError, match="the model broke"):
        trainer.train()
    assert isinstance(trainer, ConcurrentEnvironments)
    assert len(env_server.diary.lines("setup")) == 8
    assert env_server.diary.open_sessions() == set()
    assert spec.pool.open_episodes == 0
    spec.close()


def test_sessions_end_by_the_callback_with_trls_own_trainer(
    env_server: EnvServer, spec: EnvironmentSpec, tmp_path: Path
) -> None:
    _run(PlainScripted, tmp_path, spec, says_it, batch=4, callbacks=[spec.callback()])
    assert len(env_server.diary.lines("setup")) == 4
    assert env_server.diary.open_sessions() == set()


def test_sessions_end_with_the_process_without_a_callback(env_server: EnvServer, tmp_path: Path) -> None:
    code = f"""
import os, sys, pathlib, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.bridge.players import PlainScripted, call, make_trainer
from orsay_trl import EnvironmentSpec
spec = EnvironmentSpec({env_server.url!r}, attach=False, discover_task_tools=False)
player = lambda text: call("look") if "here:" not in text else "Done."
make_trainer(PlainScripted, pathlib.Path({str(tmp_path)!r}), player=player, spec=spec, batch=4).train()
print("open", spec.pool.open_episodes)
"""
    done = trainers().run(["-c", code], timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "open 4" in done.stdout
    assert len(env_server.diary.lines("setup")) == 4
    assert env_server.diary.open_sessions() == set()


# attach()


def test_a_plain_trainer_is_attached_from_the_second_batch_on(env_server: EnvServer, tmp_path: Path) -> None:
    spec = EnvironmentSpec(env_server.url, discover_task_tools=False)
    trainer = _run(PlainScripted, tmp_path, spec, says_it, batch=4, steps=3)
    assert isinstance(trainer, ConcurrentEnvironments)
    assert isinstance(trainer, PlainScripted)
    assert type(trainer).__name__ == "PlainScripted"
    assert trainer.generated == [4, 4, 4, 4] + [4, 4, 4] * 2
    assert logged(trainer, "reward") == [1.0] * 3
    assert env_server.diary.open_sessions() == set()
    spec.close()


def test_attach_takes_effect_at_once_and_twice_does_no_harm(
    env_server: EnvServer, spec: EnvironmentSpec, tmp_path: Path
) -> None:
    trainer = make_trainer(PlainScripted, tmp_path, player=says_it, spec=spec, batch=4)
    assert attach(attach(trainer)) is trainer
    trainer.train()
    assert trainer.generated == [4, 4, 4]
    assert [type(base).__name__ for base in type(trainer).__mro__].count("ABCMeta") == 0
    with pytest.raises(TypeError, match="GRPOTrainer"):
        attach(spec)


class OfTheUser(Watching, PlainScripted):
    """A trainer with something of its own."""

    def log(self, logs: dict[str, float], *args: Any) -> None:
        super().log({**logs, "mine": 1.0}, *args)


def test_a_class_of_the_user_stays_what_it_is(
    env_server: EnvServer, spec: EnvironmentSpec, tmp_path: Path
) -> None:
    trainer = attach(make_trainer(OfTheUser, tmp_path, player=says_it, spec=spec, batch=4))
    trainer.train()
    assert trainer.generated == [4, 4, 4]
    assert logged(trainer, "mine")
    assert len(trainer.outputs) == 1


class FromTheFuture(PlainScripted):
    """A TRL whose insides are others."""

    def _tool_call_loop(self, *everything: Any) -> Any:
        return super()._tool_call_loop(*everything)


def test_an_unknown_trl_is_trained_with_one_call_after_another(
    env_server: EnvServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "orsay_trl")
    spec = EnvironmentSpec(env_server.url, discover_task_tools=False)
    trainer = make_trainer(FromTheFuture, tmp_path, player=says_it, spec=spec, batch=4, steps=2)
    with pytest.raises(RuntimeError, match="_tool_call_loop"):
        attach(trainer)
    attach_quietly(trainer)
    assert "_tool_call_loop" in caplog.text
    trainer.train()
    assert not isinstance(trainer, ConcurrentEnvironments)
    assert logged(trainer, "reward") == [1.0, 1.0]
    spec.close()


# What is logged


def test_the_log_has_what_happened(env_server: EnvServer, tmp_path: Path) -> None:
    spec = EnvironmentSpec(env_server.url, run="a-run", discover_task_tools=False, indices=[0, 1, 2, 3])

    def player(text: str) -> str:
        word, turn = word_of(text), turns_of(text)
        plans = {
            "apple": [call("say", word="apple")],
            "pear": [call("look"), call("look"), call("say", word="pear")],
            "plum": [call("say", word="no"), call("say")],
            "fig": [call("fail")],
        }
        return plans[word][turn] if turn < len(plans[word]) else "I am done."

    trainer = _run(ConcurrentScripted, tmp_path, spec, player, batch=8, steps=2)
    spec.close()
    first = next(entry for entry in trainer.state.log_history if "reward" in entry)
    expected = {
        "env/success": 2 / 3,
        "env/reward": 2 / 3,
        "env/length": 2.0,
        "env/finished": 2 / 3,
        "env/faults": 1 / 4,
        "env/faults/tool_error": 1 / 4,
        "env/retries": 0.0,
        "env/calls/say": 4 / 3,
        "env/calls/look": 2 / 3,
        "env/refused": 1 / 3,
        "env/reward/accuracy": 2 / 3,
        "env/reward/brevity": 0.25,
        "env/reward/say": 2 / 3,
    }
    assert {name: first[name] for name in expected} == pytest.approx(expected)
    assert first["env/wait_s"] > 0
    assert 0 < first["env/wait_share"] < 1
    assert first["env/seconds"] > 0

    ids = list(trainer._logs["extra"]["rollout_id"])
    assert len(set(ids)) == len(ids) == 8

    def labelled() -> list[dict[str, Any]]:
        ended = env_server.process.events("session_ended")
        labels = [json.loads(line["run"]) for line in ended if "run" in line]
        return [label for label in labels if label.get("run") == "a-run"]

    end = time.monotonic() + 20  # the log arrives on a thread of its own
    while len(labelled()) < 16 and time.monotonic() < end:
        time.sleep(0.02)
    mine = labelled()
    assert len(mine) == 16
    assert {label["rollout"] for label in mine if label["step"] == 1} == set(ids)


def test_evaluation_plays_its_own_split_during_training(env_server: EnvServer, tmp_path: Path) -> None:
    spec = EnvironmentSpec(env_server.url, discover_task_tools=False)
    trainer = _run(
        ConcurrentScripted,
        tmp_path,
        spec,
        says_it,
        batch=4,
        steps=2,
        eval_dataset=spec.eval_dataset,
        arguments={"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 2},
    )
    spec.close()
    assert logged(trainer, "eval_reward") == [1.0, 1.0]
    assert logged(trainer, "eval_env/success") == [1.0, 1.0]
    played = Counter(line["id"].split("-")[0] for line in env_server.diary.lines("setup"))
    assert played == {"word": 8, "test": 2 * 3 * 2}
    assert env_server.diary.open_sessions() == set()


def test_evaluation_alone_ends_its_sessions_too(
    env_server: EnvServer, spec: EnvironmentSpec, tmp_path: Path
) -> None:
    trainer = make_trainer(
        ConcurrentScripted,
        tmp_path,
        player=says_it,
        spec=spec,
        eval_dataset=spec.eval_dataset,
        arguments={"per_device_eval_batch_size": 2},
    )
    assert trainer.evaluate()["eval_reward"] == 1.0
    spec.close()
    assert env_server.diary.open_sessions() == set()


# A server that samples groups


class FromOnePrompt:
    """As if vLLM ran as a server: a group has one prompt, its first."""

    def _calculate_rewards(self, *args: Any) -> Any:
        self.use_vllm, self.vllm_mode = True, "server"
        try:
            return super()._calculate_rewards(*args)  # type: ignore[misc]
        finally:
            self.use_vllm = False


class PlainServed(FromOnePrompt, PlainScripted):
    """TRL's."""


class ConcurrentServed(FromOnePrompt, ConcurrentScripted):
    """Ours."""

    def _orsay_open(self, inputs: Any) -> None:
        self.use_vllm, self.vllm_mode = True, "server"
        try:
            super()._orsay_open(inputs)
        finally:
            self.use_vllm = False


@pytest.mark.parametrize("cls", [PlainServed, ConcurrentServed], ids=["trl", "ours"])
def test_a_group_with_several_prompts_is_refused_where_it_is_sampled_from_one(
    env_server: EnvServer, tmp_path: Path, cls: type
) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Unseeded", discover_task_tools=False)
    trainer = make_trainer(cls, tmp_path, player=lambda text: "Hm.", spec=spec)
    with pytest.raises(ValueError, match="seed_field"):
        trainer.train()
    spec.close()
    assert env_server.diary.open_sessions() == set()


def test_a_group_whose_first_rollout_has_no_prompt_is_lost_with_trls_own_trainer(
    env_server: EnvServer, tmp_path: Path
) -> None:
    spec = EnvironmentSpec(
        env_server.url,
        env_name="Broken",
        discover_task_tools=False,
        indices=[2],
        retries=0,
        max_fault_share=1.0,
    )
    trainer = make_trainer(
        PlainServed, tmp_path, player=lambda text: call("points", number=1), spec=spec, batch=4, generations=4
    )
    rows = [{"task_split": "train", "task_index": 2}] * 4
    broken = spec.episode(rows[0])
    broken.mark_lost("setup_error", "for this test")
    opened = spec.prepare(rows)
    spec.pool.take(("train", 2, None))
    spec.pool._prepared[("train", 2, None)].appendleft(broken)
    trainer.train()
    assert logged(trainer, "env/faults") == [1.0]
    assert logged(trainer, "env/faults/no_prompt") == [0.75]
    assert [episode.reward for episode in opened[1:]] == [None] * 3
    spec.close()


def test_a_rollout_without_a_session_has_its_groups_prompt(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Broken", discover_task_tools=False, retries=0)
    rows = [{"task_split": "train", "task_index": index} for index in (0, 2, 2)]
    lost, one, two = spec.prepare(rows, one_prompt_per_task=True)
    assert (lost.fault, lost.observation, one.observation) == ("setup_error", "", "Say the word: x.")
    two.mark_lost("worker_lost", "for this test")
    lost.show(one.observation)
    two.show("something else")
    assert (lost.observation, two.observation) == (one.observation, one.observation)
    assert lost.reward is None
    spec.close()
