"""A journal with things in it: generated sessions, and a few made by hand that are known word for word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orsay.journal.database import Store
from orsay.journal.ids import new_id
from orsay.journal.options import JournalOptions, journal_url
from orsay.journal.schema import calls, prompts, sessions
from orsay_protocol.evaluation import (
    Estimate,
    EvaluatedEpisode,
    EvaluationReport,
    EvaluationSummary,
    PassAtK,
    Quantiles,
    TokenCounts,
)
from sqlalchemy import Connection, insert

from tests.journal.fill import START, Fill, fill

from .environments import picture

__all__ = ["Recorded", "make_journal", "report_of"]

_TASKS = 20
_DAY_S = 86_400.0


class Recorded(dict[str, str]):
    """Ids of sessions, by what is special about them."""


def make_journal(path: Path, what: Fill | None = None) -> Recorded:
    """A new SQLite journal: made-up sessions, and three made by hand after them."""
    store = Store(JournalOptions(journal_url(str(path))))
    store.open()
    try:
        with store.engine.connect() as connection:
            fill(connection, what or Fill(sessions=600, steps=15, unlabelled=0.15))
            ids = _record_by_hand(connection)
            connection.commit()
        return ids
    finally:
        store.close()


def _record_by_hand(connection: Connection) -> Recorded:
    """Two rollouts of one task that differ in their second call, and one with all that can go wrong."""
    first = _session(connection, task="train:7", moves=[("open", "left", 0.0), ("open", "left", 0.0)])
    second = _session(
        connection,
        task="train:7",
        moves=[("open", "left", 0.0), ("open", "right", 1.0), ("shout", "hello", None)],
        finished=True,
    )
    trouble = _session(connection, task="train:8", moves=[("look", "around", 0.5)], fault="time_limit")
    return Recorded(plain=first, better=second, trouble=trouble)


def _session(
    connection: Connection,
    *,
    task: str,
    moves: list[tuple[str, str, float | None]],
    finished: bool = False,
    fault: str | None = None,
) -> str:
    id = new_id()
    started = START + 2 * _DAY_S
    split, index = task.split(":")
    rewards = [reward for _, _, reward in moves if reward is not None]
    connection.execute(
        insert(sessions).values(
            id=id,
            sid=f"made-{id}",
            server="made",
            environment="cave",
            split=split,
            task_index=int(index),
            task=task,
            owner="",
            client="made/1",
            run="made by hand",
            labelled=True,
            step=3,
            rollout=f"r{id % 1000}",
            labels='{"model": "hand"}',
            trace=f"{id:032x}",
            digest="",
            replayable=True,
            secrets=False,
            started_at=started,
            setup_s=0.25,
            ended_at=started + 12.5,
            end_reason="deleted by the client",
            fault=fault,
            calls=len(moves) + (3 if fault else 0),
            faults=1 if fault else 0,
            reward=rewards[-1] if rewards else None,
            reward_sum=sum(rewards) if rewards else None,
            finished=finished,
        )
    )
    blocks = [{"type": "text", "text": "You stand before two doors.\nOne of them is right.", "detail": None}]
    content = {"prompt": blocks, "messages": [{"role": "system", "blocks": blocks, "detail": None}]}
    for kind, value in content.items():
        connection.execute(insert(prompts).values(session=id, kind=kind, text=json.dumps(value)))
    for number, (name, word, reward) in enumerate(moves, 1):
        ended = finished and reward == 1.0
        late = finished and number == len(moves)
        text = f"The {word} door opens" if name == "open" else f"You {name}: {word}"
        _call(
            connection,
            id,
            number,
            name,
            word,
            _answer(text, reward, ended),
            started,
            discarded=late,
            reward=reward,
        )
    if fault:
        place = len(moves)
        _call(
            connection, id, place + 1, "look", "up", _answer("A picture.", None, False, image=True), started
        )
        refusal = {"ok": False, "error": "'sideways' is not a direction", "reason": "input_validation"}
        _call(connection, id, place + 2, "open", "sideways", refusal, started)
        _call(connection, id, place + 3, "wait", "def f():\n    return 1", None, started, fault=fault)
    return str(id)


def _answer(text: str, reward: float | None, finished: bool, *, image: bool = False) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text, "detail": None}]
    if image:
        blocks.append(picture((30, 90, 200)).model_dump())
    output = {"blocks": blocks, "metadata": {"door": 1}, "reward": reward, "finished": finished}
    return {"ok": True, "output": output}


def _call(
    connection: Connection,
    session: int,
    number: int,
    name: str,
    word: str,
    result: dict[str, Any] | None,
    started: float,
    *,
    reward: float | None = None,
    fault: str | None = None,
    discarded: bool = False,
) -> None:
    connection.execute(
        insert(calls).values(
            id=session + number,
            session=session,
            number=number,
            kind="call",
            task_id=f"{session + number:032x}",
            name=name,
            input=json.dumps({"word": word}),
            result=None if result is None else json.dumps(result),
            reward=reward,
            finished=bool(result and result.get("output", {}).get("finished")),
            discarded=discarded,
            fault=fault,
            fault_id=fault and "abc123",
            message=fault and "the tool 'wait' took longer than 1 s",
            started_at=started + number,
            queue_s=0.002,
            run_s=0.4,
            stream_s=0.1 if number == 1 else None,
            total_s=0.502,
        )
    )


def report_of(name: str, share: float) -> EvaluationReport:
    """Two attempts at each of twenty tasks: the first tasks are solved, one attempt at the last is lost."""
    episodes = [
        EvaluatedEpisode(
            task=f"test:{index}",
            split="test",
            index=index,
            attempt=attempt,
            reward=None if _is_lost(index, attempt) else float(index < share * _TASKS),
            success=None if _is_lost(index, attempt) else index < share * _TASKS,
            fault="worker_lost" if _is_lost(index, attempt) else None,
            fault_message="the worker was lost" if _is_lost(index, attempt) else "",
            finished=True,
            stop="finished",
            turns=3,
            calls=3,
            tokens=TokenCounts(input=1200, output=80),
            seconds=2.5,
            sid=f"{name}-{index}-{attempt}",
        )
        for index in range(_TASKS)
        for attempt in range(2)
    ]
    estimate = Estimate(mean=share, low=share - 0.2, high=share + 0.2)
    spread = Quantiles(mean=0.6, p50=0.5, p95=1.2, max=2.0)
    return EvaluationReport(
        name=name,
        run=f"eval {name}",
        environment="guess",
        split="test",
        model=f"model-{name}",
        settings={"temperature": 0.7, "reward": "last"},
        started_at=START + _DAY_S,
        ended_at=START + _DAY_S + 60,
        summary=EvaluationSummary(
            n_tasks=_TASKS,
            k=2,
            episodes=2 * _TASKS,
            planned=2 * _TASKS,
            scored=2 * _TASKS - 1,
            mean_reward=estimate,
            success=estimate,
            pass_at_k=[PassAtK(k=k, mean=share, low=share - 0.2, high=share + 0.2) for k in (1, 2)],
            faults={"worker_lost": 1},
            retried={"overloaded": 2},
            stops={"finished": 2 * _TASKS - 1},
            tokens=TokenCounts(input=48_000, output=3_200, cached=12_000),
            turns=Quantiles(mean=3.0, p50=3.0, p95=3.0, max=3.0),
            latency=spread,
            seconds=spread,
            wall_seconds=60.0,
        ),
        episodes=episodes,
    )


def _is_lost(index: int, attempt: int) -> bool:
    return (index, attempt) == (_TASKS - 1, 1)
