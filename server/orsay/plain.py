"""Escaping of untrusted text for terminals and log lines."""

from __future__ import annotations

import re

__all__ = ["one_line", "safe"]

# Terminal controls (C0 except tab and newline, DEL, C1: U+009B is CSI), bidirectional controls, Unicode line
# separators, and lone surrogates.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")


def safe(text: str) -> str:
    """The text with control characters escaped, such as ``\\u001b``; idempotent.

    JSON and TOML use the same escapes, so the content of a document's strings does not change.
    """
    if text.isprintable():  # nearly always, and found in a fifth of the time
        return text
    return _STEERING.sub(_spelled, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """``safe`` on one line: for names and values."""
    return _STEERING.sub(_spelled, text).replace("\n", "\\n").replace("\t", "\\t")


def _spelled(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"
