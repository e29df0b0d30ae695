"""Conversations that any endpoint takes."""

from __future__ import annotations

from typing import Any

import pytest
from orsay_eval import Opening
from orsay_eval.conversation import Conversation, model_names
from orsay_protocol import Message, TextBlock, ToolSpec


def conversation(*names: str) -> Conversation:
    tools = [ToolSpec(name=name, description="", input_schema=None) for name in names]
    return Conversation(Opening("test", 0, 0, [Message(role="user", blocks=[TextBlock(text="Go.")])], tools))


def says(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": list(calls)}


def test_names_are_those_that_endpoints_carry_and_all_different() -> None:
    found = model_names(["look", "look.at", "look/at", "look_at", "ünïcode", "x" * 80, "…"])
    assert found["look"] == "look" and found["look_at"] == "look_at"
    assert len(set(found.values())) == 7
    assert all(name.isascii() and 0 < len(name) <= 64 for name in found.values())
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") for name in found.values())


def test_a_tool_is_called_by_its_own_name() -> None:
    dialogue = conversation("look.at")
    seen = dialogue.tools[0]["function"]["name"]
    move = dialogue.add_answer(says({"id": "1", "function": {"name": seen, "arguments": "{}"}}), True)
    assert move.calls[0].name == "look.at"
    assert dialogue.messages[-1]["tool_calls"][0]["function"]["name"] == seen


def test_a_tool_without_arguments_has_a_schema_all_the_same() -> None:
    assert conversation("go").tools[0]["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("arguments", ["", None, "  ", "{}", {}])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    move = conversation("go").add_answer(
        says({"id": "1", "function": {"name": "go", "arguments": arguments}}), True
    )
    assert (dict(move.calls[0].input), move.calls[0].broken) == ({}, "")


def test_a_call_without_an_id_gets_one() -> None:
    dialogue = conversation("go")
    call = {"function": {"name": "go", "arguments": "{}"}}
    first, second = dialogue.add_answer(says(call, call), True).calls
    assert first.id and second.id and first.id != second.id
    assert [c["id"] for c in dialogue.messages[-1]["tool_calls"]] == [first.id, second.id]


def test_a_made_up_name_goes_back_as_one_that_endpoints_carry() -> None:
    dialogue = conversation("go")
    move = dialogue.add_answer(says({"id": "1", "function": {"name": "go there!", "arguments": "{"}}), True)
    assert "There is no tool 'go there!'" in move.calls[0].broken
    assert dialogue.messages[-1]["tool_calls"][0]["function"] == {"name": "go_there_", "arguments": "{}"}


def test_arguments_nested_without_end_are_reported_and_not_fatal() -> None:
    arguments = '{"a":' * 100_000
    move = conversation("go").add_answer(
        says({"id": "1", "function": {"name": "go", "arguments": arguments}}), True
    )
    assert "not valid JSON" in move.calls[0].broken and len(move.calls[0].broken) < 1000


def test_an_answer_of_nothing_is_kept_as_an_empty_text() -> None:
    dialogue = conversation("go")
    assert dialogue.add_answer({"role": "assistant", "content": None}, True).calls == []
    assert dialogue.messages[-1] == {"role": "assistant", "content": ""}
