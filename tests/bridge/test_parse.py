"""Reading turns: what a template writes is read back, and what cannot be read is reported to the model."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

from orsay_trl.rollout.parse import Call, TurnParser
from orsay_trl.testing import tiny_model as tiny

from .templates import BOTH, chat

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look.",
        "parameters": {
            "type": "object",
            "properties": {
                "door": {"type": "integer", "description": "Which."},
                "word": {"type": "string", "description": "What."},
                "where": {"type": "object", "description": "Where."},
            },
            "required": ["door"],
        },
    },
}

NO_PARSER = {"muse_glimmer_training": "its checkpoint brings a response_template, TRL has none"}

ARGUMENTS: dict[str, Any] = {"door": 3, "word": "grün und 17", "where": {"floor": [1, 2], "far": True}}


def spoken(name: str, *messages: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Prompt and turn, as the template writes that turn of the model."""
    here = chat(name)
    start = [{"role": "user", "content": "Open door 3."}]
    prompt = here.form.prompt(start, [LOOK])
    opening = here.form.prompt(start)
    whole = here.form._render([*start, *messages])
    same = next((at for at, (a, b) in enumerate(zip(opening, whole, strict=False)) if a != b), len(opening))
    turn = whole[same:]
    last = max((at for at, token in enumerate(turn) if token in here.form.stop_ids), default=len(turn) - 1)
    return prompt, turn[: last + 1]


@pytest.mark.parametrize("name", [name for name in BOTH if name not in NO_PARSER])
def test_a_call_that_the_template_writes_is_read_back(name: str) -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": {"door": 3}}}
    prompt, turn = spoken(name, {"role": "assistant", "content": "", "tool_calls": [call]})
    parser = TurnParser(chat(name).tokenizer)
    assert parser.can_call
    found = parser.parse(turn, prefix=prompt, tools=[LOOK])
    assert found.calls == (Call("look", {"door": 3}),)
    assert found.problem is None


@pytest.mark.parametrize("name", [name for name in BOTH if name not in NO_PARSER])
def test_nested_arguments_and_foreign_letters_are_read_back(name: str) -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": ARGUMENTS}}
    prompt, turn = spoken(name, {"role": "assistant", "content": "", "tool_calls": [call]})
    found = TurnParser(chat(name).tokenizer).parse(turn, prefix=prompt, tools=[LOOK])
    assert found.calls == (Call("look", ARGUMENTS),)


@pytest.mark.parametrize("name", [name for name in BOTH if name not in NO_PARSER])
def test_plain_text_is_no_call(name: str) -> None:
    prompt, turn = spoken(name, {"role": "assistant", "content": "I am done."})
    found = TurnParser(chat(name).tokenizer).parse(turn, prefix=prompt, tools=[LOOK])
    assert (found.text, found.calls, found.problem) == ("I am done.", (), None)


def qwen3(text: str) -> Any:
    tokenizer: Any = tiny.tokenizer()
    ids = tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]
    prefix = tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return TurnParser(tokenizer).parse(ids, prefix=prefix, tools=[LOOK])


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "look", "arguments": {"door": 3\n</tool_call>',
        '<tool_call>\n{"name": "look", "arguments": [3]}\n</tool_call>',
        '<tool_call>\n{"arguments": {"door": 3}}\n</tool_call>',
        '<tool_call>\n{"name": 7}\n</tool_call>',
        "<tool_call>\nlook(3)\n</tool_call>",
        "<tool_call>\n" + "[" * 3000 + "\n</tool_call>",
        "<tool_call>",
        '<tool_call>\n["look"]\n</tool_call>',
    ],
)
def test_a_call_that_cannot_be_read_is_a_message_to_the_model(text: str) -> None:
    found = qwen3(text)
    assert found.calls == ()
    assert found.problem is not None
    assert "could not be read" in found.problem
    assert len(found.problem) < 500


def test_one_broken_call_among_several_calls_nothing() -> None:
    good = '<tool_call>\n{"name": "look", "arguments": {"door": 3}}\n</tool_call>\n'
    found = qwen3(good + "<tool_call>\nlook\n</tool_call>")
    assert found.calls == ()
    assert found.problem is not None


def test_several_calls_are_read_in_order() -> None:
    calls = "\n".join(
        f'<tool_call>\n{{"name": "look", "arguments": {{"door": {door}}}}}\n</tool_call>'
        for door in (3, 1, 2)
    )
    assert [call.arguments["door"] for call in qwen3("Let me see.\n" + calls).calls] == [3, 1, 2]


def test_arguments_may_be_missing_or_a_json_text() -> None:
    assert qwen3('<tool_call>\n{"name": "look"}\n</tool_call>').calls == (Call("look", {}),)
    text = '<tool_call>\n{"name": "look", "arguments": "{\\"door\\": 3}"}\n</tool_call>'
    assert qwen3(text).calls == (Call("look", {"door": 3}),)


def test_a_call_that_is_only_thought_about_is_not_made() -> None:
    found = qwen3("<think>\nI could write <tool_call>.\n</think>\n\nNo.")
    assert (found.text, found.calls, found.problem) == ("No.", (), None)


def test_the_tokenizer_is_left_as_it_was() -> None:
    tokenizer: Any = tiny.tokenizer()
    template = tokenizer.chat_template
    assert TurnParser(tokenizer).can_call
    assert getattr(tokenizer, "response_template", None) is None
    assert tokenizer.chat_template == template


def test_a_format_that_nobody_knows_has_text_only() -> None:
    tokenizer: Any = tiny.tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    parser = TurnParser(tokenizer)
    assert not parser.can_call
    ids = tokenizer("<tool_call>x</tool_call>")["input_ids"] + [tokenizer.eos_token_id]
    assert parser.parse(ids, prefix=[]).text == "<tool_call>x</tool_call>"


def test_a_response_template_of_the_tokenizer_counts() -> None:
    from trl.chat_template_utils import qwen3_template

    tokenizer: Any = tiny.tokenizer()
    tokenizer.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}"
    tokenizer.response_template = qwen3_template
    ids = tokenizer('<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>')["input_ids"]
    prefix = tokenizer("<|im_start|>assistant\n")["input_ids"]
    assert TurnParser(tokenizer).parse(ids, prefix=prefix).calls == (Call("look", {}),)
