"""The spellings in which programs write a text into another one."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

__all__ = ["ENCODINGS", "SPELLINGS", "as_json"]

Spell = Callable[[str], str]


def as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _ascii_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _repr(text: str) -> str:
    return repr(f"{text}'\"")[1:-4]  # with both quotes in the text, the style does not depend on it


def _ascii(text: str) -> str:
    return ascii(f"{text}'\"")[1:-4]


def _bytes(text: str) -> str:
    return repr(f"{text}'\"".encode())[2:-4]


def _capitals(text: str) -> str:
    return re.sub(r"\\u....", lambda match: match[0][:2] + match[0][2:].upper(), _ascii_json(text))


def _small(text: str) -> str:
    return re.sub("%..", lambda match: match[0].lower(), quote(text))


SPELLINGS: dict[str, Spell] = {
    "as it is": str,
    "JSON": as_json,
    "JSON in ASCII": _ascii_json,
    "JSON with capitals": _capitals,
    "JSON with slashes escaped": lambda text: as_json(text).replace("/", "\\/"),
    "JSON in JSON": lambda text: as_json(as_json(text)),
    "JSON in JSON in JSON": lambda text: _ascii_json(as_json(_ascii_json(text))),
    "repr": _repr,
    "repr without both quotes": lambda text: _repr(text).replace("\\'", "'"),
    "ascii": _ascii,
    "repr in JSON": lambda text: as_json(_repr(text)),
    "JSON in repr": lambda text: _repr(as_json(text)),
    "JSON in ASCII in repr": lambda text: _repr(_ascii_json(text)),
    "repr of bytes": _bytes,
    "repr of bytes in JSON": lambda text: as_json(_bytes(text)),
    "URL": quote,
    "URL without slashes": lambda text: quote(text, safe=""),
    "URL in small letters": _small,
    "form": quote_plus,
    "JSON in a URL": lambda text: quote(as_json(text)),
    "URL in JSON": lambda text: as_json(quote(text)),
    "URL in a URL": lambda text: quote(quote(text)),
    "HTML": html.escape,
    "HTML of repr": lambda text: html.escape(_repr(text)),
    "HTML of JSON": lambda text: html.escape(as_json(text)),
    "shell": lambda text: shlex.quote(f"{text} ")[1:-2],
    "shell with backslashes": lambda text: re.sub(r"([^\w\s.-]| )", r"\\\1", text),
    "SQL": lambda text: text.replace("'", "''"),
    "CSV": lambda text: text.replace('"', '""'),
}
ENCODINGS: dict[str, Spell] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
}
