"""The examples of docs/training.md run, with a tiny model and little to do."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra 'trl'")

from orsay_trl.testing import tiny_model as tiny

from tests.interop.servers import BUNDLED, serve
from tests.support.documentation import EXAMPLES

from ..support.trainers import OFFLINE, trainers

TRAINING = EXAMPLES / "training"
LIMIT_S = 110
pytestmark = [pytest.mark.process, pytest.mark.timeout(LIMIT_S + 20)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(*BUNDLED, options=["--workers", "1"]) as server:
        yield server.url


def run(code: str) -> str:
    done = trainers().run(["-c", code], env={**os.environ, **OFFLINE}, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_the_first_step_is_made(url: str, tmp_path: Path) -> None:
    """As it is shown, but for a model without a hub and the settings of a CPU."""
    settings = (
        f"output_dir={str(tmp_path / 'out')!r}, max_steps=1, per_device_train_batch_size=2, "
        "num_generations=2, use_cpu=True, bf16=False, logging_steps=1, report_to='none', "
        "save_strategy='no', disable_tqdm=True"
    )
    code = (TRAINING / "first_step.py").read_text()
    for shown, here in (
        ("http://127.0.0.1:8080", url),
        ("Qwen/Qwen3-0.6B", str(tiny.build(tmp_path / "model"))),
        ("max_completion_length=1024", f"max_completion_length=32, {settings}"),
    ):
        assert shown in code
        code = code.replace(shown, here)
    logged = run(code)
    assert "'env/length'" in logged and "'env/faults': '0'" in logged


def test_several_environments_have_their_shares(url: str) -> None:
    code = (TRAINING / "several.py").read_text().replace("http://127.0.0.1:8080", url)
    names = run(f"{code}\nprint(*mixture.train_dataset['environment'])").split()
    assert Counter(names) == {"guess": 74, "echo": 24}  # of 90 tasks and 8, three to one
