"""A group whose rollouts are in two processes is scored once, as a whole, and by a session that is there."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

from tests.support.bridge_server import serve_environments
from tests.support.trainers import ranks as launched

pytestmark = [pytest.mark.process, pytest.mark.timeout(200)]


def test_a_group_in_two_processes_is_scored_as_one(tmp_path: Path) -> None:
    with serve_environments(tmp_path, "Numbered") as env_server:
        done = launched(["-m", "tests.attack.group_rank", env_server.url, str(tmp_path)], timeout=160)
        assert [each.returncode for each in done] == [0, 0], [each.stderr[-4000:] for each in done]
        compared = sorted(sorted(line["numbers"]) for line in env_server.diary.lines("numbers"))
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    wanted = []
    for step in range(4):
        rows = [row for rank in ranks for row in rank if row["step"] == step]
        assert len(rows) == 6
        for group in (rows[0:2], rows[2:4], rows[4:6]):
            assert len({row["task"] for row in group}) == 1
            kept = [row["number"] for row in group if row["fault"] is None]
            wanted += [sorted(kept)] if kept else []
            for row in group:
                if row["fault"] is not None:
                    assert math.isnan(row["score"]) and row["learned"] == 0
                else:
                    assert row["score"] == 1000.0 * len(kept) + (sum(kept) - row["number"]) / 64
                    assert row["learned"] > 0
    assert compared == sorted(wanted), "a group was compared in parts, or twice"
    assert [len(numbers) for numbers in wanted].count(1) == 2
