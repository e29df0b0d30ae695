"""Upload of a report to the journal of the environment's server."""

from __future__ import annotations

import json
from collections.abc import Mapping

import httpx
from orsay_client.redact import Redact
from orsay_protocol.evaluation import EvaluationReport
from orsay_protocol.headers import API_KEY

__all__ = ["send_report"]

_PATH = "/console/api"
_LIMIT_S = 60.0


async def send_report(
    report: EvaluationReport,
    url: str,
    *,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> str | None:
    """Send the report; returns None, or one sentence about the failure. Never raises."""
    sent = {**(headers or {}), "Content-Type": "application/json"}
    if api_key:
        sent[API_KEY] = api_key
    base = f"{url.rstrip('/')}{_PATH}"
    try:
        async with httpx.AsyncClient(timeout=_LIMIT_S, trust_env=False) as client:
            listed = await client.get(f"{base}/environments", headers=sent)
            named = report.model_copy(update={"environment": _name(listed, report.environment)})
            answer = await client.post(f"{base}/evaluations", content=named.model_dump_json(), headers=sent)
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        return f"the report did not reach the server's journal: {type(exc).__name__} {exc}".rstrip()
    if answer.is_success:
        return None
    if answer.status_code in (404, 405):
        return "the server keeps no journal of evaluations; the report is here only"
    if answer.status_code == 409:
        return "the server's journal is off; the report is here only"
    detail = Redact([api_key, *(headers or {}).values()])(_detail(answer))[:300]
    return f"the server's journal did not take the report ({answer.status_code}): {detail}"


def _name(listed: httpx.Response, wanted: str) -> str:
    """The environment's name in the journal; clients may use another one, such as in lower case."""
    try:
        entries = listed.json() if listed.is_success else []
        return next((str(entry["name"]) for entry in entries if entry["key"] == wanted), wanted)
    except (ValueError, TypeError, KeyError):
        return wanted


def _detail(answer: httpx.Response) -> str:
    try:
        found = answer.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return answer.text.strip()
    detail = found.get("detail", found) if isinstance(found, dict) else found
    return str(detail)
