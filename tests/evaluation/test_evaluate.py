"""Models and policies play a real server's tasks, over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from orsay_client import BadRequest
from orsay_eval import (
    Call,
    ChatModel,
    Evaluation,
    EvaluationError,
    EvaluationReport,
    EvaluationStopped,
    ModelUnusable,
    RandomPolicy,
    Turn,
    discounted,
    evaluate,
    evaluate_async,
    load_report,
)
from orsay_eval.progress import Progress

from tests.evaluation.conftest import ENVIRONMENTS, EnvServer
from tests.interop.servers import serve
from tests.support.chat_endpoint import Answer, Endpoint, call, error, say
from tests.support.waiting import until

pytestmark = pytest.mark.process

SUM = re.compile(r"What is (\d+) plus (\d+)")


def last(body: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = body["messages"][-1]
    return found


def adds(body: Mapping[str, Any]) -> Answer:
    """Answers with the right sum at once."""
    question = next(m["content"] for m in body["messages"] if m["role"] == "user")
    found = SUM.search(question)
    assert found is not None
    return call(("answer", {"value": int(found[1]) + int(found[2])}))


def play(
    env_server: EnvServer, endpoint: Endpoint, evaluation: Evaluation, *, tries: int = 2, **options: Any
) -> EvaluationReport:
    model = ChatModel("scripted", base_url=endpoint.base_url, tries=tries)
    return evaluate(evaluation, env_server.url, model, journal=False, **options)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def solve(turn: Turn) -> Any:
    assert turn.task is not None
    return "answer", {"value": turn.task["a"] + turn.task["b"]}


# A model


def test_a_model_is_asked_with_the_prompt_and_the_tools_and_its_call_is_scored(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    endpoint.script = adds
    report = play(env_server, endpoint, Evaluation("sums", tasks=5, k=2))
    assert report.summary.mean_reward is not None
    assert (report.summary.mean_reward.mean, report.summary.episodes, report.summary.scored) == (1.0, 10, 10)
    body = endpoint.requests[0]
    assert body["model"] == "scripted" and body["messages"][0]["role"] == "user"
    tools = {tool["function"]["name"]: tool["function"] for tool in body["tools"]}
    assert set(tools) == {"peek", "note", "answer"}
    assert tools["answer"]["parameters"]["properties"]["value"]["type"] == "integer"
    assert not {"temperature", "seed", "max_tokens"} & set(body)


def test_tokens_turns_and_times_are_counted(env_server: EnvServer, endpoint: Endpoint) -> None:
    endpoint.script = adds
    summary = play(env_server, endpoint, Evaluation("sums", tasks=3)).summary
    tokens = summary.tokens
    assert (tokens.input, tokens.output, tokens.cached, tokens.reasoning) == (30, 15, 12, 6)
    assert summary.turns is not None and summary.turns.max == 1
    assert summary.latency is not None and 0 < summary.latency.p50 <= summary.latency.max
    assert summary.wall_seconds > 0


def test_sampling_options_reach_the_endpoint_and_each_attempt_has_a_seed_of_its_own(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    endpoint.script = adds
    model = ChatModel(
        "scripted",
        base_url=endpoint.base_url,
        api_key="key-of-the-model",
        temperature=0.5,
        top_p=0.9,
        max_tokens=77,
        seed=3,
        system="Be brief.",
        extra_body={"top_k": 20},
    )
    report = evaluate(Evaluation("sums", tasks=2, k=2), env_server.url, model, journal=False)
    for body in endpoint.requests:
        assert (body["temperature"], body["top_p"], body["max_tokens"], body["top_k"]) == (0.5, 0.9, 77, 20)
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert len({body["seed"] for body in endpoint.requests}) == 4
    assert set(endpoint.keys) == {"Bearer key-of-the-model"}
    assert "key-of-the-model" not in report.model_dump_json()
    assert report.settings["policy"]["temperature"] == 0.5


def test_an_endpoint_that_wants_the_limit_by_its_newer_name_gets_it(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    def script(body: Mapping[str, Any]) -> Answer:
        if "max_tokens" in body:
            return error(
                400, "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            )
        return adds(body)

    endpoint.script = script
    model = ChatModel("scripted", base_url=endpoint.base_url, max_tokens=50)
    report = evaluate(Evaluation("sums", tasks=2), env_server.url, model, journal=False)
    assert report.summary.scored == 2
    assert endpoint.requests[-1]["max_completion_tokens"] == 50


def test_arguments_that_are_no_json_are_answered_as_an_error_and_sent_back_as_json(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    def script(body: Mapping[str, Any]) -> Answer:
        if last(body)["role"] == "user":
            return call(("answer", '{"value": 0'))
        return adds(body)

    endpoint.script = script
    report = play(env_server, endpoint, Evaluation("sums", tasks=1))
    (episode,) = report.episodes
    assert (episode.reward, episode.turns, episode.refused) == (1.0, 2, 1)
    *_, assistant, result = endpoint.requests[1]["messages"]
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {}
    assert result["role"] == "tool" and result["tool_call_id"] == "call_0"
    assert "not valid JSON" in result["content"] and '{"value": 0' in result["content"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (("answer", "[1]"), "not a JSON object"),
        (("answer", '{"value": NaN}'), "not valid JSON"),
        (("answr", "{}"), "There is no tool 'answr'. Tools: answer, note, peek."),
        (("answer", '{"value": "many"}'), "value"),
    ],
    ids=["a list", "NaN", "an unknown tool", "a wrong type"],
)
def test_what_the_model_got_wrong_is_reported_to_it(
    env_server: EnvServer, endpoint: Endpoint, wrong: tuple[str, str], reason: str
) -> None:
    endpoint.script = lambda body: call(wrong) if last(body)["role"] == "user" else adds(body)
    (episode,) = play(env_server, endpoint, Evaluation("sums", tasks=1)).episodes
    assert (episode.reward, episode.refused, episode.fault) == (1.0, 1, None)
    assert reason in last(endpoint.requests[1])["content"]


def test_several_calls_of_one_answer_are_made_in_order_and_none_after_the_end(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    endpoint.script = lambda body: call(
        ("note", {"text": "one"}), ("peek", {}), ("answer", {"value": 0}), ("peek", {})
    )
    (episode,) = play(env_server, endpoint, Evaluation("sums", tasks=1, reward="sum")).episodes
    assert (episode.calls, episode.rewards, episode.reward, episode.turns) == (3, [0.25, 1.0], 1.25, 1)
    assert episode.finished and episode.stop == "finished"


def test_results_of_several_calls_go_back_each_to_its_own_call(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    def script(body: Mapping[str, Any]) -> Answer:
        if last(body)["role"] == "user":
            return call(("note", {"text": "a"}), ("note", {"text": "b"}))
        return adds(body)

    endpoint.script = script
    play(env_server, endpoint, Evaluation("sums", tasks=1))
    results = [(m["tool_call_id"], m["content"]) for m in endpoint.requests[1]["messages"][-2:]]
    assert results == [("call_0", "noted a"), ("call_1", "noted b")]


def test_images_are_content_parts_and_those_of_a_result_follow_it_from_the_user(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    endpoint.script = lambda body: (
        call(("answer", {"text": "a pixel"})) if len(body["messages"]) > 1 else call(("look", {}))
    )
    (episode,) = play(env_server, endpoint, Evaluation("pictures", tasks=1)).episodes
    assert episode.reward == 1.0
    text, picture = endpoint.requests[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is this?"}
    assert picture["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    result, shown = endpoint.requests[1]["messages"][-2:]
    assert (result["role"], result["content"]) == ("tool", "closer:\n[image: image/png]")
    assert shown["role"] == "user" and shown["content"][1]["type"] == "image_url"


def test_without_images_the_model_reads_their_names(env_server: EnvServer, endpoint: Endpoint) -> None:
    endpoint.script = lambda body: (
        call(("answer", {"text": "a pixel"})) if len(body["messages"]) > 1 else call(("look", {}))
    )
    play(env_server, endpoint, Evaluation("pictures", tasks=1, images=False))
    assert "image_url" not in json.dumps(endpoint.requests)
    assert "[image: image/png]" in json.dumps(endpoint.requests[0])


def test_reasoning_goes_back_to_the_model_unless_it_is_not_to(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    def script(body: Mapping[str, Any]) -> Answer:
        if last(body)["role"] == "user":
            found = json.loads(call(("peek", {})).content)
            found["choices"][0]["message"]["reasoning_content"] = "I wonder."
            return Answer(found)
        return adds(body)

    endpoint.script = script
    play(env_server, endpoint, Evaluation("sums", tasks=1))
    assert endpoint.requests[1]["messages"][-2]["reasoning_content"] == "I wonder."
    endpoint.requests.clear()
    model = ChatModel("scripted", base_url=endpoint.base_url, keep_reasoning=False)
    evaluate(Evaluation("sums", tasks=1), env_server.url, model, journal=False)
    assert "I wonder." not in json.dumps(endpoint.requests)


# How episodes end


def test_a_plain_answer_ends_the_episode_and_is_scored_as_unscored(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    endpoint.script = lambda body: say("It is three, I think.")
    (episode,) = play(env_server, endpoint, Evaluation("sums", tasks=1)).episodes
    assert (episode.reward, episode.stop, episode.fault, episode.turns) == (0.0, "no_tool_call", None, 1)
    (episode,) = play(env_server, endpoint, Evaluation("sums", tasks=1, unscored=-1.0)).episodes
    assert (episode.reward, episode.success) == (-1.0, False)


def test_an_unscored_episode_can_be_left_out_of_the_mean(env_server: EnvServer, endpoint: Endpoint) -> None:
    endpoint.script = lambda body: say("No.")
    report = play(env_server, endpoint, Evaluation("sums", tasks=2, unscored=None))
    assert report.summary.mean_reward is None and report.summary.scored == 2
    assert [episode.success for episode in report.episodes] == [None, None]


def test_a_model_can_be_nudged_to_go_on(env_server: EnvServer, endpoint: Endpoint) -> None:
    endpoint.script = lambda body: say("Hm.") if len(body["messages"]) < 3 else adds(body)
    (episode,) = play(env_server, endpoint, Evaluation("sums", tasks=1, nudges=1)).episodes
    assert (episode.reward, episode.turns) == (1.0, 2)
    assert "call one of the tools" in last(endpoint.requests[1])["content"]


def test_a_terminal_tool_takes_the_plain_answer(env_server: EnvServer, endpoint: Endpoint) -> None:
    endpoint.script = lambda body: say("one two three four")
    report = play(env_server, endpoint, Evaluation("essay"))
    assert [(e.reward, e.stop, e.finished) for e in report.episodes] == [
        (1.0, "finished", True),
        (0.0, "finished", True),
    ]
    assert "tools" not in endpoint.requests[0]  # a list of none is refused by some


def test_an_episode_ends_after_its_turns(env_server: EnvServer, endpoint: Endpoint) -> None:
    endpoint.script = lambda body: call(("peek", {}))
    (episode,) = play(env_server, endpoint, Evaluation("sums", tasks=1, max_turns=3)).episodes
    assert (episode.stop, episode.turns, episode.reward, episode.reward_sum) == ("max_turns", 3, 0.25, 0.75)


def test_an_answer_that_was_cut_off_is_no_answer_of_a_terminal_tool(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    endpoint.script = lambda body: say("one two three four", finish="length")
    report = play(env_server, endpoint, Evaluation("essay", tasks=1))
    assert [(e.reward, e.stop) for e in report.episodes] == [(0.0, "length")]


def test_a_full_context_ends_the_episode_with_what_it_has(env_server: EnvServer, endpoint: Endpoint) -> None:
    message = (
        "This model's maximum context length is 512 tokens. However, your prompt contains 600 input tokens"
    )
    endpoint.script = lambda body: call(("peek", {})) if len(body["messages"]) < 2 else error(400, message)
    (episode,) = play(env_server, endpoint, Evaluation("sums", tasks=1)).episodes
    assert (episode.stop, episode.reward, episode.fault) == ("context", 0.25, None)


@pytest.mark.parametrize(
    ("reward", "expected"),
    [("last", 1.0), ("sum", 1.5), ("max", 1.0), ("mean", 0.5), (discounted(0.5), 0.25 + 0.125 + 0.125)],
    ids=["last", "sum", "max", "mean", "discounted"],
)
def test_the_reward_policy_says_what_an_episode_is_worth(
    env_server: EnvServer, reward: Any, expected: float
) -> None:
    moves = [("peek", {}), ("peek", {}), ("answer", {"value": 0})]
    evaluation = Evaluation("sums", tasks=1, reward=reward)
    report = evaluate(evaluation, env_server.url, lambda turn: moves[turn.number], journal=False)
    if isinstance(reward, str):
        assert report.episodes[0].reward == pytest.approx(expected)
    else:
        assert report.episodes[0].reward == pytest.approx(0.25 + 0.5 * 0.25 + 0.25 * 1.0)


def test_a_reward_function_sees_the_episode(env_server: EnvServer) -> None:
    def short(episode: Any) -> float | None:
        return 1.0 / len(episode.rewards) if episode.finished and "Right" in episode.last_output else None

    report = evaluate(Evaluation("sums", tasks=2, reward=short), env_server.url, solve, journal=False)
    assert [episode.reward for episode in report.episodes] == [1.0, 1.0]
    assert "short" in report.settings["reward"]


# Faults


def test_an_overloaded_endpoint_is_asked_again(env_server: EnvServer, endpoint: Endpoint) -> None:
    def script(body: Mapping[str, Any]) -> Answer:
        if len(endpoint.requests) <= 2:
            return error(429 if len(endpoint.requests) == 1 else 500, "busy", retry_after_ms="1")
        return adds(body)

    endpoint.script = script
    (episode,) = play(env_server, endpoint, Evaluation("sums", tasks=1), tries=3).episodes
    assert (episode.reward, len(endpoint.requests), episode.turns) == (1.0, 3, 1)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (error(500, "the engine died", retry_after_ms="1"), "model_unavailable"),
        (error(429, "rate limit", retry_after_ms="1"), "model_unavailable"),
        (Answer(b'{"id": "chatcmpl-1", "choices": ['), "model_error"),
        (Answer({"error": {"message": "overloaded"}}), "model_error"),
        (error(400, "this one I do not like"), "model_refused"),
    ],
    ids=["500", "429", "broken JSON", "no choices", "400 after it answered others"],
)
def test_an_endpoint_without_an_answer_loses_the_episode_and_scores_nothing(
    env_server: EnvServer, endpoint: Endpoint, answer: Answer, fault: str
) -> None:
    endpoint.script = lambda body: answer if "6" in body["messages"][0]["content"] else adds(body)
    report = play(env_server, endpoint, Evaluation("sums", tasks=[0, 1, 2, 3]), concurrency=1)
    assert [episode.fault for episode in report.episodes] == [None, None, None, fault]
    lost = report.episodes[3]
    assert (lost.reward, lost.success, lost.stop) == (None, None, "fault") and lost.fault_message
    assert report.summary.faults == {fault: 1}
    assert report.summary.mean_reward is not None and report.summary.mean_reward.mean == 1.0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (error(401, "Incorrect API key provided"), "refuses the key"),
        (error(404, "The model `scripted` does not exist."), "is the model's name right"),
        (
            error(
                400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            ),
            "start vLLM with --enable-auto-tool-choice",
        ),
        (error(400, "unknown field"), "refused a request: "),
    ],
    ids=["401", "404", "vLLM without tools", "400"],
)
def test_an_endpoint_that_refuses_everything_ends_the_evaluation_with_what_to_do(
    env_server: EnvServer, endpoint: Endpoint, answer: Answer, reason: str
) -> None:
    endpoint.script = lambda body: answer
    with pytest.raises(ModelUnusable, match=re.escape(reason)):
        play(env_server, endpoint, Evaluation("sums"))


def test_an_endpoint_that_is_not_there_is_reported_at_once(env_server: EnvServer) -> None:
    model = ChatModel("m", base_url="http://127.0.0.1:9/v1", tries=100)
    with pytest.raises(ModelUnusable, match=r"cannot be reached .* does it run there"):
        evaluate(Evaluation("sums"), env_server.url, model, journal=False)


def test_without_the_package_a_model_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)  # as where it is not installed
    with pytest.raises(EvaluationError, match=r"pip install 'orsay\[eval\]'"):
        ChatModel("m")


def test_after_a_lost_worker_the_calls_are_made_again_and_the_model_is_not(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    endpoint.script = lambda body: call(("step", {}))
    (episode,) = play(env_server, endpoint, Evaluation("faulty", tasks=1, reward="sum")).episodes
    assert (episode.reward, episode.rewards, episode.retried) == (3.0, [1.0, 2.0], ["worker_lost"])
    assert (episode.fault, episode.turns, len(endpoint.requests)) == (None, 2, 2)
    assert episode.rollout == "test:0/0+1"


def test_a_session_that_answers_otherwise_than_the_lost_one_begins_the_attempt_anew(
    env_server: EnvServer,
) -> None:
    report = evaluate(Evaluation("moody", tasks=1), env_server.url, lambda turn: ("step", {}), journal=False)
    (episode,) = report.episodes
    assert episode.retried == ["worker_lost", "diverged"]
    assert (episode.fault, episode.reward, episode.turns) == (None, 1.0, 2)


def test_a_fault_that_a_fresh_session_cannot_cure_is_not_tried_again(env_server: EnvServer) -> None:
    report = evaluate(
        Evaluation("faulty", tasks=[1, 2]), env_server.url, lambda turn: ("step", {}), journal=False
    )
    broken, well = report.episodes
    assert (broken.fault, broken.retried, broken.reward) == ("tool_error", [], None)
    assert "this task is broken" in broken.fault_message
    assert (well.reward, report.summary.faults) == (2.0, {"tool_error": 1})
    assert report.summary.mean_reward is not None and report.summary.mean_reward.mean == 2.0


def test_nothing_but_faults_stops_the_evaluation_and_keeps_what_there_is(env_server: EnvServer) -> None:
    with pytest.raises(EvaluationStopped, match="the last 16 episodes were all lost to faults") as caught:
        evaluate(Evaluation("odd"), env_server.url, lambda turn: ("touch", {}), journal=False, concurrency=4)
    assert 16 <= caught.value.report.summary.episodes < 40
    assert caught.value.report.ended_at is None


def test_a_policy_that_raises_loses_its_episode_and_says_why(env_server: EnvServer) -> None:
    def fragile(turn: Turn) -> Any:
        return [("answer", {"value": 0})] if turn.index else 1 / 0

    report = evaluate(Evaluation("sums", tasks=2), env_server.url, fragile, journal=False)
    assert [episode.fault for episode in report.episodes] == ["policy_error", None]
    assert "ZeroDivisionError" in report.episodes[0].fault_message


def test_a_move_that_is_none_is_distinguished(env_server: EnvServer) -> None:
    report = evaluate(Evaluation("sums", tasks=1), env_server.url, lambda turn: 7, journal=False)
    assert "returned 7; a move is" in report.episodes[0].fault_message


def test_an_episode_waits_for_room_on_a_full_server(tmp_path: Path) -> None:
    async def slowly(turn: Turn) -> Any:
        await asyncio.sleep(1)  # the other one asks for a session meanwhile, and is refused
        return solve(turn)

    variables = {"EVALUATION_DIARY": str(tmp_path), "ORSAY_JOURNAL": "off", "ORSAY_MAX_SESSIONS": "1"}
    with serve(f"{ENVIRONMENTS}:Sums", options=["--workers", "1"], env=variables) as server:
        evaluation = Evaluation("sums", tasks=2, retries=0)
        report = evaluate(evaluation, server.url, slowly, concurrency=2, request_tries=1, journal=False)
    assert [(e.reward, e.fault, e.retried) for e in report.episodes] == [(1.0, None, [])] * 2
    assert max(episode.seconds for episode in report.episodes) > 2  # it waited, rather than being let in


# Policies


def test_a_function_solves_tasks_that_it_is_shown(env_server: EnvServer) -> None:
    report = evaluate(Evaluation("sums"), env_server.url, solve, journal=False)
    summary = report.summary
    assert (summary.n_tasks, summary.scored, report.model) == (12, 12, "solve")
    assert summary.mean_reward is not None and summary.mean_reward.mean == 1.0
    assert summary.success is not None and summary.success.low is not None and summary.success.low < 1.0


def test_an_async_function_and_a_class_play_too(env_server: EnvServer) -> None:
    async def later(turn: Turn) -> Any:
        await asyncio.sleep(0)
        return Call("answer", {"value": 0})

    class Twice:
        def __init__(self) -> None:
            self.peeked = False

        def __call__(self, turn: Turn) -> Any:
            if self.peeked:
                assert turn.observation == "It is a whole number."
                return solve(turn)
            self.peeked = True
            return "peek", None

    report = evaluate(Evaluation("sums", tasks=2), env_server.url, later, journal=False)
    assert [episode.reward for episode in report.episodes] == [1.0, 0.0]
    report = evaluate(Evaluation("sums", tasks=3), env_server.url, Twice, journal=False)
    assert [(e.turns, e.reward) for e in report.episodes] == [(2, 1.0)] * 3


def test_a_policy_may_give_up(env_server: EnvServer) -> None:
    (episode,) = evaluate(
        Evaluation("sums", tasks=1), env_server.url, lambda turn: None, journal=False
    ).episodes
    assert (episode.stop, episode.reward) == ("gave_up", 0.0)


def test_random_play_is_the_same_by_the_same_seed_and_differs_between_attempts(env_server: EnvServer) -> None:
    def rewards(seed: int) -> list[list[float]]:
        evaluation = Evaluation("sums", tasks=4, k=3, max_turns=6)
        report = evaluate(evaluation, env_server.url, RandomPolicy(seed), journal=False)
        assert report.summary.faults == {} and report.summary.scored == 12
        return [episode.rewards for episode in report.episodes]

    first = rewards(1)
    assert first == rewards(1) != rewards(2)
    assert len({tuple(played) for played in first}) > 1


# The whole


def test_sessions_are_labelled_and_traced(env_server: EnvServer) -> None:
    evaluation = Evaluation("sums", tasks=[3], k=2)
    report = evaluate(evaluation, env_server.url, solve, run="grpo-7", step=120, journal=False)
    assert (report.run, report.settings["step"]) == ("grpo-7", 120)
    assert [episode.rollout for episode in report.episodes] == ["test:3/0", "test:3/1"]
    assert len({episode.trace for episode in report.episodes}) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", episode.trace) for episode in report.episodes)
    assert all(episode.sid for episode in report.episodes)


def test_no_more_episodes_than_asked_are_played_at_the_same_time(
    env_server: EnvServer, endpoint: Endpoint
) -> None:
    both = threading.Barrier(3)

    def script(body: Mapping[str, Any]) -> Answer:
        both.wait(60)  # three at the same time, or never
        return adds(body)

    endpoint.script = script
    report = play(env_server, endpoint, Evaluation("sums"), concurrency=3)
    assert (report.summary.scored, endpoint.most_at_once) == (12, 3)


def test_progress_is_reported_with_the_mean_so_far(env_server: EnvServer) -> None:
    seen: list[Progress] = []
    evaluate(Evaluation("sums", tasks=3, k=2), env_server.url, solve, journal=False, on_progress=seen.append)
    assert [now.done for now in seen] == [0, 1, 2, 3, 4, 5, 6]
    assert (seen[0].mean, seen[0].last, seen[-1].mean, seen[-1].planned) == (None, None, 1.0, 6)
    assert seen[-1].per_minute > 0


def test_the_blocking_face_works_where_an_event_loop_runs(env_server: EnvServer) -> None:
    async def notebook() -> EvaluationReport:
        return evaluate(Evaluation("sums", tasks=1), env_server.url, solve, journal=False)

    assert asyncio.run(notebook()).summary.scored == 1


def test_an_interrupt_where_an_event_loop_runs_ends_the_evaluation(
    env_server: EnvServer, tmp_path: Path
) -> None:
    """As in a notebook: the interrupt reaches the thread that waits, and not the one that plays."""
    code = f"""
