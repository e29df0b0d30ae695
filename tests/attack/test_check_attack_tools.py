"""How attacks find the tools that they use, and read what a sandbox says."""

from __future__ import annotations

from typing import Any

import pytest
from orsay.conformance import Unreachable
from orsay.conformance.attacks import ATTACKS
from orsay.conformance.attacks.scripts import PRELUDE, hidden, seen_in
from orsay.conformance.attacks.tools import command_tools, final_tool

from tests.support.documentation import ROOT, cells


def spec(name: str, *required: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": "", "input_schema": schema}


TEXT = {"type": "string"}
WORDS = {"type": "array", "items": TEXT}
MAYBE_NUMBER = {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None}
MAYBE_TEXT = {"anyOf": [TEXT, {"type": "null"}], "default": None}


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        (spec("bash", "command", command=TEXT, timeout_s=MAYBE_NUMBER), {"command": "ls", "timeout_s": 5}),
        (
            spec(
                "Bash",
                "command",
                "description",
                command=TEXT,
                description=TEXT,
                timeout_ms={"type": "integer"},
            ),
            {"command": "ls", "description": "attack", "timeout_ms": 5000},
        ),
        (spec("shell", "command", command=WORDS), {"command": ["sh", "-c", "ls"]}),
        (spec("exec_command", "cmd", cmd=TEXT, workdir=MAYBE_TEXT), {"cmd": "ls"}),
        (spec("run_in_terminal", "what", what=TEXT, why=MAYBE_TEXT), {"what": "ls"}),
    ],
)
def test_a_tool_that_runs_commands_is_found(tool: dict[str, Any], given: dict[str, Any]) -> None:
    others = [spec("submit"), spec("view_file", "path", path=TEXT), spec("run_tests")]
    found = next(command_tools([*others, tool]))
    assert found.name == tool["name"]
    assert found.input("ls", 5.0) == given


def test_the_likelier_tool_comes_first_and_each_is_tried_as_python_too() -> None:
    specs = [spec("python", "code", code=TEXT), spec("bash", "command", command=TEXT)]
    assert [(each.name, each.form) for each in command_tools(specs)] == [
        ("bash", "shell"),
        ("bash", "python"),
        ("python", "shell"),
        ("python", "python"),
    ]


def test_a_tool_that_was_named() -> None:
    specs = [spec("act", "first", "second", first=TEXT, second=TEXT)]
    assert next(command_tools(specs, "act:second")).input("ls") == {"first": "attack", "second": "ls"}
    assert list(command_tools(specs)) == []
    for asked, said in (
        ("no", "no tool 'no'; it has: act"),
        ("act:third", "no parameter 'third'; it has: first"),
    ):
        with pytest.raises(Unreachable, match=said):
            next(command_tools(specs, asked))


def test_the_tool_that_ends_the_episode() -> None:
    answer = spec("final_answer", "answer", answer=TEXT)
    assert final_tool([spec("bash", "command", command=TEXT), answer]).input == {"answer": "1"}  # type: ignore[union-attr]  # found
    assert final_tool([answer, spec("submit")]).name == "submit"  # type: ignore[union-attr]  # found
    assert final_tool([spec("bash", "command", command=TEXT)]) is None
    assert final_tool([spec("leave")], "leave").name == "leave"  # type: ignore[union-attr]  # found


def test_what_a_sandbox_says_is_read_from_any_form() -> None:
    assert seen_in(PRELUDE) == {}
    plain = "noise\norsay-seen file /a b\r\norsay-seen end\n"
    assert seen_in(plain) == {"file": ["/a b"], "end": [""]}
    assert seen_in('{"stdout": "orsay-seen file /a\\norsay-seen file /b\\n"}')["file"] == ["/a", "/b"]


def test_a_script_that_searches_for_a_text_does_not_hold_it() -> None:
    assert "the answer" not in hidden(["the answer"], "/tmp/x")


def test_every_attack_is_documented_and_explained() -> None:
    documented = {row[0].strip("`"): row[1] for row in cells("attack.md")}
    assert {each.id: each.tried.removesuffix(".") for each in ATTACKS}.items() <= documented.items()
    assert len({each.id for each in ATTACKS}) == len(ATTACKS)
    for each in ATTACKS:
        assert each.matters.endswith(".") and each.change.endswith(".") and each.tried.endswith("."), each.id
    assert (ROOT / "docs" / "attack.md").read_text().count("| `") == len(ATTACKS)
