"""An evaluation that was interrupted goes on where it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from orsay_eval import (
    Evaluation,
    EvaluationError,
    EvaluationReport,
    Opening,
    ScriptedPolicy,
    Turn,
    evaluate,
    evaluate_async,
    load_report,
)

from tests.evaluation.conftest import EnvServer

pytestmark = pytest.mark.process

SUMS = Evaluation("sums", tasks=6, k=2)


class Counting:
    """Solves sums, and remembers which tasks it was asked for."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.asked: list[tuple[int, int]] = []
        self.stop_after = stop_after
        self.stopped = asyncio.Event()

    async def solve(self, turn: Turn) -> Any:
        if self.stop_after is not None and len(self.asked) >= self.stop_after:
            self.stopped.set()
            await asyncio.sleep(600)
        self.asked.append((turn.index, turn.attempt))
        assert turn.task is not None
        return "answer", {"value": turn.task["a"] + turn.task["b"]}


async def interrupted(env_server: EnvServer, output: Path, after: int) -> Counting:
    """An evaluation that is cancelled when ``after`` episodes were played."""
    policy = Counting(after)
    work = asyncio.create_task(
        evaluate_async(SUMS, env_server.url, policy.solve, output=output, concurrency=1, journal=False)
    )
    await asyncio.wait_for(policy.stopped.wait(), 60)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    return policy


async def resumed(
    env_server: EnvServer, output: Path, evaluation: Evaluation = SUMS, **options: Any
) -> tuple[Counting, EvaluationReport]:
    policy = Counting()
    report = await evaluate_async(
        evaluation, env_server.url, policy.solve, output=output, resume=True, journal=False, **options
    )
    return policy, report


async def test_what_was_played_is_kept_and_not_played_again(env_server: EnvServer, tmp_path: Path) -> None:
    output = tmp_path / "new" / "one.json"
    first = await interrupted(env_server, output, 5)
    partial = load_report(output)
    assert (partial.summary.episodes, partial.summary.planned, partial.ended_at) == (5, 12, None)
    second, report = await resumed(env_server, output)
    assert sorted(first.asked + second.asked) == [(index, n) for index in range(6) for n in range(2)]
    assert (report.summary.episodes, report.run, report.name) == (12, partial.run, partial.name)
    assert report.started_at == partial.started_at and report.ended_at is not None
    assert report.summary.wall_seconds >= partial.summary.wall_seconds
    assert load_report(output) == report


async def test_a_line_that_a_crash_cut_off_is_played_again(env_server: EnvServer, tmp_path: Path) -> None:
    output = tmp_path / "one.json"
    await interrupted(env_server, output, 3)
    lines = tmp_path / "one.episodes.jsonl"
    kept = lines.read_text().splitlines()
    assert len(kept) == 5  # a header, three episodes, the time they took
    lines.write_text("\n".join(kept[:3]) + "\n" + kept[3][:40])
    policy, report = await resumed(env_server, output)
    assert len(policy.asked) == 10 and report.summary.scored == 12
    policy, report = await resumed(env_server, output)
    assert policy.asked == [] and report.summary.scored == 12


async def test_what_faults_had_lost_is_played_again(env_server: EnvServer, tmp_path: Path) -> None:
    output = tmp_path / "one.json"

    def fragile(turn: Turn) -> Any:
        assert turn.index != 1
        return "answer", {"value": 0}

    policy = Counting()
    policy.solve.__func__.__qualname__ = fragile.__qualname__ = "policy"  # type: ignore[attr-defined]  # known by name
    evaluation = Evaluation("sums", tasks=3)
    report = await evaluate_async(evaluation, env_server.url, fragile, output=output, journal=False)
    assert report.summary.faults == {"policy_error": 1}
    policy, report = await resumed(env_server, output, evaluation)
    assert policy.asked == [(1, 0)] and report.summary.faults == {}


async def test_more_tasks_and_attempts_may_be_added(env_server: EnvServer, tmp_path: Path) -> None:
    output = tmp_path / "one.json"
    await interrupted(env_server, output, 5)
    policy, report = await resumed(env_server, output, Evaluation("sums", tasks=7, k=3), concurrency=8)
    assert (len(policy.asked), report.summary.episodes) == (21 - 5, 21)
    policy, report = await resumed(env_server, output, Evaluation("sums", tasks=2))
    assert (policy.asked, report.summary.episodes) == ([], 2)


async def test_another_evaluation_is_not_mixed_with_it(env_server: EnvServer, tmp_path: Path) -> None:
    output = tmp_path / "one.json"
    await interrupted(env_server, output, 2)
    before = (tmp_path / "one.episodes.jsonl").read_bytes()
    for other in (
        Evaluation("sums", max_turns=3),
        Evaluation("sums", split="train"),
        Evaluation("sums", reward="sum"),
    ):
        with pytest.raises(EvaluationError, match="is of another evaluation"):
            await resumed(env_server, output, other)
    with pytest.raises(EvaluationError, match=r"exists already.*--resume"):
        await evaluate_async(SUMS, env_server.url, Counting().solve, output=output, journal=False)
    assert (tmp_path / "one.episodes.jsonl").read_bytes() == before


