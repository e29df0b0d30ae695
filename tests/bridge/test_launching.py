"""Ranks as the tests start them and as torchrun does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..support.trainers import ranks, skip_without_trl, trainers

skip_without_trl()

pytestmark = pytest.mark.process

SAME = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
PLACE = ("MASTER_ADDR", "MASTER_PORT")
SCRIPT = f"""
import json, os, sys

found = {{name: os.environ.get(name) for name in {SAME + PLACE}}}
sys.stdout.write(json.dumps(found) + "\\n")  # in one piece: both ranks write to one pipe
"""


def test_ranks_have_the_variables_of_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(SCRIPT)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    done = trainers().run(command, timeout=100)
    assert done.returncode == 0, done.stderr
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [json.loads(each.stdout) for each in ranks([str(script)], timeout=100)]
    theirs.sort(key=lambda each: str(each["RANK"]))
    assert [[each[name] for name in SAME] for each in ours] == [
        [each[name] for name in SAME] for each in theirs
    ]
    for found in (ours, theirs):
        assert all(each[name] for each in found for name in PLACE)
        assert len({each["MASTER_PORT"] for each in found}) == 1
