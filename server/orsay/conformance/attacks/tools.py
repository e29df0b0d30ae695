"""The tools that attacks use: one that runs commands, and one that ends the episode."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..failures import Unreachable
from ..inputs import fitting

__all__ = ["CommandTool", "FinalTool", "command_tools", "final_tool"]

_COMMAND_NAMES = (
    "bash",
    "shell",
    "terminal",
    "run_command",
    "execute_command",
    "exec_command",
    "run_bash",
    "execute_bash",
    "run_shell",
    "sh",
    "exec",
    "execute",
    "run",
    "command",
    "cmd",
    "python",
    "run_python",
    "execute_python",
    "ipython",
    "run_code",
    "execute_code",
    "code",
)
_COMMAND = re.compile("bash|shell|terminal|command|exec|^run|console|python|code", re.IGNORECASE)
_PARAMETERS = ("command", "cmd", "commands", "script", "code", "input", "keystrokes", "text")
_FINAL_NAMES = (
    "submit",
    "finish",
    "done",
    "submit_answer",
    "final_answer",
    "answer",
    "complete",
    "grade",
    "end",
)
_FINAL = re.compile("submit|finish|^done$|answer|complete|grade|^end|^final", re.IGNORECASE)
_TIME = re.compile("time|second|limit", re.IGNORECASE)

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CommandTool:
    """A tool that runs what ``parameter`` holds: a command of a shell, a list of words, or Python code.

    ``time`` names its parameter for a time limit, if it has one; ``unit_s`` is what that counts in.
    """

    name: str
    parameter: str
    form: Literal["shell", "words", "python"]
    base: Mapping[str, Any]
    time: str | None = None
    unit_s: float = 1.0

    def input(self, script: str, limit_s: float | None = None) -> dict[str, Any]:
        """The input that runs a script of a POSIX shell."""
        value: Any = script
        if self.form == "words":
            value = ["sh", "-c", script]
        elif self.form == "python":
            value = (
                "import subprocess\n"
                f"done = subprocess.run(['sh', '-c', {script!r}], stdout=-1, stderr=-2)\n"
                "print(done.stdout.decode('utf-8', 'replace'))\n"
            )
        more: dict[str, Any] = {}
        if limit_s is not None and self.time is not None:
            more[self.time] = int(limit_s / self.unit_s)
        return {**self.base, self.parameter: value, **more}


@dataclass(frozen=True, slots=True)
class FinalTool:
    """A tool that ends the episode, and the input for it."""

    name: str
    input: Mapping[str, Any]


def command_tools(specs: Sequence[Spec], asked: str | None = None) -> Iterator[CommandTool]:
    """Tools that may run commands, the likeliest first; of ``asked``, ``NAME[:PARAMETER]``, that one alone.

    Raises Unreachable if the one that was asked for is missing.
    """
    if asked is not None:
        name, _, parameter = asked.partition(":")
        spec = _named(specs, name)
        properties = _properties(spec)
        if parameter and parameter not in properties:
            raise Unreachable(
                f"the tool {name!r} has no parameter {parameter!r}; it has: {_listed(properties)}"
            )
        yield from _forms(spec, parameter or None)
        return
    likely = [spec for spec in specs if _COMMAND.search(spec["name"])]
    for spec in sorted(likely, key=lambda each: _rank(each["name"], _COMMAND_NAMES)):
        yield from _forms(spec, None)


def final_tool(specs: Sequence[Spec], asked: str | None = None) -> FinalTool | None:
    """The tool that ends the episode: the one asked for, else by its name. Raises Unreachable if missing."""
    if asked is not None:
        spec = _named(specs, asked)
        return FinalTool(spec["name"], fitting(spec.get("input_schema")))
    likely = [spec for spec in specs if _FINAL.search(spec["name"])]
    if not likely:
        return None
    spec = min(likely, key=lambda each: _rank(each["name"], _FINAL_NAMES))
    return FinalTool(spec["name"], fitting(spec.get("input_schema")))


def _forms(spec: Spec, parameter: str | None) -> Iterator[CommandTool]:
    schema = spec.get("input_schema") or {}
    properties = _properties(spec)
    time = next((name for name in properties if _TIME.search(name) and _numeric(properties[name])), None)
    unit_s = 0.001 if time is not None and re.search("_ms$|milli", time) else 1.0
    for name in [parameter] if parameter else _candidates(spec):
        base = {key: value for key, value in fitting(schema).items() if key != name}
        for key, described in properties.items():  # such as the description that some tools require
            if key in base and described.get("type") == "string" and not described.get("enum"):
                base[key] = "attack"
        if _types(properties[name]) & {"array"}:
            yield CommandTool(spec["name"], name, "words", base, time, unit_s)
            continue
        yield CommandTool(spec["name"], name, "shell", base, time, unit_s)
        yield CommandTool(spec["name"], name, "python", base, time, unit_s)


def _candidates(spec: Spec) -> list[str]:
    """Parameters that may hold the command: of the usual names, or the only required text."""
    properties = _properties(spec)
    fit = [name for name, each in properties.items() if _types(each) & {"string", "array"}]
    required = [name for name in (spec.get("input_schema") or {}).get("required") or [] if name in fit]
    named = [name for name in _PARAMETERS if name in fit]
    return named[:1] or (required if len(required) == 1 else [])


def _named(specs: Sequence[Spec], name: str) -> Spec:
    for spec in specs:
        if spec["name"] == name:
            return spec
    raise Unreachable(
        f"the environment has no tool {name!r}; it has: {_listed(each['name'] for each in specs)}"
    )


def _properties(spec: Spec) -> dict[str, Any]:
    return dict((spec.get("input_schema") or {}).get("properties") or {})


def _types(described: Mapping[str, Any]) -> set[str]:
    kinds = [described, *(described.get("anyOf") or [])]
    return {str(each["type"]) for each in kinds if isinstance(each.get("type"), str)}


def _numeric(described: Mapping[str, Any]) -> bool:
    return bool(_types(described) & {"integer", "number"})


def _rank(name: str, names: Sequence[str]) -> int:
    return names.index(name.lower()) if name.lower() in names else len(names)


def _listed(names: Any) -> str:
    return ", ".join(names) or "none"