async def test_two_processes_do_not_write_one_file(env_server: EnvServer, tmp_path: Path) -> None:
    output = tmp_path / "one.json"
    policy = Counting(1)
    work = asyncio.create_task(
        evaluate_async(SUMS, env_server.url, policy.solve, output=output, concurrency=1, journal=False)
    )
    await asyncio.wait_for(policy.stopped.wait(), 60)
    with pytest.raises(EvaluationError, match="another process"):
        await resumed(env_server, output)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


def test_a_start_that_played_nothing_leaves_nothing_in_the_way(env_server: EnvServer, tmp_path: Path) -> None:
    output = tmp_path / "one.json"

    def stop(now: Any) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        evaluate(SUMS, env_server.url, Counting().solve, output=output, journal=False, on_progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_report_on_disk_holds_every_episode(env_server: EnvServer, tmp_path: Path) -> None:
    output = tmp_path / "one.json"
    evaluate(SUMS, env_server.url, Counting().solve, output=output, journal=False)
    found = json.loads(output.read_text())
    assert [(e["index"], e["attempt"]) for e in found["episodes"]] == [
        (i, n) for i in range(6) for n in range(2)
    ]
    assert found["summary"]["mean_reward"]["mean"] == 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.episodes.jsonl", "one.json"]


async def test_a_file_that_lost_its_first_line_is_left_alone(env_server: EnvServer, tmp_path: Path) -> None:
    output = tmp_path / "one.json"
    await interrupted(env_server, output, 2)
    lines = tmp_path / "one.episodes.jsonl"
    rest = lines.read_text().split("\n", 1)[1]
    lines.write_text(rest)
    with pytest.raises(EvaluationError, match="does not begin with what was measured"):
        await resumed(env_server, output)
    assert lines.read_text() == rest


# What a line may hold


class Named:
    """A policy with a name and settings of its own."""

    wants_spec = True

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        self._settings = dict(settings)
        self._play = ScriptedPolicy(Counting().solve)

    def settings(self) -> dict[str, Any]:
        return self._settings

    def player(self, opening: Opening) -> Any:
        return self._play.player(opening)

    async def aclose(self) -> None:
        """Nothing is open."""


SEPARATORS = "".join(map(chr, [0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029]))
"""What ends a line to Python, and is in JSON as it is or escaped."""


@pytest.mark.parametrize(
    "odd",
    [*SEPARATORS, f"{SEPARATORS}\r\n", float("nan"), [float("inf"), {"x": float("nan")}], {"\u2028": 1}],
)
async def test_it_goes_on_whatever_the_settings_hold(env_server: EnvServer, tmp_path: Path, odd: Any) -> None:
    output = tmp_path / "one.json"

    async def play(**options: Any) -> EvaluationReport:
        policy = Named(str(odd), {"system": odd})
        return await evaluate_async(SUMS, env_server.url, policy, output=output, journal=False, **options)

    first = await play(name=str(odd))
    output.unlink()
    again = await play(resume=True)
    assert again.episodes == first.episodes
    assert load_report(output).episodes == again.episodes and again.name == first.name == str(odd)
    with pytest.raises(EvaluationError, match="policy was"):
        await evaluate_async(
            SUMS,
            env_server.url,
            Named(str(odd), {"system": "other"}),
            output=output,
            resume=True,
            journal=False,
        )


async def test_a_fault_is_kept_whatever_its_message_holds(env_server: EnvServer, tmp_path: Path) -> None:
    text = f"it broke{SEPARATORS}\ud800 here"
    asked: list[int] = []

    def raises(turn: Turn) -> Any:
        asked.append(turn.index)
        raise ValueError(text)

    evaluation = Evaluation("sums", tasks=2)
    for _ in range(2):
        report = await evaluate_async(
            evaluation,
            env_server.url,
            raises,
            output=tmp_path / "one.json",
            resume=bool(asked),
            journal=False,
        )
        assert SEPARATORS in report.episodes[0].fault_message
    assert sorted(asked) == [0, 0, 1, 1]  # what was lost is played again
    assert load_report(tmp_path / "one.json") == report


@pytest.mark.parametrize("odd", ["\ud800", {"x": object()}, {"\udfff": 1}])
async def test_what_no_report_could_hold_is_reported_before_anything_is_played(
    env_server: EnvServer, tmp_path: Path, odd: Any
) -> None:
    policies = [Named("fine", {"system": odd})] + ([Named(odd, {})] if isinstance(odd, str) else [])
    for policy in policies:
        for output in (None, tmp_path / "one.json"):
            with pytest.raises(EvaluationError, match="must be JSON"):
                await evaluate_async(SUMS, env_server.url, policy, output=output, journal=False)
    assert not list(tmp_path.iterdir())