import asyncio, os, signal
from orsay_eval import Evaluation, evaluate

async def first_then_wait(turn):
    if turn.index:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(600)
    return "answer", {{"value": 0}}

async def notebook():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = dict(output="o.json", concurrency=1, journal=False)
    evaluate(Evaluation("sums", tasks=2), {env_server.url!r}, first_then_wait, **options)

try:
    asyncio.run(notebook())
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "interrupted\n", done.stderr
    assert load_report(tmp_path / "o.json").summary.scored == 1


async def test_the_async_face_leaves_no_session_when_it_is_cancelled(env_server: EnvServer) -> None:
    asked = asyncio.Event()

    async def waits(turn: Turn) -> Any:
        asked.set()
        await asyncio.sleep(600)

    work = asyncio.create_task(
        evaluate_async(Evaluation("slow", tasks=2), env_server.url, waits, journal=False)
    )
    await asyncio.wait_for(asked.wait(), 60)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    opened = (env_server.diary / "slow-opened").stat().st_size
    assert opened > 0
    await until(lambda: size(env_server.diary / "slow-closed") == opened)


def test_the_first_environment_is_played_when_none_is_named(env_server: EnvServer) -> None:
    assert evaluate(Evaluation(tasks=1), env_server.url, solve, journal=False).environment == "sums"


