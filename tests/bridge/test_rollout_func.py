"""The rollout function in TRL's own trainer, against real servers: tokens, ends, faults, clean-up, parity."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

from orsay_client import errors
from orsay_trl import EnvironmentSpec, TooManyFaults
from orsay_trl.rollout.rollout_func import RolloutFunction, reward_func, vllm_rollout_func
from orsay_trl.rollout.sync import DiskSync
from orsay_trl.rollout.tokens import TemplateError
from orsay_trl.rollout.vllm import VLLMSampler
from orsay_trl.testing import tiny_model as tiny
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..support.bridge_server import TRAINING, EnvServer, serve_environments
from ..support.model_server.processes import ServedModel, serve_model
from .rolling import ScriptedSampler, chance, grpo, hesitant, logged, smallest

pytestmark = [pytest.mark.process, *TRAINING]

Player = Callable[[str], str]


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(
        tmp_path_factory.mktemp("rollouts"), "Words", "Judged", "Pictures", workers=2
    ) as found:
        yield found


@pytest.fixture
def spec(env_server: EnvServer) -> Iterator[EnvironmentSpec]:
    made = EnvironmentSpec(env_server.url, num_tasks=4, retries=0)
    assert made.tools.schemas  # asks a session for its tools
    env_server.diary.clear()
    yield made
    made.close()
    assert env_server.diary.open_sessions() == set()


def call(name: str, **arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def turns_so_far(text: str) -> int:
    """How many turns of the model a conversation has."""
    return text.count("<|im_start|>assistant") - 1


def word_in(text: str) -> str:
    return str(re.findall(r"Say the word: (\w+)\.", text)[-1])


def winner(text: str) -> str:
    """Looks once, then says the word."""
    return call("look") if turns_so_far(text) == 0 else call("say", word=word_in(text))


class Played:
    """A batch that the function played for a trainer, without the training."""

    def __init__(
        self,
        folder: Path,
        spec: EnvironmentSpec,
        player: Player,
        *,
        tasks: list[int] | None = None,
        arguments: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.function = vllm_rollout_func(spec, **options)
        self.trainer = grpo(
            folder,
            arguments=arguments,
            train_dataset=spec.rollout_dataset,
            rollout_func=self.function,
            reward_funcs=reward_func,
        )
        self.tokenizer = self.trainer.processing_class
        self.sampler = ScriptedSampler(self.trainer.model, self.tokenizer, player)
        self.function.settings = self.function.settings.__class__(
            sampler=self.sampler,
            **{
                name: getattr(self.function.settings, name)
                for name in ("max_turns", "max_tokens_per_turn", "chat_template_kwargs", "needs_calls")
            },
        )
        rows = spec.rollout_dataset
        self.prompts = [rows[at]["prompt"] for at in (tasks if tasks is not None else range(len(rows)))]
        self.out = self.function(self.prompts, self.trainer)

    def text(self, place: int) -> str:
        return str(self.tokenizer.decode(self.out["completion_ids"][place]))

    def metrics(self, name: str) -> list[float]:
        return list(self.trainer._pending_metrics[name])


def assert_sound(out: dict[str, list[Any]]) -> None:
    """What must hold of every rollout."""
    for ids, mask, logprobs, prompt in zip(
        out["completion_ids"], out["env_mask"], out["logprobs"], out["prompt_ids"], strict=True
    ):
        assert ids and prompt
        assert len(ids) == len(mask) == len(logprobs)
        assert all(math.isfinite(one) for one in logprobs)
        assert all(one == 0.0 for one, mine in zip(logprobs, mask, strict=True) if not mine)


# Tokens


def test_rollouts_come_back_in_the_order_of_the_prompts_with_their_rewards(
    spec: EnvironmentSpec, tmp_path: Path
) -> None:
    tasks = [2, 0, 3, 1, 1, 2]
    played = Played(tmp_path, spec, winner, tasks=tasks)
    assert_sound(played.out)
    words = ["apple", "pear", "plum", "fig"]
    for place, task in enumerate(tasks):
        assert f'{{"word": "{words[task]}"}}' in played.text(place)
        assert f"Say the word: {words[task]}." in played.tokenizer.decode(played.out["prompt_ids"][place])
    assert played.out["env_reward"] == [1.0] * 6
    assert played.out["stop_reason"] == ["finished"] * 6
    assert played.out["turns"] == [2] * 6
    assert len(set(played.out["rollout_id"])) == 6
    assert [episode.id for episode in played.out["episode"]] == played.out["rollout_id"]


def test_each_turn_continues_exactly_what_went_before_and_is_kept_verbatim(
    spec: EnvironmentSpec, tmp_path: Path
) -> None:
    def talker(text: str) -> str:
        number = turns_so_far(text)
        return (
            "<think>\nhm\n</think>\n\n  odd   spacing\u00e9" + call("points", number=number)
            if number < 3
            else "so"
        )

    played = Played(tmp_path, spec, talker, tasks=[1])
    prompt, ids, mask = (played.out[name][0] for name in ("prompt_ids", "completion_ids", "env_mask"))
    turns = played.sampler.turns
    assert len(turns) == 4
    assert turns[0][0] == prompt
    for (before, completion), (after, _) in itertools.pairwise(turns):
        assert after[: len(before) + len(completion)] == before + completion
    whole = prompt + ids
    assert turns[-1][0] + turns[-1][1] == whole
    sampled = [token for token, mine in zip(ids, mask, strict=True) if mine]
    assert sampled == [token for _, completion in turns for token in completion]
    given = [token for token, mine in zip(ids, mask, strict=True) if not mine]
    text = played.tokenizer.decode(given)
    assert text.count("<tool_response>") == 3 and "0.0 points" in text and "odd" not in text


def test_nothing_follows_the_call_that_ended_the_episode(spec: EnvironmentSpec, tmp_path: Path) -> None:
    def eager(text: str) -> str:  # the second call comes after the end
        return call("say", word=word_in(text)) + "\n" + call("points", number=7)

    played = Played(tmp_path, spec, eager, tasks=[0])
    assert played.out["stop_reason"] == ["finished"]
    assert played.out["env_reward"] == [1.0]
    assert set(played.out["env_mask"][0]) == {1}
    assert played.out["completion_ids"][0][-1] == played.tokenizer.eos_token_id
    assert [step.tool for step in played.out["episode"][0].steps] == ["say"]


def test_messages_of_the_dataset_stay_before_the_prompt_of_the_environment(
    spec: EnvironmentSpec, tmp_path: Path
) -> None:
    played = Played(tmp_path, spec, winner, tasks=[])
    task = spec.rollout_dataset[0]["prompt"][0]["task"]
    prompt = [
        {"role": "system", "content": "Be brief.", "task": None},
        {"role": "user", "content": "Listen.", "task": task},
    ]
    out = played.function([prompt], played.trainer)
    text = played.tokenizer.decode(out["prompt_ids"][0])
    assert "Be brief." in text and "Listen.\n\nSay the word: apple." in text


# Ends


def test_a_turn_without_a_call_ends_the_rollout(spec: EnvironmentSpec, tmp_path: Path) -> None:
    played = Played(tmp_path, spec, lambda _: "I give up.", tasks=[0])
    assert (played.out["stop_reason"], played.out["env_reward"]) == (["no_tool_call"], [0.0])
    assert set(played.out["env_mask"][0]) == {1}


def test_a_plain_message_goes_to_the_terminal_tool(env_server: EnvServer, tmp_path: Path) -> None:
    judged = EnvironmentSpec(env_server.url, env_name="judged")
    played = Played(tmp_path, judged, lambda text: re.findall(r"answer is (\w+)", text)[-1], tasks=[0, 1])
    judged.close()
    assert played.out["stop_reason"] == ["finished"] * 2
    assert played.out["env_reward"] == [1.0, 1.0]


def test_turns_are_limited(spec: EnvironmentSpec, tmp_path: Path) -> None:
    played = Played(tmp_path, spec, lambda _: call("points", number=0.5), tasks=[0], max_turns=3)
    assert (played.out["stop_reason"], played.out["turns"]) == (["max_turns"], [3])
    assert played.out["env_mask"][0][-1] == 1


def test_turns_and_answers_together_stay_within_the_completion_budget(
    spec: EnvironmentSpec, tmp_path: Path
) -> None:
    for budget in (5, 40, 41, 42, 43, 80, 120):
        arguments = {"max_completion_length": budget}
        played = Played(tmp_path, spec, lambda _: call("look", where="far"), tasks=[0], arguments=arguments)
        assert_sound(played.out)
        assert len(played.out["completion_ids"][0]) <= budget
        assert played.out["stop_reason"] == ["budget"]
        assert played.out["env_mask"][0][-1] == 1, "an answer was appended that nobody can answer"
        assert played.sampler.allowed[0] == budget


def test_the_context_of_the_model_is_a_limit_too(spec: EnvironmentSpec, tmp_path: Path) -> None:
    arguments = {"max_completion_length": 400}
    played = Played(tmp_path, spec, lambda _: call("look", where="far"), tasks=[0], arguments=arguments)
    length = len(played.out["prompt_ids"][0])
    played.sampler.max_model_len = length + 50
    out = played.function(played.prompts, played.trainer)
    assert len(out["completion_ids"][0]) <= 50
    assert out["stop_reason"] == ["budget"]
    played.sampler.max_model_len = length
    out = played.function(played.prompts, played.trainer)
    assert (len(out["completion_ids"][0]), out["env_mask"], out["logprobs"]) == (1, [[0]], [[0.0]])


def test_one_turn_may_be_limited(spec: EnvironmentSpec, tmp_path: Path) -> None:
    played = Played(tmp_path, spec, lambda _: "long " * 30, tasks=[0], max_tokens_per_turn=9)
    assert played.sampler.allowed == [9]
    assert (played.out["stop_reason"], len(played.out["completion_ids"][0])) == (["budget"], 9)


# What the model gets wrong


def test_a_call_that_cannot_be_read_is_answered_and_counted(spec: EnvironmentSpec, tmp_path: Path) -> None:
    def clumsy(text: str) -> str:
        return (
            "<tool_call>\nlook!\n</tool_call>" if turns_so_far(text) == 0 else call("say", word=word_in(text))
        )

    played = Played(tmp_path, spec, clumsy, tasks=[0])
    assert "could not be read" in played.text(0)
    assert (played.out["env_reward"], played.out["turns"]) == ([1.0], [2])
    assert played.metrics("rollout/unreadable_calls") == [1.0]


def test_a_tool_that_does_not_exist_is_answered(spec: EnvironmentSpec, tmp_path: Path) -> None:
    played = Played(tmp_path, spec, lambda _: call("fly"), tasks=[0], max_turns=2)
    assert "There is no tool 'fly'" in played.text(0)


# Faults and clean-up


def test_a_rollout_lost_to_a_fault_is_masked_and_has_no_reward(env_server: EnvServer, tmp_path: Path) -> None:
    spec = EnvironmentSpec(env_server.url, num_tasks=4, retries=0, max_fault_share=1.0)

    def unlucky(text: str) -> str:
        return call("fail") if word_in(text) == "pear" else winner(text)

    played = Played(tmp_path, spec, unlucky)
    spec.close()
    assert_sound(played.out)
    assert played.out["fault"] == [None, "tool_error", None, None]
    assert played.out["env_reward"] == [1.0, None, 1.0, 1.0]
    assert played.out["stop_reason"][1] == "fault"
    assert set(played.out["env_mask"][1]) == {0}
    assert played.metrics("env/faults") == [0.0, 1.0, 0.0, 0.0]


def test_a_rollout_that_never_opened_is_one_masked_token(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    with serve_environments(folder, "Words") as env_server:
        spec = EnvironmentSpec(env_server.url, num_tasks=2, retries=0, max_fault_share=1.0)
        played = Played(tmp_path, spec, winner, tasks=[0])
        prompts = [row["prompt"] for row in spec.rollout_dataset]
    played.sampler.turns.clear()
    out = played.function(prompts, played.trainer)
    spec.close()
    pad = played.tokenizer.pad_token_id
    assert (out["completion_ids"], out["env_mask"], out["logprobs"]) == ([[pad]] * 2, [[0]] * 2, [[0.0]] * 2)
    assert out["env_reward"] == [None, None]
    assert all(out["fault"]) and played.sampler.turns == []


def test_too_many_faults_stop_the_training(spec: EnvironmentSpec, tmp_path: Path) -> None:
    with pytest.raises(TooManyFaults, match="4 of 4 rollouts were lost to faults"):
        Played(tmp_path, spec, lambda _: call("fail"))


def test_sessions_end_when_sampling_fails(
    spec: EnvironmentSpec, env_server: EnvServer, tmp_path: Path
) -> None:
    asked = itertools.count()

    def failing(text: str) -> str:
        if next(asked) == 5:
            raise RuntimeError("the engine died")
        return call("look")

    with pytest.raises(RuntimeError, match="the engine died"):
        Played(tmp_path, spec, failing)
    assert len(env_server.diary.lines("setup")) == 4
    assert env_server.diary.open_sessions() == set()


def test_a_task_that_does_not_exist_stops_the_training(spec: EnvironmentSpec, tmp_path: Path) -> None:
    played = Played(tmp_path, spec, winner, tasks=[])
    task = {"task_split": "train", "task_index": 99}
    with pytest.raises(errors.RequestError):
        played.function([[{"role": "user", "content": "", "task": task}]], played.trainer)


def test_all_rollouts_are_played_at_the_same_time(spec: EnvironmentSpec, tmp_path: Path) -> None:
    played = Played(tmp_path, spec, winner, tasks=[0, 1, 2, 3] * 6)
    assert played.sampler.most_at_once > 8
    few = Played(tmp_path, spec, winner, tasks=[0, 1, 2, 3] * 3, concurrency=2)
    assert few.sampler.most_at_once <= 2
    assert few.out["env_reward"] == [1.0] * 12


# Arguments


def test_the_function_can_be_pickled_and_the_copy_plays(spec: EnvironmentSpec, tmp_path: Path) -> None:
    played = Played(tmp_path, spec, winner, tasks=[])
    function = vllm_rollout_func(spec, max_turns=2)
    function(played.prompts, played.trainer)
    copy: RolloutFunction = pickle.loads(pickle.dumps(function))
    out = copy([spec.rollout_dataset[0]["prompt"]], played.trainer)
    assert_sound(out)
    function.close()
    copy.close()
    copied: Any = copy.backend
    copied.spec.close()
    assert pickle.loads(pickle.dumps(reward_func)) is reward_func


def test_a_prompt_must_name_its_task(spec: EnvironmentSpec, tmp_path: Path) -> None:
    played = Played(tmp_path, spec, winner, tasks=[])
    for prompt in ([{"role": "user", "content": "x"}], "x", []):
        with pytest.raises(ValueError, match="rollout_dataset"):
            played.function([prompt], played.trainer)


def test_arguments_that_contradict_each_other_are_refused(spec: EnvironmentSpec, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not both"):
        vllm_rollout_func(spec, sampler=ScriptedSampler(None, None, winner), base_url="http://127.0.0.1:1")
    with pytest.raises(ValueError, match="both prompt_builder and action_parser"):
        vllm_rollout_func(spec, prompt_builder=lambda *_: "")
    for wrong in ({"max_turns": 0}, {"max_tokens_per_turn": 0}, {"concurrency": 0}, {"parity_rollouts": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            vllm_rollout_func(spec, **wrong)  # type: ignore[arg-type]  # one of them at a time
    function = vllm_rollout_func(spec, base_url="http://127.0.0.1:1")
    trainer = grpo(
        tmp_path, train_dataset=spec.rollout_dataset, rollout_func=function, reward_funcs=reward_func
    )
    with pytest.raises(ValueError, match=r"nothing brings the weights to http://127\.0\.0\.1:1"):
        function([], trainer)


def test_a_template_whose_calls_cannot_be_read_is_refused(spec: EnvironmentSpec, tmp_path: Path) -> None:
    tokenizer: Any = tiny.tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    function = vllm_rollout_func(spec)
    trainer = grpo(
        tmp_path,
        tokenizer=tokenizer,
        train_dataset=spec.rollout_dataset,
        rollout_func=function,
        reward_funcs=reward_func,
    )
    with pytest.raises(TemplateError, match="response_template"):
        function([], trainer)


# Training


def test_two_steps_of_training_on_scripted_turns(
    spec: EnvironmentSpec, env_server: EnvServer, tmp_path: Path
) -> None:
    """Half of the rollouts win, so there is something to learn; parity holds over several turns."""
    tokenizer: Any = tiny.tokenizer()
    model = smallest(tokenizer)
    numbers: Counter[str] = Counter()

    def sometimes(text: str) -> str:
        word = word_in(text)
        if turns_so_far(text) == 0:
            numbers[word] += 1
            return call("look", where="near" if numbers[word] % 2 else "far")
        return call("say", word=word) if "near" in text else "no"

    trainer = grpo(
        tmp_path,
        model=model,
        tokenizer=tokenizer,
        train_dataset=spec.rollout_dataset,
        rollout_func=vllm_rollout_func(spec, sampler=ScriptedSampler(model, tokenizer, sometimes)),
        reward_funcs=[reward_func, spec.reward_funcs],
    )
    trainer.train()
    for name in ("loss", "grad_norm"):
        values = logged(trainer, name)
        assert len(values) == 2 and all(map(math.isfinite, values))
    assert min(logged(trainer, "grad_norm")) > 0
    assert max(logged(trainer, "sampling/parity")) < 1e-3
    assert logged(trainer, "rewards/reward_func/mean") == logged(trainer, "rewards/environment_reward/mean")
    assert logged(trainer, "env/success") == [0.5, 0.5]
    assert logged(trainer, "rollout/stop/finished") == [0.5, 0.5]
    assert len(env_server.diary.lines("setup")) == 8


def test_evaluation_plays_the_tasks_of_its_own_split(
    spec: EnvironmentSpec, env_server: EnvServer, tmp_path: Path
) -> None:
    tokenizer: Any = tiny.tokenizer()
    model = smallest(tokenizer)
    rows = spec.rollout_eval_dataset
    trainer = grpo(
        tmp_path,
        model=model,
        tokenizer=tokenizer,
        arguments={"per_device_eval_batch_size": 2 * len(rows), "num_generations_eval": 2},
        train_dataset=spec.rollout_dataset,
        eval_dataset=rows,
        rollout_func=vllm_rollout_func(spec, sampler=ScriptedSampler(model, tokenizer, winner)),
        reward_funcs=spec.reward_funcs,
    )
    metrics = trainer.evaluate()
    assert metrics["eval_reward"] == metrics["eval_env/success"] == 1.0
    tasks = {json.loads(row["prompt"][0]["task"])["task_split"] for row in rows}
    assert tasks == {"test"}
    assert len(env_server.diary.lines("setup")) == 2 * len(rows)


@pytest.fixture
def caller(model_folder: Path) -> tuple[Any, Any]:
    """The model that calls ``look`` by itself, made less certain of it, and its tokenizer."""
    return hesitant(AutoModelForCausalLM.from_pretrained(model_folder)), AutoTokenizer.from_pretrained(
        model_folder
    )


def test_two_steps_of_training_on_the_models_own_turns(
    spec: EnvironmentSpec, caller: tuple[Any, Any], tmp_path: Path
) -> None:
    model, tokenizer = caller
    trainer = grpo(
        tmp_path,
        model=model,
        tokenizer=tokenizer,
        generations=4,
        arguments={"max_completion_length": 128},
        train_dataset=spec.rollout_dataset,
        rollout_func=vllm_rollout_func(spec, max_turns=3),
        reward_funcs=[reward_func, chance],
    )
    trainer.train()
    assert all(map(math.isfinite, logged(trainer, "loss")))
    assert max(logged(trainer, "grad_norm")) > 0  # a step whose rollouts are all alike moves nothing
    assert max(logged(trainer, "sampling/parity")) < 1e-3
    assert max(logged(trainer, "rollout/turns")) > 1


def test_a_server_has_the_weights_of_each_step(
    spec: EnvironmentSpec, caller: tuple[Any, Any], model_folder: Path, tmp_path: Path
) -> None:
    """Parity shows it: with ``DiskSync`` it holds after a step too, and without it no longer does."""
    model, tokenizer = caller
    hesitant(model)  # so that no two rollouts are alike, and each step moves the weights
    folder = Path(shutil.copytree(model_folder, tmp_path / "served"))
    model.save_pretrained(folder)
    found = {}
    with serve_model(folder) as served:
        for synced in (True, False):
            function = vllm_rollout_func(
                spec,
                base_url=served.base_url,
                sync=DiskSync(folder, served.base_url) if synced else False,
                max_turns=2,
            )
            trainer = grpo(
                tmp_path,
                model=model,
                tokenizer=tokenizer,
                arguments={"max_completion_length": 96, "learning_rate": 1e-2},
                train_dataset=spec.rollout_dataset,
                rollout_func=function,
                reward_funcs=[reward_func, chance],
            )
            trainer.train()
            found[synced] = logged(trainer, "sampling/parity")
    assert max(found[True]) < 1e-3 < found[False][-1]


def test_the_sampler_of_a_base_url_draws_as_the_trainer_assumes(
    spec: EnvironmentSpec, model_server: ServedModel, tmp_path: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_server.folder)
    tokenizer = AutoTokenizer.from_pretrained(model_server.folder)
    function = vllm_rollout_func(spec, base_url=model_server.base_url, sync=False, max_turns=1)
    trainer = grpo(
        tmp_path,
        model=model,
        tokenizer=tokenizer,
        arguments={"temperature": 0.8},
        train_dataset=spec.rollout_dataset,
        rollout_func=function,
        reward_funcs=reward_func,
    )
    out = function([row["prompt"] for row in spec.rollout_dataset], trainer)
    assert_sound(out)
    context = function._context
    assert context is not None and isinstance(context.sampler, VLLMSampler)
    assert context.sampler.sampling.temperature == 0.8
    assert trainer._pending_metrics["sampling/parity"][0] < 1e-3
    function.close()


def test_environments_of_a_mixture_are_each_played_with_their_own_tools(
    env_server: EnvServer, tmp_path: Path
) -> None:
    words = EnvironmentSpec(env_server.url, env_name="words", num_tasks=2)
    judged = EnvironmentSpec(env_server.url, env_name="judged", reward="sum")
    mixture = EnvironmentSpec.combine(words, judged, names=["words", "judged"])

    def player(text: str) -> str:
        answer = re.findall(r"The answer is (\w+)\.", text)
        return str(answer[-1]) if answer else winner(text)

    tokenizer: Any = tiny.tokenizer()
    model = smallest(tokenizer)
    function = vllm_rollout_func(mixture, sampler=ScriptedSampler(model, tokenizer, player))
    rows = mixture.rollout_dataset
    trainer = grpo(
        tmp_path,
        model=model,
        tokenizer=tokenizer,
        train_dataset=rows,
        rollout_func=function,
        reward_funcs=reward_func,
    )
    out = function(rows["prompt"], trainer)
    assert out["env_reward"] == [1.0] * 4
    for row, ids in zip(rows, out["prompt_ids"], strict=True):
        text = tokenizer.decode(ids)
        assert ('"name": "say"' in text) == (row["environment"] == "words")
        assert ('"name": "hint"' in text) == (row["environment"] == "judged")
    assert trainer._pending_metrics["env/words/success"] == [1.0, 1.0]
    assert trainer._pending_metrics["env/judged/success"] == [1.0, 1.0]
    mixture.close()
    assert env_server.diary.open_sessions() == set()
