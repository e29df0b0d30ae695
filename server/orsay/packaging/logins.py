"""Detection of tokens and passwords in a text by their form."""

from __future__ import annotations

import re

__all__ = ["holds_password_in_url", "holds_token"]

_TOKEN = re.compile(
    rb"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{30}|sk-[\w-]{32}|gh[opsur]_[A-Za-z0-9]{36}|github_pat_\w{50}|glpat-[\w-]{20}"
    rb"|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35}|xox[abeprs]-[\w-]{20}|gsk_[A-Za-z0-9]{40}|pypi-AgE[\w-]{50})"
)
"""Tokens of Hugging Face, OpenAI and Anthropic, GitHub, GitLab, AWS, Google, Slack, Groq, PyPI."""
_LOGIN = re.compile(rb"(https?:)?//([^\s/@:]*+)(?:(:)([^\s/@]*+))?@")
# Variables, and placeholders for a password in documents.
_STAND_IN = re.compile(rb"\$\{?\w+\}?|%\w+%|\{[^}]*\}+|<[^>]*>|[*.x]+|(?i:password|passwd|token)")
_NO_PASSWORD = (b"", b"x-oauth-basic")  # of a URL with a token as user name
_TOKEN_BYTES = 16


def holds_token(text: bytes) -> bool:
    """True if the text contains a token of a service whose tokens have a fixed prefix."""
    return bool(_TOKEN.search(text))


def holds_password_in_url(text: bytes) -> bool:
    """True for a URL with a password, or with a token as user name; variables do not count."""
    for web, user, colon, password in _LOGIN.findall(text.replace(b"\0", b"")):
        if _STAND_IN.fullmatch(password):
            continue
        if password not in _NO_PASSWORD:
            return True
        if (web or colon) and len(user) >= _TOKEN_BYTES and not _STAND_IN.fullmatch(user):
            return True
    return False
