"""Made-up sessions, written straight into the tables: as many as wanted, in no time.

Every fifth session or so holds something special: an image, a large result, a fault, a refusal, text that
nothing else has. The same arguments make the same sessions.
"""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orsay.journal.database import Store
from orsay.journal.ids import moment_of
from orsay.journal.options import JournalOptions, journal_url
from orsay.journal.schema import calls, prompts, sessions, values
from sqlalchemy import Connection, insert

__all__ = ["ENVIRONMENTS", "START", "Fill", "Filled", "empty_journal", "fill", "id_at"]

ENVIRONMENTS = ("guess", "doors", "arithmetic")
START = 1_780_000_000.0  # when the first session began, in seconds since 1970
_TEXT = "amber basil cedar delta ember fjord grove haven inlet joker karma lotus mango noble ocean pearl"
_WORDS = _TEXT.split()
_FAULTS = ("tool_error", "time_limit", "worker_lost")
_CHUNK = 2000  # sessions in one statement
_LARGE = 2000  # bytes of JSON from which on a value is beside its row
_PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360f8cf50cf00000482018052e5b2a80000000049454e44ae426082"
    )
).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """What to make. A run's sessions are spread over ``steps``, each of them in groups of ``group`` on one
    task.
    """

    sessions: int = 120
    seed: int = 0
    environments: Sequence[str] = ENVIRONMENTS
    runs: Sequence[str] = ("alpha", "beta/2 ü", "gamma")
    unlabelled: float = 0.1  # share of sessions without X-Orsay-Run
    steps: int = 10
    group: int = 4  # parallel rollouts of one task
    tasks: int = 20  # in each split
    calls: int = 5  # of a session, at most; half as many on average
    owners: Sequence[str] = ("",)
    open: int = 0  # of the newest sessions, so many have no end
    faults: float = 0.05
    given_up: float = 0.0  # share of sessions that end without the environment's word
    images: float = 0.1
    large: float = 0.02
    words: int = 12  # in a prompt or a result
    start: float = START
    gap_s: float = 7.0  # from one session to the next


@dataclass(slots=True)
class Filled:
    """What was made: ids from the oldest to the newest, and their rows in ``sessions``."""

    ids: list[int] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


def id_at(moment: float, counter: int = 0) -> int:
    """The id that was made at that moment."""
    found = (int(moment * 1000) - 1_577_836_800_000) << 22 | counter
    assert abs(moment_of(found) - moment) < 0.002
    return found


def empty_journal(place: Path | str) -> Store:
    """A new journal in that file, or in the database with that URL. Close it when done."""
    store = Store(JournalOptions(journal_url(str(place))))
    store.open()
    return store


def fill(connection: Connection, what: Fill | None = None) -> Filled:
    """Write the sessions. They are committed with the connection's transaction."""
    what = what or Fill()
    rng = random.Random(what.seed)
    made = Filled()
    for first in range(0, what.sessions, _CHUNK):
        batch = _Batch(what, rng)
        for number in range(first, min(first + _CHUNK, what.sessions)):
            batch.session(number)
        batch.write(connection)
        made.ids += [row["id"] for row in batch.sessions]
        made.rows += batch.sessions
    return made


