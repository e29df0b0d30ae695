"""Odd answers of a model cost it a call, and never an episode or the evaluation."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from orsay_eval import Call, ChatModel, Evaluation, EvaluationReport, Turn, evaluate

from tests.evaluation.conftest import EnvServer
from tests.evaluation.test_evaluate import adds, solve
from tests.support.chat_endpoint import Answer, Endpoint, Script, call, say
from tests.support.odd_inputs import ARGUMENTS, INPUTS, NAMES, messages

pytestmark = pytest.mark.process

SUMS = 12  # tasks of the split


def first_then(odd: Mapping[str, Answer], then: Script) -> Script:
    """Each conversation begins with an answer of its own out of ``odd``, and goes on with ``then``."""
    left, lock = itertools.cycle(odd.values()), threading.Lock()

    def script(body: Mapping[str, Any]) -> Answer:
        if all(message["role"] == "user" for message in body["messages"]):
            with lock:
                return next(left)
        return then(body)

    return script


def play(env_server: EnvServer, endpoint: Endpoint, evaluation: Evaluation) -> EvaluationReport:
    model = ChatModel("scripted", base_url=endpoint.base_url, tries=1)
    return evaluate(evaluation, env_server.url, model, journal=False, concurrency=4)


def all_of(odd: Mapping[str, Any], **options: Any) -> Evaluation:
    """As many episodes as there are odd answers, or a few more."""
    return Evaluation("sums", k=-(-len(odd) // SUMS), **options)


def assert_each_lost_a_call(report: EvaluationReport, least: int) -> None:
    assert report.ended_at is not None and report.summary.episodes >= least
    for episode in report.episodes:
        assert (episode.fault, episode.reward, episode.stop) == (None, 1.0, "finished"), episode
        assert (episode.calls, episode.refused, episode.rewards) == (2, 1, [1.0]), episode


def test_arguments_that_no_tool_takes_are_refused_calls(env_server: EnvServer, endpoint: Endpoint) -> None:
    odd = {what: call(("note", text)) for what, text in ARGUMENTS.items()}
    endpoint.script = first_then(odd, adds)
    assert_each_lost_a_call(play(env_server, endpoint, all_of(odd)), len(odd))
    for body in endpoint.requests:
        for message in body["messages"]:
            for made in message.get("tool_calls", ()):
                assert isinstance(json.loads(made["function"]["arguments"]), dict)
        if body["messages"][-1]["role"] == "tool":
            assert len(body["messages"][-1]["content"]) > 10


def test_names_that_no_tool_has_are_refused_calls(env_server: EnvServer, endpoint: Endpoint) -> None:
    odd = {what: call((name, {"text": "x"})) for what, name in NAMES.items()}
    endpoint.script = first_then(odd, adds)
    assert_each_lost_a_call(play(env_server, endpoint, all_of(odd)), len(odd))


def test_arguments_that_are_objects_rather_than_texts_are_read_as_such(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    def answers(arguments: Any) -> Answer:
        return say(
            None, tool_calls=[{"id": "1", "type": "function", "function": {"name": "note", **arguments}}]
        )

    deep: Any = "x"
    for _ in range(300):
        deep = {"text": deep}
    given = [deep, {"text": "\ud800"}, {"text": 2**70}, [1], "[1]", 3, False, {"text": None}]
    odd = {str(place): answers({"arguments": one}) for place, one in enumerate(given)}
    endpoint.script = first_then({**odd, "none": answers({})}, adds)
    assert_each_lost_a_call(play(env_server, endpoint, all_of(odd)), len(odd))


def test_calls_of_other_kinds_without_ids_and_with_the_same_are_distinguished(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    note = {"function": {"name": "note", "arguments": '{"text": "x"}'}}
    made = [
        {"id": "same", "type": "function", **note},
        {"id": "same", "type": "function", **note},
        {"type": "function", **note},
        {"id": 7, "type": "function", **note},
        {"id": "\ud800", "type": "custom", "custom": {"name": "note", "input": '{"text": "x"}'}},
        {"id": "1", "type": "mcp", "server": "x"},
        {"id": "2", "type": "function", "function": "note"},
        {"id": "3", "type": "function", "function": None},
        None,
        "note",
    ]
    endpoint.script = first_then({"": say(None, tool_calls=made, finish="tool_calls")}, adds)
    [episode] = play(env_server, endpoint, Evaluation("sums", tasks=1)).episodes
    assert (episode.fault, episode.reward, episode.calls, episode.refused) == (None, 1.0, 11, 5)
    conversation = endpoint.requests[-1]["messages"][1:]
    ids = [one["id"] for one in conversation[0]["tool_calls"]]
    assert len(set(ids)) == len(made) and ids == [one["tool_call_id"] for one in conversation[1:]]


@pytest.mark.parametrize(
    "message",
    [
        {"content": None},
        {"content": ""},
        {"content": []},
        {"content": [{"type": "text", "text": "a\ud800"}, None, 3]},
        {"content": "a\ud800b\u2028"},
        {"content": 3},
        {"content": {"text": "x"}},
        {"content": "x", "tool_calls": "note"},
        {"content": "x", "tool_calls": {"function": {"name": "note"}}},
        {"content": "x", "reasoning_content": "\udfff", "refusal": 3, "audio": [], "role": None},
    ],
    ids=repr,
)
def test_a_message_of_any_shape_is_what_the_model_wrote(
    env_server: EnvServer, endpoint: Endpoint, message: dict[str, Any]
) -> None:
    endpoint.script = first_then({"": say(None, **message)}, adds)
    [episode] = play(env_server, endpoint, Evaluation("sums", tasks=1, nudges=1)).episodes
    assert (episode.fault, episode.reward, episode.turns) == (None, 1.0, 2)


@pytest.mark.parametrize("finish", ["tool_calls", "", None, "nobody knows", 3, ["stop"]], ids=repr)
def test_a_message_counts_however_it_finished(env_server: EnvServer, endpoint: Endpoint, finish: Any) -> None:
    endpoint.script = first_then({"": say("Let me think.", finish=finish)}, adds)
    [episode] = play(env_server, endpoint, Evaluation("sums", tasks=1, nudges=1)).episodes
    assert (episode.fault, episode.reward, episode.turns) == (None, 1.0, 2)


def test_the_last_message_is_handed_in_whatever_characters_it_has(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    endpoint.script = lambda body: say("one \ud800 three")
    [episode] = play(env_server, endpoint, Evaluation("essay", tasks=1)).episodes
    assert (episode.fault, episode.reward, episode.refused) == (None, 1.0, 0)
    report = evaluate(
        Evaluation("essay", tasks=1), env_server.url, lambda turn: "one two \udc00", journal=False
    )
    assert report.episodes[0].reward == 1.0


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "many",
        [],
        {},
        {"prompt_tokens": "many"},
        {"prompt_tokens": None, "completion_tokens_details": 3},
    ],
    ids=repr,
)
def test_tokens_that_were_not_counted_are_none(env_server: EnvServer, endpoint: Endpoint, usage: Any) -> None:
    def script(body: Mapping[str, Any]) -> Answer:
        return Answer({**json.loads(adds(body).content), "usage": usage})

    endpoint.script = script
    [episode] = play(env_server, endpoint, Evaluation("sums", tasks=1)).episodes
    assert (episode.reward, episode.tokens.input, episode.tokens.reasoning) == (1.0, 0, 0)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": None},
        {"choices": []},
        {"choices": "x"},
        {"choices": {"0": {}}},
        {"choices": [None]},
        {"choices": ["x"]},
        {"choices": [{}]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": "x"}]},
        [],
        "x",
        None,
        b'{"choices": ' + b"[" * 100_000,
        b'{"choices": [{"index": 1' + b"0" * 5_000 + b"}]}",
        b"\xff\xfe",
        b"",
    ],
    ids=lambda body: repr(body)[:40],
)
def test_an_answer_that_is_no_completion_loses_its_episode_alone(
    env_server: EnvServer, endpoint: Endpoint, body: Any
) -> None:
    left = itertools.count()
    endpoint.script = lambda asked: Answer(body) if next(left) == 1 else adds(asked)
    model = ChatModel("scripted", base_url=endpoint.base_url, tries=1)
    report = evaluate(Evaluation("sums", tasks=3), env_server.url, model, journal=False, concurrency=1)
    assert [episode.fault for episode in report.episodes] == [None, "model_error", None]
    assert report.episodes[1].reward is None


def test_whatever_the_message_is_the_episode_is_played_to_its_end(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    @settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(message=messages())
    def one(message: dict[str, Any]) -> None:
        endpoint.requests.clear()
        endpoint.script = first_then({"": say(None, **message)}, adds)
        report = play(env_server, endpoint, Evaluation("sums", tasks=1, nudges=1, max_turns=4))
        assert report.episodes[0].fault is None, report.episodes[0].fault_message

    one()


@pytest.mark.parametrize("kind", ["tuple", "call"])
def test_a_function_may_call_with_anything(env_server: EnvServer, kind: str) -> None:
    odd = [("note", given) for given in INPUTS.values()] + [(name, {"text": "x"}) for name in NAMES.values()]
    left = itertools.cycle(odd if kind == "call" else [one for one in odd if isinstance(one[0], str)])

    def policy(turn: Turn) -> Any:
        if turn.number:
            return solve(turn)
        name, given = next(left)
        return (name, given) if kind == "tuple" else Call(name, given)

    report = evaluate(
        all_of({str(place): one for place, one in enumerate(odd)}),
        env_server.url,
        policy,
        journal=False,
        concurrency=4,
    )
    assert_each_lost_a_call(report, len(odd))


def test_what_a_function_returns_and_raises_is_reported_whatever_it_is(env_server: EnvServer) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for odd in (deep, 10**5_000, {"\ud800"}, ("\ud800", 1, 2)):
        report = evaluate(
            Evaluation("sums", tasks=1), env_server.url, lambda turn, odd=odd: odd, journal=False
        )
        assert report.episodes[0].fault == "policy_error"

    def raises(turn: Turn) -> Any:
        raise ValueError("\ud800")

    assert (
        evaluate(Evaluation("sums", tasks=1), env_server.url, raises, journal=False).episodes[0].fault_message
    )
