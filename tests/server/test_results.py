"""What author code returns, as the models of the wire."""

import base64
from typing import Any

import numpy as np
import orsay_protocol
import PIL.Image
import pytest
from orsay import (
    GroupScore,
    ImageBlock,
    ListToolsOutput,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolOutput,
    ToolResultBlock,
    ToolSpec,
)
from orsay.authoring.results import flatten, to_blocks, to_listing, to_messages, to_output, to_scores
from pydantic import ValidationError

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def kinds(output: orsay_protocol.ToolOutput) -> list[str]:
    return [block.type for block in output.blocks]


def test_a_string_a_block_an_image_or_a_list_of_them_is_a_result() -> None:
    assert to_output("a", "act").blocks == [TextBlock(text="a")]
    assert to_output(TextBlock(text="a"), "act").blocks == [TextBlock(text="a")]
    mixed = to_output(
        ["a", TextBlock(text="b"), PNG, PIL.Image.new("RGB", (1, 1)), np.zeros((2, 2), np.uint8)], "act"
    )
    assert kinds(mixed) == ["text", "text", "image", "image", "image"]
    assert to_output(("a",), "act").blocks == [TextBlock(text="a")]
    assert to_output([], "act").blocks == []


def test_a_tool_output_is_passed_on_as_it_is() -> None:
    output = ToolOutput(blocks=[TextBlock(text="a")], reward=0.5, finished=True, metadata={"k": 1})
    assert to_output(output, "act") is output
    wire = orsay_protocol.ToolOutput(blocks=[])
    assert to_output(wire, "act") is wire


@pytest.mark.parametrize(
    "value", [None, 3, 1.5, True, {"a": 1}, object(), [None], {"type": "text"}, b"no image"]
)
def test_anything_else_is_a_type_error_that_names_the_tool(value: Any) -> None:
    with pytest.raises(TypeError, match="tool 'act'"):
        to_output(value, "act")


def test_none_is_reported_as_none() -> None:
    with pytest.raises(TypeError, match="found None"):
        to_output(None, "act")


def test_an_authors_tool_output_takes_strings_and_images_among_its_blocks() -> None:
    blocks: Any = ["a", TextBlock(text="b"), PIL.Image.new("L", (1, 1)), {"type": "text", "text": "c"}]
    assert kinds(ToolOutput(blocks=blocks)) == ["text", "text", "image", "text"]
    single: Any = "a"
    assert kinds(ToolOutput(blocks=single)) == ["text"]
    picture: Any = PNG
    assert kinds(ToolOutput(blocks=picture)) == ["image"]
    pair: Any = ("a", "b")
    assert kinds(ToolOutput(blocks=pair)) == ["text", "text"]


def test_an_authors_tool_output_refuses_the_rest() -> None:
    wrong: Any
    for wrong in ([3], None, [None], [b"x"]):
        with pytest.raises((ValidationError, TypeError)):
            ToolOutput(blocks=wrong)


def test_numpy_scalars_are_rewards() -> None:
    reward: Any
    for reward in (np.float32(0.5), np.float64(0.5), np.array(0.5)):
        assert ToolOutput(blocks=[], reward=reward).reward == 0.5
    finished: Any = np.bool_(True)
    assert ToolOutput(blocks=[], finished=finished).finished is True


def test_an_authors_tool_output_is_written_like_the_one_of_the_wire() -> None:
    ours = ToolOutput(blocks=[TextBlock(text="a")], reward=1)
    wire = orsay_protocol.ToolOutput(blocks=[TextBlock(text="a")], reward=1)
    success = orsay_protocol.RunToolSuccess(output=ours)
    assert success.model_dump_json() == orsay_protocol.RunToolSuccess(output=wire).model_dump_json()


def test_a_prompt_may_be_text_blocks_images_or_messages() -> None:
    assert to_blocks("a") == [TextBlock(text="a")]
    assert [block.type for block in to_blocks(["a", PNG, {"type": "text", "text": "b"}])] == [
        "text",
        "image",
        "text",
    ]
    assert to_blocks([]) == []
    assert to_blocks(Message(role="user", blocks=[TextBlock(text="a")])) == [TextBlock(text="a")]
    assert to_messages("a") == [Message(role="user", blocks=[TextBlock(text="a")])]
    conversation = [Message(role="system", blocks=[TextBlock(text="s")]), Message(role="user", blocks=[])]
    assert to_messages(conversation) == conversation
    assert to_messages([{"role": "user", "blocks": []}]) == [Message(role="user", blocks=[])]


def test_a_prompt_of_something_else_is_refused() -> None:
    for wrong in (None, 3, [3], object()):
        with pytest.raises(TypeError, match="found"):
            to_blocks(wrong)
        with pytest.raises(TypeError, match="found"):
            to_messages(wrong)
    with pytest.raises(TypeError, match="either messages or blocks"):
        to_messages([Message(role="user", blocks=[]), TextBlock(text="a")])


def test_one_plain_user_message_flattens_to_its_blocks() -> None:
    blocks = [TextBlock(text="a", detail={"k": 1}), ImageBlock(data="", mimeType="image/png")]
    assert flatten([Message(role="user", blocks=blocks)]) == blocks


def test_a_conversation_flattens_to_headers_and_text() -> None:
    conversation = [
        Message(role="system", blocks=[TextBlock(text="be kind")]),
        Message(
            role="assistant",
            blocks=[ReasoningBlock(text="hm"), ToolCallBlock(id="1", name="look", input={"at": "ö"})],
        ),
        Message(
            role="user",
            blocks=[
                ToolResultBlock(tool_call_id="1", blocks=[TextBlock(text="a cat")], is_error=True),
                ImageBlock(data="", mimeType="image/png"),
            ],
        ),
    ]
    flat = flatten(conversation)
    texts = [block.text if isinstance(block, TextBlock) else block.type for block in flat]
    assert texts == [
        "[system]",
        "be kind",
        "[assistant]",
        "<think>hm</think>",
        '[tool_call look] {"at": "ö"}',
        "[user]",
        "[tool_result (error)]",
        "a cat",
        "image",
    ]
    assert flat[0].detail == {"role": "system"}
    assert flat[4].detail == {"type": "tool_call", "id": "1"}


def test_scores_are_numbers_or_group_scores() -> None:
    assert [score.reward for score in to_scores([1, 0.5, np.float32(0.25), GroupScore(reward=2)], 4)] == [
        1,
        0.5,
        0.25,
        2,
    ]
    assert [score.reward for score in to_scores(np.array([1.0, 2.0]), 2)] == [1, 2]


@pytest.mark.parametrize("value", [None, "ab", {"a": 1}, [None, 1], ["1", 2]])
def test_other_scores_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="score"):
        to_scores(value, 2)


def test_a_score_for_each_candidate_is_needed() -> None:
    with pytest.raises(ValueError, match="1 scores for 2 candidates"):
        to_scores([1], 2)


def test_task_tools_are_a_listing_or_a_list_of_specs() -> None:
    spec = ToolSpec(name="a", description="", input_schema=None)
    assert to_listing([spec]).tools == [spec]
    assert to_listing(ListToolsOutput(tools=[spec])).tools == [spec]
    with pytest.raises(TypeError, match="ListToolsOutput"):
        to_listing(None)
