"""The examples of exported episodes run as they are: a data set of them, and TRL trained on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal.fill import Fill
from tests.journal.journals import filled_journal
from tests.support.trainers import OFFLINE, trainers

pytest.importorskip("trl", reason="needs the extra 'trl'")
pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "journal"
FILL = Fill(sessions=240, faults=0.2, given_up=0.3, open=12, images=0.2, large=0.05)


@pytest.fixture(scope="module")
def journal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with filled_journal(request, "sqlite", tmp_path_factory.mktemp("journal"), FILL) as (store, _):
        assert store.options.path is not None
        yield store.options.path


def run(code: str, folder: Path) -> str:
    done = trainers().run(["-c", code], cwd=folder, env={**os.environ, **OFFLINE}, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def example(name: str, journal: Path) -> str:
    return (EXAMPLES / f"{name}.py").read_text().replace(".orsay/journal.db", str(journal))


def test_the_example_prints_what_went_well(journal: Path, tmp_path: Path) -> None:
    code = example("dataset", journal).replace("timedelta(days=7)", "timedelta(days=10000)")
    lines = run(code, tmp_path).splitlines()
    assert "'messages', 'tools', 'reward'" in lines[0]
    assert len(lines) > 10
    assert all(" 1.0 ['user', 'assistant', 'tool'" in line for line in lines[1:])


@pytest.mark.timeout(400)
def test_trl_trains_on_the_calls_and_on_nothing_else(journal: Path, tmp_path: Path) -> None:
    """TRL's own trainer, on a tiny model, as the documentation shows it."""
    make = f"""
from orsay.journal.export import to_dataset
from orsay_trl.testing import tiny_model as tiny
import json
wins = to_dataset({str(journal)!r}, run="alpha", reward_min=1.0, images=False)
texts = [json.dumps(m, ensure_ascii=False) for row in wins for m in row["messages"] + row["tools"]]
tokenizer = tiny.tokenizer(texts, vocabulary=1500)
tiny.model(tokenizer).save_pretrained("tiny")
tokenizer.save_pretrained("tiny")
"""
    see = """
import torch
batch = next(iter(trainer.get_train_dataloader()))
ids, labels = batch["input_ids"][0], batch["labels"][0]
print("TRAINED", repr(trainer.processing_class.decode(ids[labels != -100])))
print("WHOLE", repr(trainer.processing_class.decode(ids[batch["attention_mask"][0] == 1])))
print("LOSS", trainer.state.log_history[-1]["train_loss"])
"""
    code = example("sft", journal).replace("grpo-3", "alpha").replace("Qwen/Qwen3-0.6B", "tiny")
    code = code.replace('output_dir="sft"', 'output_dir="sft", max_steps=2, use_cpu=True, max_length=4096')
    shown = dict(
        line.split(" ", 1)
        for line in run(f"{make}\n{code}\n{see}", tmp_path).splitlines()
        if line[:1] in "TWL"
    )
    assert "<tool_call>" in shown["TRAINED"] and '"arguments": {' in shown["TRAINED"]
    assert "<tool_response>" not in shown["TRAINED"] and "Task " not in shown["TRAINED"]
    assert "<tool_response>" in shown["WHOLE"] and "# Tools" in shown["WHOLE"] and "Task " in shown["WHOLE"]
    assert 0 < float(shown["LOSS"]) < 20
