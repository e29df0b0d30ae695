"""Reports in the journal of the server that was played."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from orsay_eval import Evaluation, EvaluationReport, evaluate
from orsay_eval.journal import send_report

from tests.evaluation.conftest import ENVIRONMENTS
from tests.evaluation.test_evaluate import solve
from tests.interop.servers import ROOT, serve
from tests.support.chat_endpoint import Endpoint

pytestmark = pytest.mark.process

KEY = "key-of-somebody"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a journal, behind a key."""
    folder = tmp_path_factory.mktemp("journal")
    variables = {
        "ORSAY_JOURNAL": str(folder / "journal.db"),
        "ORSAY_API_KEYS": f'["{KEY}"]',
        "EVALUATION_DIARY": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    with serve(f"{ENVIRONMENTS}:Sums", options=["--workers", "1"], env=variables) as server:
        yield server.url


def played(url: str, name: str) -> tuple[EvaluationReport, list[str]]:
    notes: list[str] = []
    report = evaluate(
        Evaluation("sums", tasks=3, k=2), url, solve, name=name, api_key=KEY, on_note=notes.append
    )
    return report, notes


def test_the_report_is_in_the_journal_as_it_was_sent(url: str) -> None:
    report, notes = played(url, "first")
    assert notes == []
    headers = {"X-API-Key": KEY}
    listed = httpx.get(f"{url}/console/api/evaluations", headers=headers).json()
    entries = listed if isinstance(listed, list) else listed["items"]
    (entry,) = [entry for entry in entries if entry["name"] == "first"]
    found = httpx.get(f"{url}/console/api/evaluations/{entry['id']}", headers=headers).json()
    whole = found.get("report", found)
    assert EvaluationReport.model_validate(whole) == report.model_copy(update={"environment": "Sums"})


def test_its_sessions_are_in_the_journal_under_its_run(url: str) -> None:
    report, _ = played(url, "second")
    answer = httpx.get(
        f"{url}/console/api/trajectories",
        params={"run": "second", "environment": "Sums"},
        headers={"X-API-Key": KEY},
    ).json()
    sessions = {item["sid"]: item for item in answer["items"]}
    assert set(sessions) == {episode.sid for episode in report.episodes}
    for episode in report.episodes:
        item = sessions[episode.sid]
        assert (item["task"], item["rollout"], item["trace"]) == (
            episode.task,
            episode.rollout,
            episode.trace,
        )
        assert (item["reward"], item["finished"]) == (episode.reward, True)


async def test_a_refusal_is_reported_in_a_sentence(url: str, endpoint: Endpoint) -> None:
    report, _ = played(url, "third")
    reported = await send_report(report, url, api_key="another")
    assert reported is not None and "(401)" in reported
    reported = await send_report(report, endpoint.base_url)
    assert reported == "the server keeps no journal of evaluations; the report is here only"
    reported = await send_report(report, "http://127.0.0.1:9")
    assert reported is not None and reported.startswith(
        "the report did not reach the server's journal: ConnectError"
    )
    assert await send_report(report, f"{url}/", api_key=KEY) is None


def test_a_journal_that_is_off_is_reported(tmp_path: Path) -> None:
    variables = {"ORSAY_JOURNAL": "off", "EVALUATION_DIARY": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with serve(f"{ENVIRONMENTS}:Sums", options=["--workers", "1"], env=variables) as server:
        notes: list[str] = []
        evaluate(Evaluation("sums", tasks=1), server.url, solve, on_note=notes.append)
    assert notes == ["the server's journal is off; the report is here only"]
