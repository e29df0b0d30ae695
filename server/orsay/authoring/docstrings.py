"""Docstrings of tools: what a model is told of the tool, and of each parameter."""

from __future__ import annotations

from dataclasses import dataclass

import docstring_parser
from docstring_parser.common import DocstringExample, DocstringParam, DocstringRaises, DocstringReturns

__all__ = ["Docstring", "read_docstring"]


@dataclass(frozen=True, slots=True)
class Docstring:
    """What is told of a tool, and of its parameters by name."""

    description: str
    parameters: dict[str, str]


def read_docstring(text: str) -> Docstring:
    """Split off what the docstring says of parameters, results and errors, in any common style."""
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Docstring(text, {})
    if not any(isinstance(item, DocstringParam | DocstringReturns | DocstringRaises) for item in parsed.meta):
        return Docstring(text, {})
    parts = [parsed.short_description or ""]
    if parsed.long_description:
        parts.append(("\n" if parsed.blank_after_short_description else "") + parsed.long_description)
    parts.extend(
        f"\nExample:\n{item.description}"
        for item in parsed.meta
        if isinstance(item, DocstringExample) and item.description
    )
    parameters = {item.arg_name: item.description for item in parsed.params if item.description}
    return Docstring("\n".join(parts).strip(), parameters)
