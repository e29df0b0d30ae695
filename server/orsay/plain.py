"""Text from outside, made fit for a terminal and for a line of a log."""

from __future__ import annotations

import re

__all__ = ["one_line", "safe"]

# What steers a terminal (C0 but for tab and newline, DEL, C1: U+009B alone is CSI), what turns the direction
# of the text around it, what some readers take for the end of a line, and halves of characters, which cannot
# be written at all.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")


def safe(text: str) -> str:
    """The text with what would steer a terminal spelled out, such as ``\\u001b``; nothing is done twice.

    JSON and TOML spell it so too: a document that holds such characters in its strings stays what it is.
    """
    return _STEERING.sub(_spelled, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The text as ``safe`` returns it, on one line: for names and values."""
    return _STEERING.sub(_spelled, text).replace("\n", "\\n").replace("\t", "\\t")


def _spelled(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"
