"""Odd calls of a model cost it the call: never the rollout, its reward, or the training."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from orsay_trl import EnvironmentSpec, Episode
from orsay_trl.trainer.rewards import GroupReward, candidate

from tests.support.odd_inputs import ARGUMENTS, INPUTS, NAMES, arguments, nested

from ..support.bridge_server import TRAINING, EnvServer, serve_environments

pytest.importorskip("trl", reason="needs the extra 'trl'")
from orsay_trl.play.parsing import guard, unguarded
from orsay_trl.rollout.openenv_client import OpenEnvGame
from orsay_trl.rollout.parse import TurnParser
from orsay_trl.rollout.rollout_func import reward_func, vllm_rollout_func
from orsay_trl.testing import tiny_model as tiny
from trl.chat_template_utils import add_response_schema, parse_response

from .players import ConcurrentScripted, PlainScripted, call, make_trainer
from .rolling import ScriptedSampler, grpo, logged, smallest
from .test_trainer import turns_of, word_of

pytestmark = [pytest.mark.process, *TRAINING]

ROW = {"task_split": "train", "task_index": 0}
SMALL = {
    what: text for what, text in ARGUMENTS.items() if len(text) < 500 and what != "half of a pair as it is"
}
"""Of which a completion has room. No token is half of a pair."""
CALLS = {"max_completion_length": 3_000}


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(tmp_path_factory.mktemp("odd"), "Words", "Judged", workers=2) as found:
        yield found


@pytest.fixture
def spec(env_server: EnvServer) -> Iterator[EnvironmentSpec]:
    made = EnvironmentSpec(env_server.url, attach=False, discover_task_tools=False, retries=0)
    yield made
    made.close()


def written(name: str, text: str) -> str:
    """A call with these arguments, as Qwen3 writes it."""
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {text}}}\n</tool_call>'


def odd_calls() -> list[str]:
    """Turns that a model may write, each a call that cannot be made."""
    found = [written("say", text.replace('"text"', '"word"')) for text in SMALL.values()]
    found += [written("say", f'{{"word": {text}}}') for text in ("[" * 250 + "]" * 250, "[" * 1_000)]
    names = [name for name in NAMES.values() if isinstance(name, str) and len(name) < 100]
    return found + [written(name, '{"word": "x"}') for name in names]


# Episodes


def test_an_input_that_no_server_takes_is_a_refused_call_of_its_episode(spec: EnvironmentSpec) -> None:
    episode = spec.episode(ROW)

    async def play() -> None:
        await episode.open()
        for what, odd in INPUTS.items():
            given = {"word": odd["text"]} if isinstance(odd, dict) and "text" in odd else odd
            reply = await episode.call("say", given)
            assert reply.text and not reply.finished, what
            reply.text.encode()
            assert episode.fault is None, (what, episode.fault_message)
        for name in NAMES.values():
            assert "There is no tool" in (await episode.call(name, {"word": "x"})).text
        assert (await episode.call("say", {"word": "apple"})).finished
        await episode.close()

    spec.run(play())
    assert episode.rewards == [None] * len(INPUTS) + [1.0]
    assert (episode.reward, episode.fault, episode.retried) == (1.0, None, [])


def test_calls_are_refused_again_where_a_lost_session_is_played_anew(
    env_server: EnvServer, tmp_path: Path
) -> None:
    spec = EnvironmentSpec(env_server.url, discover_task_tools=False, retries=1)
    episode = spec.episode(ROW)

    async def play() -> None:
        await episode.open()
        for what in ("nested 250", "nested 3000", "half of a pair", "NaN", "over the limit of a body"):
            await episode.call("say", {"word": INPUTS[what]["text"]})
        await episode.call("die_once", {"marker": str(tmp_path / "died")})
        await episode.call("say", {"word": "apple"})
        await episode.close()

    spec.run(play())
    spec.close()
    assert (episode.fault, episode.retried, episode.reward) == (None, ["worker_lost"], 1.0)
    assert [reward for reward in episode.rewards if reward is not None] == [1.0]


def test_a_method_of_an_environment_takes_whatever_a_model_wrote(spec: EnvironmentSpec) -> None:
    place: Any = spec.environment_factory()
    place.reset(**ROW)
    for odd in ("\ud800", float("nan"), 10**5_000, nested(3_000), nested(250)):
        assert "not accepted" in place.say(word=odd)
        assert "not accepted" in place.say(**{"\udfff": odd})
    assert place.say(word="apple") == "right"
    assert place.get_reward() == 1.0
    spec.close()


def test_a_last_message_is_graded_whatever_characters_it_has(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="judged", discover_task_tools=False)
    episode = spec.episode(ROW)

    async def play() -> Any:
        await episode.open()
        reply = await episode.say("It is \ud800.")
        await episode.close()
        return reply

    assert spec.run(play()).finished
    assert episode.fault is None and episode.rewards != [None]
    spec.close()


# TRL's trainer


@pytest.mark.parametrize("cls", [PlainScripted, ConcurrentScripted], ids=["trl", "ours"])
def test_a_training_goes_on_whatever_the_model_calls(
    env_server: EnvServer, spec: EnvironmentSpec, tmp_path: Path, cls: type
) -> None:
    """Each rollout of a batch begins with an odd call of its own; those that TRL can read go on."""
    odd = odd_calls()
    seen: list[Episode] = []
    answer: list[str] = []

    def player(text: str) -> str:
        if turns_of(text) == 0:
            answer.append(odd[len(answer) % len(odd)])
            return answer[-1]
        return call("say", word=word_of(text))

    def watch(environments: Any, **_: Any) -> list[float]:
        seen.extend(environment.episode for environment in environments)
        return [0.0] * len(environments)

    trainer = make_trainer(
        cls,
        tmp_path,
        player=player,
        spec=spec,
        batch=16,  # each of the eight tasks twice
        steps=-(-len(odd) // 16),
        reward_funcs=[spec.reward_funcs, watch],
        arguments=CALLS,
    )
    trainer.train()
    assert len(seen) >= len(odd)
    assert [episode.fault for episode in seen] == [None] * len(seen)
    refused = [episode for episode in seen if None in episode.rewards]
    assert len(refused) > 8, "calls that TRL reads are made, and refused"
    assert all(episode.rewards == [None, 1.0] for episode in refused)
    assert logged(trainer, "env/fault_rate") in ([], [0.0])


def test_nesting_without_end_is_plain_text_to_trl_once_its_tokenizer_is_guarded() -> None:
    tokenizer: Any = tiny.tokenizer()
    add_response_schema(tokenizer)
    ids = tokenizer(written("say", "[" * 3_000 + "]" * 3_000))["input_ids"]
    with pytest.raises(RecursionError):
        parse_response(tokenizer, ids, prefix=[])
    for _ in range(2):
        guard(tokenizer, rendered=False)
    found = parse_response(tokenizer, ids, prefix=[])
    assert "tool_calls" not in found and found["content"]
    ids_of_a_call = tokenizer(call("say", word="x"))["input_ids"]
    [made] = parse_response(tokenizer, ids_of_a_call, prefix=[])["tool_calls"]
    assert made["function"]["arguments"] == {"word": "x"}
    unguarded(tokenizer)
    with pytest.raises(RecursionError):
        parse_response(tokenizer, ids, prefix=[])


@pytest.mark.parametrize(
    "text", ['{"word": "\\ud800"}', '{"a":' * 900 + "1" + "}" * 900], ids=["half", "deep"]
)
def test_a_call_that_no_template_can_write_again_is_plain_text_to_a_rollout_worker(text: str) -> None:
    tokenizer: Any = tiny.tokenizer()
    add_response_schema(tokenizer)
    ids = tokenizer(written("say", text))["input_ids"]
    guard(tokenizer, rendered=True)
    message = parse_response(tokenizer, ids, prefix=[])
    assert "tool_calls" not in message
    talk = [{"role": "user", "content": "Go."}, message, {"role": "user", "content": "Go on."}]
    assert tokenizer.apply_chat_template(talk)


# Group scores


@pytest.mark.parametrize("what", ["nested 199", "nested 250", "nested 3000", "half of a pair", "NaN"])
def test_a_group_is_scored_although_one_of_it_called_with_an_odd_input(
    env_server: EnvServer, what: str
) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="judged", discover_task_tools=False)
    places: list[Any] = [spec.environment_factory() for _ in range(2)]
    for place in places:
        place.reset(**ROW)
    odd = {"type": "function", "function": {"name": "sa\ud800y", "arguments": INPUTS[what]}}
    spelled = {"type": "function", "function": {"name": "say", "arguments": '{"cut'}}
    answer = {"role": "assistant", "content": "I \udfff say.", "tool_calls": [odd, spelled]}
    completions: list[Any] = [
        [answer, {"role": "tool", "content": "no"}],
        [{"role": "assistant", "content": "I say."}],
    ]
    prompt = [{"role": "user", "content": "Go."}]
    scores = GroupReward()(
        prompts=[prompt, prompt], completions=completions, environments=places, num_generations=2
    )
    assert None not in scores
    spec.close()


def test_arguments_that_a_server_reads_are_in_the_candidate(spec: EnvironmentSpec) -> None:
    episode = spec.episode(ROW)
    deep = nested(150)

    def answer(given: Any) -> Any:
        made = {"function": {"name": "say", "arguments": given}}
        turn = {"role": "assistant", "content": "", "tool_calls": [made]}
        [block] = candidate("Go.", [turn], episode).messages[1].blocks
        return getattr(block, "input")  # noqa: B009  # of blocks of every type

    assert answer({"word": "x"}) == answer('{"word": "x"}') == {"word": "x"}
    assert answer(deep) == deep
    assert (
        answer([1])
        == answer("[1]")
        == answer("3")
        == answer(None)
        == answer("")
        == answer('{"a": NaN}')
        == {}
    )


# Rollout functions


def test_rollouts_go_on_whatever_the_model_calls(
    env_server: EnvServer, spec: EnvironmentSpec, tmp_path: Path
) -> None:
    odd = odd_calls()
    left = iter(odd)

    def player(text: str) -> str:
        return next(left) if turns_of(text) == 0 else call("say", word=word_of(text))

    out = rolled(tmp_path, spec, player, [place % 4 for place in range(len(odd))])
    assert out["fault"] == [None] * len(odd)
    assert out["stop_reason"] == ["finished"] * len(odd)
    assert out["env_reward"] == [1.0] * len(odd)
    assert sum(None in episode.rewards for episode in out["episode"]) > 8


def rolled(
    folder: Path, spec: EnvironmentSpec, player: Callable[[str], str], tasks: list[int], **options: Any
) -> Any:
    """What a rollout function brings back of a batch, sampled as ``player`` says."""
    tokenizer = tiny.tokenizer()
    model = smallest(tokenizer)
    function = vllm_rollout_func(
        spec, sampler=ScriptedSampler(model, tokenizer, player), parity_rollouts=0, **options
    )
    trainer = grpo(
        folder,
        model=model,
        tokenizer=tokenizer,
        arguments=CALLS,
        train_dataset=spec.rollout_dataset,
        rollout_func=function,
        reward_funcs=reward_func,
    )
    rows = spec.rollout_dataset
    return function([rows[at]["prompt"] for at in tasks], trainer)


def test_actions_go_on_whatever_the_model_writes(
    env_server: EnvServer, spec: EnvironmentSpec, tmp_path: Path
) -> None:
    odd = [text.replace('"text"', '"word"') for text in SMALL.values() if text.strip()]
    odd += ["[" * 1_000, '{"a":' * 250 + "1" + "}" * 250]
    left = iter(odd)

    def player(text: str) -> str:
        return next(left) if turns_of(text) == 0 else json.dumps({"word": word_of(text)})

    def parser(text: str) -> Any:
        return "say", json.loads(text)

    def builder(observation: str, step: int, history: list[str]) -> str:
        return f"{observation} {history}" if step == 1 else f"{observation} {history} Say the word: apple."

    out = rolled(tmp_path, spec, player, [0] * len(odd), prompt_builder=builder, action_parser=parser)
    assert out["fault"] == [None] * len(odd)
    assert out["env_reward"] == [1.0] * len(odd)


def test_turns_are_read_whatever_is_in_them() -> None:
    tokenizer: Any = tiny.tokenizer()
    parser = TurnParser(tokenizer)

    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(text=st.one_of(arguments(), st.sampled_from(sorted(SMALL.values()))), name=st.text(max_size=8))
    def read(text: Any, name: str) -> None:
        plain = text if isinstance(text, str) else json.dumps(text)
        turn = written(name, plain.encode(errors="replace").decode())
        found = parser.parse(tokenizer(turn)["input_ids"], prefix=[])
        assert found.calls or found.problem
        for made in found.calls:
            assert isinstance(made.arguments, dict)
            made.name.encode()
        (found.problem or found.text).encode()

    read()


def test_an_action_that_no_client_could_send_is_distinguished() -> None:
    game = OpenEnvGame()
    for odd in (nested(3_000), {"a": "\ud800"}, {"a": 10**5_000}):
        with pytest.raises(ValueError, match="cannot be sent"):
            game.check(odd)
    for well in ({"a": float("inf")}, "a text", object(), nested(100)):
        game.check(well)
