"""``evaluate``: the asynchronous function and its blocking form."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from orsay_client import AsyncClient, Retry
from orsay_protocol.evaluation import EvaluationReport

from .definition import Evaluation
from .errors import EvaluationError, EvaluationStopped
from .journal import send_report
from .moves import Policy
from .progress import Progress
from .scripted import ScriptedPolicy
from .work import TooManyLost, Work

__all__ = ["evaluate", "evaluate_async"]


async def evaluate_async(
    evaluation: Evaluation,
    url: str,
    policy: Policy | Callable[..., Any],
    *,
    name: str | None = None,
    run: str | None = None,
    step: int | None = None,
    concurrency: int = 32,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    request_tries: int = 6,
    output: str | os.PathLike[str] | None = None,
    resume: bool = False,
    journal: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> EvaluationReport:
    """Play the evaluation's tasks on the server at ``url`` with ``policy``, and return the report.

    Args:
        evaluation: What is measured.
        url: Any ORS server.
        policy: A ``ChatModel``, a ``RandomPolicy``, a function of the ``Turn``, or anything that is a
            ``Policy``.
        name: Name of the report; by default the run's.
        run: Label of the sessions, by default the name, else made of environment, split, model and time.
        step: Label of the sessions, for a model in training.
        concurrency: Episodes at the same time.
        api_key: Key of the environment server, sent to no other.
        headers: Sent with each request to that server.
        secrets: Handed to each session's environment, and to nothing else.
        request_tries: How often a request is sent to a server that does not answer.
        output: Where the report is written as JSON. Episodes are kept beside it as they end.
        resume: Play what ``output`` lacks: what was not played, or was lost to faults.
        journal: Send the report to the server's journal, where it has one.
        on_progress: Called at the beginning, and when an episode ends.
        on_note: Called with a sentence for each notice.

    Raises EvaluationError if the evaluation cannot be done as requested, ModelUnusable if the model's
    endpoint refuses everything, EvaluationStopped if many episodes in a row are lost to faults, and
    OrsayClientError if the server refuses. A cancelled evaluation writes the partial report, and raises
    CancelledError.
    """
    if concurrency < 1:
        raise EvaluationError(f"concurrency must be at least 1, not {concurrency}")
    if step is not None and run is None:
        raise EvaluationError("a step belongs to a run: name the run too")
    if resume and output is None:
        raise EvaluationError("to resume, name the report: its output")
    player = _policy(policy)
    client = AsyncClient(url, api_key=api_key, headers=headers, retry=Retry(tries=request_tries))
    work = Work(evaluation, player, concurrency, on_progress, on_note, Path(output) if output else None)
    lost: TooManyLost | None = None
    async with client:
        try:
            await work.prepare(client, name=name, run=run, step=step, resume=resume, secrets=secrets)
            try:
                await work.play_all()
            except TooManyLost as exc:
                lost = exc
            finally:
                report = work.finish()
        finally:
            await player.aclose()
    if lost is not None:
        raise EvaluationStopped(str(lost), report) from lost
    if journal:
        note = await send_report(report, url, api_key=api_key, headers=headers)
        if note and on_note is not None:
            on_note(note)
    return report


def evaluate(
    evaluation: Evaluation, url: str, policy: Policy | Callable[..., Any], **options: Any
) -> EvaluationReport:
    """Blocking form of ``evaluate_async``; also inside a notebook, whose event loop runs already."""
    work = evaluate_async(evaluation, url, policy, **options)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _in_thread(work)


def _in_thread(work: Any) -> EvaluationReport:
    outcome: Future[EvaluationReport] = Future()
    under_way: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def main() -> EvaluationReport:
        task = asyncio.current_task()
        assert task is not None
        under_way.append((asyncio.get_running_loop(), task))
        report: EvaluationReport = await work
        return report

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as exc:  # the awaiter raises it
            outcome.set_exception(exc)

    thread = threading.Thread(target=run, name="orsay-eval")
    thread.start()
    try:
        wait([outcome])  # not join(), which cannot be called again after an interrupt
    except BaseException:  # an interrupt: keep the played episodes, end the sessions
        for loop, task in under_way:
            loop.call_soon_threadsafe(task.cancel)
        wait([outcome])
        raise
    return outcome.result()


def _policy(policy: Policy | Callable[..., Any]) -> Policy:
    if callable(getattr(policy, "player", None)):
        return policy  # type: ignore[return-value]  # distinguished by its method
    if callable(policy):
        return ScriptedPolicy(policy)
    raise EvaluationError(
        f"a policy is a ChatModel, a RandomPolicy, or a function of the turn; not {policy!r}"
    )