class _Batch:
    """Rows of some sessions, not yet written."""

    def __init__(self, what: Fill, rng: random.Random) -> None:
        self.what = what
        self.rng = rng
        self.sessions: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.prompts: list[dict[str, Any]] = []
        self.values: list[dict[str, Any]] = []

    def write(self, connection: Connection) -> None:
        tables = (
            (sessions, self.sessions),
            (calls, self.calls),
            (prompts, self.prompts),
            (values, self.values),
        )
        for table, rows in tables:
            if rows:
                connection.execute(insert(table), rows)

    def session(self, number: int) -> None:
        """All sessions of a group have the same task, run and step."""
        what, rng = self.what, self.rng
        group, member = divmod(number, what.group)
        fixed = random.Random(f"{what.seed} {group}")
        environment = fixed.choice(what.environments)
        split = fixed.choice(("train", "train", "train", "test"))
        index = fixed.randrange(what.tasks)
        labelled = fixed.random() >= what.unlabelled
        run = fixed.choice(what.runs) if labelled else "anyone 2026-05-28"
        started = what.start + number * what.gap_s
        id = id_at(started, number % 1024)
        open_ = number >= what.sessions - what.open
        step = number * what.steps // what.sessions if labelled else None
        total, last, n_faults, first_fault, finished, n = self._calls(id, started, index, step or 0)
        ended = {
            "ended_at": started + 5.0,
            "end_reason": "deleted by the client",
            "fault": first_fault,
            "calls": n,
            "faults": n_faults,
            "reward": last,
            "reward_sum": total,
            "finished": finished,
        }
        self.sessions.append(
            {
                "id": id,
                "sid": f"{id:032x}",
                "server": "made-up",
                "environment": environment,
                "split": split,
                "task_index": index,
                "task": f"{split}:{index}",
                "owner": rng.choice(what.owners),
                "client": "orsay/0.1.0",
                "run": run,
                "labelled": labelled,
                "step": step,
                "rollout": f"{group}-{member}" if labelled else None,
                "labels": '{"model": "m"}' if labelled else None,
                "trace": f"{id:032x}",
                "digest": f"{index:032x}",
                "replayable": environment == "guess",
                "secrets": False,
                "started_at": started,
                "setup_s": 0.01,
                **(dict.fromkeys(ended) if open_ else ended),
            }
        )
        self._beside(id, id, "request", {"key": environment, "split": split, "index": index})
        prompt = f"Task {index} of {environment}: " + self._text()
        for kind, value in (("prompt", [_block(prompt)]), ("task_tools", _TOOLS)):
            self.prompts.append({"session": id, "kind": kind, "text": json.dumps(value)})

    def _calls(
        self, session: int, started: float, index: int, step: int
    ) -> tuple[float | None, float | None, int, str | None, bool, int]:
        """Sum and last of the rewards, number and first of the faults, whether it finished, number of
        calls.
        """
        what, rng = self.what, self.rng
        n = rng.randint(1, what.calls)
        fault = rng.choice(_FAULTS) if rng.random() < what.faults else None
        total = last = None
        finished = False
        given_up = what.given_up > 0 and rng.random() < what.given_up
        for number in range(1, n + 1):
            id = session + number
            end = number == n
            reward = None
            result: dict[str, Any] | None
            if end and fault:
                result = None
            elif not end and rng.random() < 0.1:
                result = {"ok": False, "error": "'left' is not a direction", "reason": "input_validation"}
            else:
                # the first tasks are easy, the last never solved; the model learns a little with each step
                ease = 1.1 - index / what.tasks + step / 100
                reward = (1.0 if rng.random() < ease - 0.2 else 0.0) if end else rng.choice((None, 0.0))
                finished = end and not given_up
                reward = None if end and given_up else reward
                result = {"ok": True, "output": self._output(reward, finished)}
            if reward is not None:
                last, total = reward, (total or 0.0) + reward
            self.calls.append(
                self._call(id, session, number, started + number, result, fault if end else None)
            )
        return total, last, int(fault is not None), fault, finished, n

    def _output(self, reward: float | None, finished: bool) -> dict[str, Any]:
        what, rng = self.what, self.rng
        blocks = [_block(self._text())]
        if rng.random() < what.images:
            blocks.append({"data": _PNG, "mimeType": "image/png", "detail": None, "type": "image"})
        if rng.random() < what.large:
            blocks.append(_block(" ".join(rng.choices(_WORDS, k=600))))
        return {"blocks": blocks, "metadata": None, "reward": reward, "finished": finished}

    def _call(
        self, id: int, session: int, number: int, at: float, result: dict[str, Any] | None, fault: str | None
    ) -> dict[str, Any]:
        output = (result or {}).get("output", {})
        return {
            "id": id,
            "session": session,
            "number": number,
            "kind": "call",
            "task_id": f"{id:032x}",
            "key": None,
            "name": "answer" if number % 2 else "look",
            "input": json.dumps({"text": self.rng.choice(_WORDS), "n": number}),
            "result": None if result is None else self._beside(id, session, "result", result, always=False),
            "reward": output.get("reward"),
            "finished": output.get("finished", False),
            "discarded": False,
            "fault": fault,
            "fault_id": fault and f"{id:08x}",
            "message": fault and "the tool 'answer' failed",
            "started_at": at,
            "queue_s": 0.0001,
            "run_s": 0.002,
            "stream_s": None,
            "total_s": 0.0025,
        }

    def _beside(self, row: int, session: int, field: str, value: Any, *, always: bool = True) -> str | None:
        """The text for the row itself; None when the value is large and was put beside it."""
        text = json.dumps(value)
        if not always and len(text) < _LARGE:
            return text
        packed = zlib.compress(text.encode(), 1)
        self.values.append({"row": row, "field": field, "session": session, "data": packed})
        return None

    def _text(self) -> str:
        return " ".join(self.rng.choices(_WORDS, k=self.what.words))


def _block(text: str) -> dict[str, Any]:
    return {"text": text, "detail": None, "type": "text"}


_TOOLS = {
    "tools": [
        {
            "name": name,
            "description": f"The tool {name}.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "description": "A word."},
                    "n": {"type": "integer"},
                },
                "required": ["text"],
            },
        }
        for name in ("answer", "look")
    ]
}
