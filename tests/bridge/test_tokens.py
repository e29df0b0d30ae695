"""Token assembly in each template that TRL trains with: sampled ids stay as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from orsay_trl.rollout.sampling import Sample
from orsay_trl.rollout.tokens import ChatFormat, TemplateError, Transcript, vendored_name
from orsay_trl.testing import tiny_model as tiny
from trl.chat_template_utils import supports_tool_calling

from .templates import BOTH, NO_TOOLS, TRAINING, chat

MANY = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

# Control characters and lone surrogates are no text; marks of templates would be read as what they are.
TEXT = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="<>|｜{}[]\"'`"), max_size=30
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 999) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["door", "code", "path"]), VALUES, max_size=3)
NAMES = st.sampled_from(["look", "open_door", "do-it"])
RESULT = st.one_of(TEXT, st.just("x")).map(lambda text: text.strip() or "ok")


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def check(transcript: Transcript, prompt: list[int], parts: list[tuple[list[int], int]]) -> None:
    """The completion is these parts one after another, and everything that a trainer gets fits."""
    assert transcript.prompt_ids == prompt
    assert transcript.completion_ids == [token for ids, _ in parts for token in ids]
    assert transcript.mask == [mine for ids, mine in parts for _ in ids]
    assert len(transcript.completion_ids) == len(transcript.mask) == len(transcript.logprobs)
    assert all(
        logprob == 0.0 for logprob, mine in zip(transcript.logprobs, transcript.mask, strict=True) if not mine
    )
    assert all(
        logprob < 0.0 for logprob, mine in zip(transcript.logprobs, transcript.mask, strict=True) if mine
    )


def sample(ids: list[int]) -> Sample:
    return Sample(ids, [-1.0 - at for at in range(len(ids))], "stop")


@pytest.mark.parametrize("name", BOTH)
@MANY
@given(data=st.data())
def test_turns_and_tool_results_are_put_together_without_a_token_changed(
    name: str, data: st.DataObject
) -> None:
    here = chat(name)
    form = here.form
    prompt = form.prompt([{"role": "user", "content": data.draw(RESULT)}], [call_schema("look")])
    transcript = Transcript(prompt)
    parts: list[tuple[list[int], int]] = []
    ends = sorted(form.stop_ids)
    words = st.lists(st.integers(0, len(here.tokenizer) - 1), max_size=12)
    for _ in range(data.draw(st.integers(1, 3))):
        before = transcript.ids
        turn = [token for token in data.draw(words) if token not in form.stop_ids] + [
            data.draw(st.sampled_from(ends))
        ]
        transcript.sampled(sample(turn))
        parts.append((turn, 1))
        assert transcript.ids == before + turn
        results = data.draw(st.lists(RESULT, min_size=1, max_size=3))
        tool = data.draw(NAMES)
        between = form.between(turn, [{"role": "tool", "name": tool, "content": text} for text in results])
        transcript.given(between)
        parts.append((between, 0))
        decoded = here.text(between)
        for text in results:  # templates may write results as JSON
            assert (
                text in decoded
                or json.dumps(text) in decoded
                or json.dumps(text, ensure_ascii=False) in decoded
            )
        check(transcript, prompt, parts)


@pytest.mark.parametrize("name", TRAINING)
@MANY
@given(data=st.data())
def test_turns_and_messages_of_the_user_are_put_together_without_a_token_changed(
    name: str, data: st.DataObject
) -> None:
    here = chat(name)
    prompt = here.form.prompt([{"role": "user", "content": data.draw(RESULT)}])
    transcript = Transcript(prompt)
    parts: list[tuple[list[int], int]] = []
    for _ in range(data.draw(st.integers(1, 3))):
        turn = [
            *here.ids(data.draw(TEXT)),
            data.draw(st.sampled_from(sorted(here.form.stop_ids))),
        ]
        transcript.sampled(sample(turn))
        text = data.draw(RESULT)
        between = here.form.between(turn, [{"role": "user", "content": text}])
        transcript.given(between)
        parts += [(turn, 1), (between, 0)]
        assert text in here.text(between)
        check(transcript, prompt, parts)


# Whose re-rendering is no yardstick, and why; what is sampled is kept there all the same.
_OTHERWISE = {
    "deepseekv3_training": "opens turns with <think>, and shows turns without reasoning otherwise",
    "nemotron_3_nano_training": "opens turns with <think> and shows them later as <think></think>",
    "nemotron_3_super_training": "opens turns with <think> and shows them later as <think></think>",
    "nemotron_3_ultra_training": "opens turns with <think> and shows them later as <think></think>",
    "nemotron_3_5_lightning_training": "opens turns with <think> and shows them later as <think></think>",
    "qwen3_5_think_training": "opens turns with <think>, and shows turns without reasoning otherwise",
    "qwen3_6_training": "opens turns with <think>, and shows turns without reasoning otherwise",
    "qwen3_8_training": "opens turns with <think>, and shows turns without reasoning otherwise",
}


@pytest.mark.parametrize("name", [name for name in BOTH if name not in _OTHERWISE])
@MANY
@given(data=st.data())
def test_the_transcript_is_what_the_template_renders_of_the_whole_conversation(
    name: str, data: st.DataObject
) -> None:
    """The model says exactly what the template would have it say; then nothing distinguishes the two."""
    here = chat(name, merges=False)
    form = here.form
    messages: list[Any] = [{"role": "user", "content": data.draw(RESULT)}]
    transcript = Transcript(form.prompt(messages))
    for _ in range(data.draw(st.integers(1, 3))):
        tool = data.draw(NAMES)
        turn_message = {"role": "assistant", "content": "", "tool_calls": [call(tool, data.draw(ARGUMENTS))]}
        results = [{"role": "tool", "name": tool, "content": data.draw(RESULT)}]
        rendered = form._render([*messages, turn_message])
        assert rendered[: len(transcript.ids)] == transcript.ids
        turn = rendered[len(transcript.ids) :]
        last = max((at for at, token in enumerate(turn) if token in form.stop_ids), default=len(turn) - 1)
        transcript.sampled(sample(turn[: last + 1]))
        messages += [turn_message, *results]
        transcript.given(form.between(turn[: last + 1], results))
        assert transcript.ids == form.prompt(messages)


def call_schema(name: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "Look.",
            "parameters": {
                "type": "object",
                "properties": {"door": {"type": "integer", "description": "Which."}},
                "required": ["door"],
            },
        },
    }


def test_every_template_of_trl_is_tried_or_has_a_reason_not_to_be() -> None:
    for name in TRAINING:
        tokenizer = chat(name).tokenizer
        try:
            can = supports_tool_calling(tokenizer)
        except Exception:
            can = False
        assert can == (name not in NO_TOOLS), name
    assert len(TRAINING) >= 30


# They carry results, only not calls, and no call can be read with them in the first place.
_RESULTS_ONLY = {
    "deepseek_r1_distill_training",
    "lfm2_training",
    "llama3_training",
    "qwen2_5_vl_training",
}


@pytest.mark.parametrize("name", sorted(NO_TOOLS.keys() - _RESULTS_ONLY))
def test_a_template_without_tools_says_so_rather_than_lose_the_result(name: str) -> None:
    form = chat(name).form
    end = min(form.stop_ids)
    with pytest.raises(TemplateError, match=name):
        form.between([end], [{"role": "tool", "name": "look", "content": "17"}])


def test_a_turn_that_was_cut_off_is_closed_by_a_token_that_is_not_trained_on() -> None:
    form = chat("qwen3_training").form
    reply = [{"role": "tool", "name": "look", "content": "17"}]
    end = form._tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert form.between([5, 6], reply) == [end, *form.between([5, 6, end], reply)]


def test_the_end_that_a_template_puts_before_a_result_is_not_put_twice() -> None:
    """GLM's model ends its call with the very mark that the result begins with."""
    for name in ("glm4moe", "glm4moe_training"):
        here = chat(name)
        mark = here.tokenizer.convert_tokens_to_ids("<|observation|>")
        between = here.form.between([5, mark], [{"role": "tool", "name": "look", "content": "17"}])
        assert mark not in between
        assert here.text(between) == "\n<tool_response>\n17\n</tool_response><|assistant|>"


