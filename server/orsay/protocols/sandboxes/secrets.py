"""Secrets that a request for a sandbox brings, for the variables that refer to them."""

from __future__ import annotations

import base64
import json

from ...http.opening import secrets_of
from ...http.request import Request

__all__ = ["sandbox_secrets"]

_OWN = frozenset({"api_key", "openreward_api_key"})
"""The service's own key, which nothing inside may read."""


def sandbox_secrets(request: Request) -> dict[str, str]:
    """Secrets by lower-case name, without the service's own key and without those for named domains only.

    Raises BadRequest.
    """
    secrets = secrets_of(request)
    if not secrets:
        return {}
    own = {value for name, value in secrets.items() if name.lower() in _OWN}
    entries = json.loads(base64.b64decode(request.header(b"x-secrets") or ""))
    return {
        name.lower(): value
        for name, value in secrets.items()
        if value not in own and not (isinstance(entries[name], dict) and entries[name].get("allowed_domains"))
    }
