from __future__ import annotations

from typing import Any

import pytest
from orsay_client import BadReward, ProtocolError, ToolRefused, parse
from orsay_protocol import ImageBlock, TextBlock, ToolOutput, ToolResultBlock


def test_unknown_keys_and_blocks_are_dropped() -> None:
    blocks = [
        {"type": "text", "text": "a", "color": "red"},
        {"type": "video", "url": "x"},
        {"type": "image", "data": "QUJD", "mimeType": "image/png"},
    ]
    output = {"blocks": blocks, "reward": 1, "finished": True, "metadata": {"k": 1}, "new": 1}
    assert parse.tool_output({"ok": True, "output": output, "new": 1}) == ToolOutput(
        blocks=[TextBlock(text="a"), ImageBlock(data="QUJD", mimeType="image/png")],
        reward=1.0,
        finished=True,
        metadata={"k": 1},
    )


def test_what_old_servers_leave_out_counts_as_absent() -> None:
    assert parse.tool_output({"ok": True, "output": {"blocks": []}}) == ToolOutput(blocks=[])
    listing = parse.listing({"tools": [{"name": "a", "description": None}]})
    assert listing.terminal_tool is None and listing.supports_score_group is None
    assert listing.tools[0].input_schema is None


@pytest.mark.parametrize(
    ("error", "reason", "expected"),
    [
        ("whatever", "episode_finished", "episode_finished"),
        ("Tool name collision: x", None, "name_collision"),
        ("1 validation error for X", None, "input_validation"),
        ("'x' is not a valid tool", None, "not_found"),
        ("x", "brand_new", "not_found"),
    ],
)
def test_the_reason_of_a_refusal_is_guessed_where_none_is_given(
    error: str, reason: str | None, expected: str
) -> None:
    with pytest.raises(ToolRefused) as refused:
        parse.tool_output({"ok": False, "error": error, "reason": reason})
    assert (refused.value.reason, refused.value.message) == (expected, error)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), 10**400, True, "1", [1]])
def test_a_reward_that_is_no_number_is_a_fault_and_never_nothing(reward: Any) -> None:
    with pytest.raises(BadReward):
        parse.tool_output({"ok": True, "output": {"blocks": [], "reward": reward}})


@pytest.mark.parametrize("raw", [None, 1, [], {"ok": True}, {"ok": True, "output": {"blocks": "x"}}])
def test_what_is_no_result_is_an_error_of_the_protocol(raw: Any) -> None:
    with pytest.raises(ProtocolError):
        parse.tool_output(raw)


def test_a_block_that_breaks_its_own_form_names_the_place() -> None:
    with pytest.raises(ProtocolError, match=r"TextBlock.*text"):
        parse.prompt([{"type": "text"}])


def test_messages_hold_nested_blocks() -> None:
    result = {
        "type": "tool_result",
        "tool_call_id": "c",
        "blocks": [{"type": "text", "text": "x"}, {"type": "new"}],
    }
    (message,) = parse.messages([{"role": "user", "blocks": [result], "extra": 1}])
    assert message.blocks == [ToolResultBlock(tool_call_id="c", blocks=[TextBlock(text="x")])]


def test_group_scores_are_as_many_as_the_candidates() -> None:
    assert (
        parse.scores({"scores": [{"reward": 1}, {"reward": 0.5, "metadata": {"a": 1}}]}, 2)[1].reward == 0.5
    )
    with pytest.raises(ProtocolError, match="2 candidates were sent, 1 scores"):
        parse.scores({"scores": [{"reward": 1}]}, 2)
    with pytest.raises(BadReward):
        parse.scores({"scores": [{"reward": None}]}, 1)
