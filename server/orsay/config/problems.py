"""Error messages for an invalid configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from ..suggest import did_you_mean

__all__ = ["HIDDEN", "Problem", "config_error", "explain", "without_credentials"]

_QUOTED = re.compile(r"'([^']*)'")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_LONGEST = 60
HIDDEN = "***"
_MESSAGES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be a text in quotation marks",
    "bool_type": "must be true or false",
    "tuple_type": 'must be a list, such as ["one", "two"]',
    "list_type": 'must be a list, such as ["one", "two"]',
    "dict_type": 'must be a table, such as { NAME = "value" }',
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
}


@dataclass(frozen=True)
class Problem:
    """One error. ``where`` is ``FILE:LINE``, ``variable NAME`` or empty."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


def config_error(problems: Iterable[Problem]) -> ConfigError:
    """One error for all problems, a line each, in the order of the file."""
    return ConfigError("\n".join(str(problem) for problem in problems))


def explain(key: str, error: Mapping[str, Any], *, secret: bool = False) -> str:
    """pydantic's message for a validation error of ``key``, without the value of a secret."""
    kind = str(error["type"])
    message = _MESSAGES.get(kind)
    if message is None:
        message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    if kind == "literal_error":
        message += did_you_mean(str(error["input"]), _QUOTED.findall(message), listed=False)
    elif kind == "string_pattern_mismatch":
        message = "must be a URL, such as http://host:8080" if key == "url" else message
    value = "" if secret else _shown(error["input"])
    return f"{key}{value}: {message}"


def without_credentials(text: str) -> str:
    """A URL without user name and password."""
    return _CREDENTIALS.sub(f"{HIDDEN}@", text)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list | tuple):
        return ""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else _quoted(value)
    return f" = {text}"


def _quoted(value: Any) -> str:
    text = f'"{without_credentials(value)}"' if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
