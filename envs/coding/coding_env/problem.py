"""Problem templates: parameters, wording, inputs, a reference, and a solution in each language."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from textwrap import dedent
from typing import Any, Literal, TypeAlias

__all__ = ["Form", "Instance", "Params", "Problem", "as_text", "size"]

Form: TypeAlias = Literal["function", "program"]
Params: TypeAlias = Mapping[str, Any]

_PLACE = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A template. Its inputs are lists of arguments for a function, and texts for a program."""

    name: str
    params: Callable[[Random], dict[str, Any]]
    """What is asked. Instances with the same parameters are the same, however they are worded."""
    statements: Sequence[str]
    """Wordings that ask the same, with ``{fields}`` for parameters and words."""
    draw: Callable[[Random, Params], Any]
    """A random input."""
    reference: Callable[..., Any]
    """The expected output: of the parameters and the arguments, or the text."""
    solutions: Mapping[str, str]
    """Sources by language, with ``{{fields}}`` for parameters and ``{{function}}``."""
    signature: str = ""
    """Of a function, without its name. Without one, the problem asks for a program."""
    words: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Choices of wording. ``function`` is the name of a function."""
    accepts: Callable[[Params, Any, Any], bool] | None = None
    """For a problem with several right outputs: parameters, input and output."""

    @property
    def form(self) -> Form:
        return "function" if self.signature else "program"


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A template with its parameters and its wording, in one language."""

    problem: Problem
    params: Params
    words: Mapping[str, str]
    statement: str
    language: str

    @property
    def function(self) -> str:
        """Name of the function; empty for a program."""
        return self.words.get("function", "")

    def text(self) -> str:
        """The statement in words."""
        fields = {name: as_text(value) for name, value in self.params.items()}
        return self.statement.format(**fields, **self.words)

    def solution(self) -> str:
        """Source of a right solution."""
        values = {**self.params, **self.words}
        source = dedent(self.problem.solutions[self.language]).lstrip()
        return _PLACE.sub(lambda found: as_text(values[found[1]]), source)

    def expected(self, value: Any) -> Any:
        """What the reference answers."""
        if self.problem.form == "function":
            return self.problem.reference(self.params, *value)
        return self.problem.reference(self.params, value)

    def stdin(self, value: Any) -> str:
        """An input as a solution reads it."""
        return json.dumps(value) if self.problem.form == "function" else str(value)

    def accepts(self, value: Any, output: bytes) -> bool:
        """True if ``output``, which may be anything, is right for the input ``value``."""
        if self.problem.form == "program":
            expected = str(self.expected(value)).encode()
            return _lines(output) == _lines(expected)
        try:
            found = json.loads(output)
        except (ValueError, RecursionError):
            return False
        if self.problem.accepts is not None:
            return self.problem.accepts(self.params, value, found)
        # As text: True is not 1, and 1.0 is not 1.
        return json.dumps(found, sort_keys=True) == json.dumps(self.expected(value), sort_keys=True)


def as_text(value: Any) -> str:
    """A parameter in a statement or a source: lists with commas."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def size(rng: Random, most: int, least: int = 0) -> int:
    """A length from ``least`` to ``most``; the smallest ones come more often."""
    return rng.choice((least, least + 1, *(rng.randint(least + 1, most) for _ in range(6))))


def _lines(output: bytes) -> list[bytes]:
    return [line.rstrip() for line in output.rstrip().split(b"\n")]
