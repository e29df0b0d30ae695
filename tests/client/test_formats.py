from __future__ import annotations

from typing import Any, Literal

import pytest
from orsay_client import format_messages, format_tools
from orsay_protocol import (
    ImageBlock,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
)
from pydantic import BaseModel, Field


class Place(BaseModel):
    title: str
    zip: int | None = None


class Arguments(BaseModel):
    """What to do."""

    where: Place
    mode: Literal["a", "b"] = Field(default="a", description="Which one.")
    tags: list[str] = []
    anything: list[Any] | None = None
    extra: dict[str, int] = {}


TOOLS = [
    ToolSpec(name="go", description="Go.", input_schema=Arguments.model_json_schema()),
    ToolSpec(name="stop", description="Stop.", input_schema=None),
]

CONVERSATION = [
    Message(role="system", blocks=[TextBlock(text="Be good.")]),
    Message(role="user", blocks=[TextBlock(text="Look:"), ImageBlock(data="QUJD", mimeType="image/png")]),
    Message(
        role="assistant",
        blocks=[
            ReasoningBlock(text="hm", signature="sig"),
            TextBlock(text="I call."),
            ToolCallBlock(id="c1", name="go", input={"mode": "b"}),
        ],
    ),
    Message(
        role="user",
        blocks=[
            TextBlock(text="and?"),
            ToolResultBlock(tool_call_id="c1", blocks=[TextBlock(text="done")], is_error=True),
        ],
    ),
]


def test_openai_tools_are_flat_and_hold_no_choices() -> None:
    go, stop = format_tools(TOOLS, "openai")
    assert (go["type"], go["name"], go["description"]) == ("function", "go", "Go.")
    schema = go["parameters"]
    assert schema["properties"]["mode"] == {
        "default": "a",
        "description": "Which one.",
        "enum": ["a", "b"],
        "type": "string",
    }
    assert schema["properties"]["anything"] == {"default": None, "items": {}, "type": "array"}
    assert schema["properties"]["extra"] == {"default": {}, "type": "object"}
    assert schema["$defs"]["Place"]["properties"]["zip"] == {"default": None, "type": "integer"}
    assert stop == {"type": "function", "name": "stop", "description": "Stop.", "parameters": None}


def test_openai_chat_tools_are_nested() -> None:
    go, stop = format_tools(TOOLS, "openai_chat")
    flat = format_tools(TOOLS, "openai")[0]
    assert go == {"type": "function", "function": {k: v for k, v in flat.items() if k != "type"}}
    assert stop["function"]["parameters"] == {"type": "object", "properties": {}}


def test_anthropic_tools_keep_their_schema_but_for_titles() -> None:
    go, stop = format_tools(TOOLS, "anthropic")
    assert go["type"] == "custom"
    assert "title" not in go["input_schema"]
    assert go["input_schema"]["properties"]["anything"]["anyOf"] == [
        {"items": {}, "type": "array"},
        {"type": "null"},
    ]
    assert go["input_schema"]["properties"]["extra"]["additionalProperties"] == {"type": "integer"}
    assert stop["input_schema"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("format", ["openai", "openai_chat", "anthropic"])
def test_a_property_called_title_is_kept(format: Any) -> None:
    go = format_tools(TOOLS, format)[0]
    schema = go.get("parameters") or go.get("input_schema") or go["function"]["parameters"]
    assert schema["$defs"]["Place"]["properties"]["title"] == {"type": "string"}
    assert schema["$defs"]["Place"]["required"] == ["title"]


def test_data_inside_a_schema_is_left_alone() -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"enum": [{"title": "t", "not": 1}], "default": {"anyOf": 1}}},
    }
    tool = ToolSpec(name="x", description="", input_schema=schema)
    assert format_tools([tool], "openai")[0]["parameters"] == schema


def test_the_schema_given_is_not_changed() -> None:
    before = Arguments.model_json_schema()
    format_tools(TOOLS, "openai")
    assert TOOLS[0].input_schema == before


def test_openai_messages() -> None:
    assert format_messages(CONVERSATION, "openai") == [
        {"role": "system", "content": "Be good."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I call.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "go", "arguments": '{"mode": "b"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "user", "content": "and?"},
    ]


def test_anthropic_messages() -> None:
    assert format_messages(CONVERSATION, "anthropic") == {
        "system": "Be good.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "I call."},
                    {"type": "tool_use", "id": "c1", "name": "go", "input": {"mode": "b"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": "done"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "and?"},
                ],
            },
        ],
    }


def test_what_a_provider_cannot_say_is_an_error() -> None:
    late = [CONVERSATION[1], CONVERSATION[0]]
    with pytest.raises(ValueError, match="system message"):
        format_messages(late, "anthropic")
    image = ToolResultBlock(tool_call_id="c1", blocks=[ImageBlock(data="QUJD", mimeType="image/png")])
    with pytest.raises(ValueError, match="holds an image"):
        format_messages([Message(role="user", blocks=[image])], "openai")
    with pytest.raises(ValueError, match="text only"):
        picture = Message(role="system", blocks=[ImageBlock(data="QUJD", mimeType="image/png")])
        format_messages([picture], "anthropic")


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="openai, openai_chat, anthropic"):
        format_tools(TOOLS, "gemini")  # type: ignore[arg-type]  # on purpose
