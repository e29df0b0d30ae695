"""Names of headers, and the coding of X-Secrets."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping

from .texts import well_formed

__all__ = [
    "API_KEY",
    "BACKEND_STATE",
    "CODE",
    "FAULT",
    "FAULT_ID",
    "IDEMPOTENCY_KEY",
    "MOST_SECRETS",
    "MOST_SECRET_BYTES",
    "ORSAY",
    "RUN",
    "SECRETS",
    "SESSION_ID",
    "STATE",
    "TRACE",
    "BadSecrets",
    "check_secrets",
    "decode_secrets",
    "encode_secrets",
]

SESSION_ID = "X-Session-ID"
API_KEY = "X-API-Key"
SECRETS = "X-Secrets"
BACKEND_STATE = "X-Backend-State"
IDEMPOTENCY_KEY = "Idempotency-Key"
ORSAY = "X-Orsay"
"""Header of answers that create a session, of a server that honours Idempotency-Key."""
STATE = "X-Orsay-State"
"""Header of the answer of /create: ``ready``, or ``starting`` while setup runs."""
CODE = "X-Orsay-Code"
"""Header of refusals: the code of the refusal, for programs."""
FAULT = "X-Orsay-Fault"
FAULT_ID = "X-Orsay-Fault-Id"
RUN = "X-Orsay-Run"
TRACE = "X-Orsay-Trace"
"""Header of the answer of /create: id of the session in logs, the journal and traces."""


MOST_SECRETS = 64
"""Maximum number of secrets of one session: each costs a search in all its texts."""
MOST_SECRET_BYTES = 65_536
"""Maximum size of names and values together, in UTF-8."""


class BadSecrets(ValueError):
    """X-Secrets cannot be decoded, or is too large. The message never contains any part of the value."""


def encode_secrets(secrets: Mapping[str, str]) -> str:
    """Value of X-Secrets: base64 of ``{name: {"value": ..., "allowed_domains": []}}``."""
    payload = {name: {"value": value, "allowed_domains": []} for name, value in secrets.items()}
    return base64.b64encode(json.dumps(payload).encode()).decode()


def decode_secrets(header: str) -> dict[str, str]:
    """Names and values from X-Secrets, without lone surrogates; plain strings are accepted as values too.

    Raises BadSecrets.
    """
    try:
        payload = json.loads(base64.b64decode(header, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise BadSecrets("X-Secrets is not base64 of a JSON object") from None
    if not isinstance(payload, dict):
        raise BadSecrets('X-Secrets holds JSON that is no object; expected {name: {"value": ...}}')
    secrets = {}
    for name, entry in payload.items():
        value = entry.get("value") if isinstance(entry, dict) else entry
        if not isinstance(value, str):
            raise BadSecrets(f"X-Secrets: the entry {name!r} has no string value")
        if well_formed(name) != name or well_formed(value) != value:
            raise BadSecrets(
                f"X-Secrets: the entry {name!r} holds half of a surrogate pair, which is no text"
            )
        secrets[name] = value
    try:
        check_secrets(secrets)
    except ValueError as exc:
        raise BadSecrets(f"X-Secrets: {exc}") from None
    return secrets


def check_secrets(secrets: Mapping[str, object]) -> None:
    """Raises ValueError for too many or too large secrets; values that are not strings do not count."""
    if len(secrets) > MOST_SECRETS:
        raise ValueError(f"a session may have {MOST_SECRETS} secrets, not {len(secrets):,}")
    texts = [text for text in (*secrets, *secrets.values()) if isinstance(text, str)]
    size = sum(len(text.encode(errors="replace")) for text in texts)
    if size > MOST_SECRET_BYTES:
        raise ValueError(
            f"names and values of secrets may have {MOST_SECRET_BYTES:,} bytes together, not {size:,}"
        )
