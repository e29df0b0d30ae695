"""Detection of private keys in a text: also indented, quoted, with escaped line ends, or encoded.

The first line alone is not a key: base64 has to follow it.
"""

from __future__ import annotations

import base64
import re

__all__ = ["holds_private_key"]

_MARK = rb"-{4,5} ?BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_GAP = rb"(?:\\(?:[nrt]|u000[adAD]|x0[adAD])|[^A-Za-z0-9]){0,200}+"  # also quotes, commas, line ends as \n
_HEADER = rb"(?:[A-Za-z][A-Za-z0-9-]{1,30}: [^\r\n\\]{1,200}+(?=[\r\n\\])" + _GAP + rb"){0,6}+"
# Otherwise it is a word or a path: base64 of this length has a capital letter and a digit.
_BASE64 = rb"(?=[a-z0-9+/\\]{0,63}[A-Z])(?=[A-Za-z+/\\]{0,63}[0-9])(?:[A-Za-z0-9+/]|\\/){32}"

_KEY = re.compile(
    _MARK + _GAP + _HEADER + _BASE64 + rb"|-{5}BEGIN OpenVPN Static key V1-{5}" + _GAP + rb"[0-9a-f]{32}"
    rb"|PuTTY-User-Key-File-\d+: ?[\w@.-]+ *(?:[\r\n]|\\[nr])"
    rb"|AGE-SECRET-KEY-1[0-9A-Z]{3}"
)
_ENCODED = re.compile(rb"LS0tLS1CRUdJTi[A-Za-z0-9+/\s]{20,400}")
"""``-----BEGIN`` in base64, as in Kubernetes' Secrets and kubeconfig files."""


def holds_private_key(text: bytes) -> bool:
    """``text`` may be in UTF-8, UTF-16, UTF-32, or any other encoding with the letters of ASCII."""
    plain = text.replace(b"\0", b"")
    return bool(_KEY.search(plain)) or any(_KEY.search(_decoded(found)) for found in _ENCODED.findall(plain))


def _decoded(encoded: bytes) -> bytes:
    joined = b"".join(encoded.split())
    return base64.b64decode(joined[: len(joined) // 4 * 4])