def test_gemma_continues_within_the_turn_that_called() -> None:
    here = chat("gemma4_v5")
    opened, closed = (here.tokenizer.convert_tokens_to_ids(mark) for mark in ("<|tool_response>", "<turn|>"))
    reply = [{"role": "tool", "name": "look", "content": "17"}]
    inside = here.form.between([5, opened], reply)
    assert here.text(inside).startswith("response:look{")
    assert here.form.between([5, closed], reply) == [opened, *inside]


def test_gpt_oss_ends_its_last_turn_on_another_mark_than_earlier_ones() -> None:
    here = chat("gptoss_training")
    end = here.tokenizer.convert_tokens_to_ids("<|return|>")
    text = here.text(here.form.between([5, end], [{"role": "user", "content": "17"}]))
    assert text == "<|start|>user<|message|>17<|end|><|start|>assistant"


def test_a_template_that_changes_earlier_turns_is_named() -> None:
    tokenizer: Any = tiny.tokenizer()
    form = ChatFormat(tokenizer, template=tokenizer.chat_template)
    with pytest.raises(TemplateError, match="'qwen3' renders a turn of the model otherwise"):
        form.between([5, tokenizer.eos_token_id], [{"role": "user", "content": "more"}])


def test_the_training_version_of_a_template_is_used_where_trl_has_one() -> None:
    assert vendored_name(ChatFormat(tiny.tokenizer()).template) == "qwen3_training"


def test_a_tokenizer_without_a_template_is_refused() -> None:
    tokenizer: Any = tiny.tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(TemplateError, match="no chat template"):
        ChatFormat(tokenizer)


def test_logprobs_that_do_not_fit_the_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="2 ids and 1 logprobs"):
        Transcript([1]).sampled(Sample([5, 6], [-1.0], "stop"))


def test_a_masked_transcript_is_never_empty() -> None:
    empty = Transcript([1, 2]).masked(9)
    assert (empty.completion_ids, empty.mask, empty.logprobs) == ([9], [0], [0.0])
    played = Transcript([1])
    played.sampled(Sample([5, 6], [-1.0, -2.0], "stop"))
    assert played.masked(9) == Transcript([1], [5, 6], [0, 0], [0.0, 0.0])
