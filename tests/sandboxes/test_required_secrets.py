"""Names of secrets, as the released ``openreward`` asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..support.config_server import FileServer, configured

openreward = pytest.importorskip("openreward", reason="needs the package openreward")

pytestmark = pytest.mark.process

CODE = '''
from orsay import Environment, tool

class Judged(Environment):
    """Has a judge."""

    splits = {"train": [{"id": 0}]}

    def __init__(self, task_spec, secrets={}):
        super().__init__(task_spec)
        self.key = secrets.get("OpenAI_API_key") or secrets.get("api_key")

    def prompt(self) -> str:
        return "Say it."

    @tool
    def say(self) -> str:
        """Say it."""
        return "said"
'''


@pytest.fixture
def served(tmp_path: Path) -> Iterator[FileServer]:
    (tmp_path / "judged_env.py").write_text(CODE)
    (tmp_path / "plain_env.py").write_text(CODE.replace("Judged", "Plain").replace("secrets.get", "{}.get"))
    text = (
        '[environments.judged]\nclass = "judged_env:Judged"\nserve = { judged = "jury" }\n'
        '[environments.plain]\nclass = "plain_env.py"\n'
    )
    with configured(tmp_path, text) as found:
        yield found


async def test_the_released_client_lists_them(served: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENREWARD_SESSION_URL", served.url)
    monkeypatch.setenv("OPENREWARD_API_URL", served.url)
    monkeypatch.setenv("OPENREWARD_DISABLE_UPDATE_CHECK", "1")
    environments = openreward.AsyncOpenReward(api_key="any").environments
    assert await environments.get("owner/jury").list_required_secrets() == ["openai_api_key"]
    assert await environments.get("plain").list_required_secrets() == []
    await environments.aclose()


def test_other_paths_are_not_taken(served: FileServer) -> None:
    with httpx.Client(base_url=served.url) as http:
        assert http.get("/v1/environments/o/unknown/required-secrets").status_code == 404
        assert http.get("/v1/environments/jury/required-secrets").status_code == 404
        assert http.get("/v1/environments/a/b/c/required-secrets").status_code == 404
        assert http.post("/v1/environments/o/jury/required-secrets").status_code == 405