def test_a_split_or_a_task_that_is_not_there_is_reported(env_server: EnvServer) -> None:
    with pytest.raises(BadRequest, match="split"):
        evaluate(Evaluation("sums", split="nowhere"), env_server.url, solve, journal=False)
    with pytest.raises(EvaluationError, match="has 12 tasks, and none at 99"):
        evaluate(Evaluation("sums", tasks=[99]), env_server.url, solve, journal=False)


def test_more_tasks_than_there_are_is_noted(env_server: EnvServer) -> None:
    notes: list[str] = []
    report = evaluate(
        Evaluation("sums", tasks=99), env_server.url, solve, journal=False, on_note=notes.append
    )
    assert report.summary.n_tasks == 12 and notes == ["split 'test' has 12 tasks, not 99"]


def test_a_sample_is_drawn_by_its_seed(env_server: EnvServer) -> None:
    def drawn(seed: int) -> list[int]:
        evaluation = Evaluation("sums", tasks=5, sample=seed)
        return [e.index for e in evaluate(evaluation, env_server.url, solve, journal=False).episodes]

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(1) != [0, 1, 2, 3, 4]


def test_arguments_that_cannot_be_meant_are_refused(env_server: EnvServer) -> None:
    for options in ({"concurrency": 0}, {"step": 1}, {"resume": True}):
        with pytest.raises(EvaluationError):
            evaluate(Evaluation("sums"), env_server.url, solve, **options)
    with pytest.raises(EvaluationError, match="a policy is"):
        evaluate(Evaluation("sums"), env_server.url, "random")  # type: ignore[arg-type]  # on purpose


def test_a_server_without_a_journal_is_reported_in_one_line(env_server: EnvServer) -> None:
    notes: list[str] = []
    report = evaluate(Evaluation("sums", tasks=1), env_server.url, solve, on_note=notes.append)
    assert report.summary.scored == 1
    assert len(notes) == 1 and "journal" in notes[0] and "\n" not in notes[0]
