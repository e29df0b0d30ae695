"""The tiny model and tokenizer: the same from the same seed, and treated by TRL as a Qwen3."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

import torch
from orsay_trl.testing import tiny_model as tiny
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.chat_template_utils import is_chat_template_prefix_preserving, qwen3_chat_template

from ..support.trainers import trainers

pytestmark = pytest.mark.process

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look.",
        "parameters": {"type": "object", "properties": {"door": {"type": "integer"}}, "required": ["door"]},
    },
}


def test_a_built_folder_loads_with_the_auto_classes_and_generates(tmp_path: Path) -> None:
    folder = tiny.build(tmp_path / "model")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Door 12?"}],
        add_generation_prompt=True,
        enable_thinking=False,
        return_tensors="pt",
    )["input_ids"]
    made = model.generate(ids, max_new_tokens=5, min_new_tokens=5, do_sample=False)
    assert made.shape == (1, ids.shape[1] + 5)
    assert model.config.model_type == "qwen3" and model.dtype == torch.float32
    assert model.config.vocab_size == len(tokenizer) == 700
    assert model.get_output_embeddings().weight is not model.get_input_embeddings().weight
    assert sum(weight.numel() for weight in model.parameters()) < 250_000


def test_the_same_seed_and_texts_give_the_same_files_in_another_process(tmp_path: Path) -> None:
    here = tiny.build(tmp_path / "here", texts=["look behind door 3", "open door 5"], seed=7)
    code = (
        "import sys; from pathlib import Path; from orsay_trl.testing import tiny_model as tiny;"
        "tiny.build(Path(sys.argv[1]), texts=['look behind door 3', 'open door 5'], seed=7);"
        "print(hash('a text'))"
    )
    there = tmp_path / "there"
    done = trainers().run(["-c", code, str(there)], timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) != hash("a text"), "both have the same seed of hashes"
    for name in ("tokenizer.json", "model.safetensors", "chat_template.jinja", "config.json"):
        assert (here / name).read_bytes() == (there / name).read_bytes(), name


def test_another_seed_gives_other_weights_and_torch_keeps_its_random_state() -> None:
    tokenizer = tiny.tokenizer()
    before = torch.random.get_rng_state()
    models: list[Any] = [tiny.model(tokenizer, seed) for seed in (1, 2)]
    one, two = (model.lm_head.weight for model in models)
    assert not torch.equal(one, two)
    assert torch.equal(before, torch.random.get_rng_state())
    assert one.std().item() == pytest.approx(0.05, rel=0.05)


def test_marks_are_single_tokens_that_decoding_keeps() -> None:
    tokenizer = tiny.tokenizer()
    for mark in tiny.MARKS:
        ids = tokenizer(f"a{mark}b")["input_ids"]
        assert tokenizer.convert_tokens_to_ids(mark) in ids
        assert mark in tokenizer.decode(ids, skip_special_tokens=True)
    assert "<|im_end|>" not in tokenizer.decode(
        tokenizer("a<|im_end|>")["input_ids"], skip_special_tokens=True
    )


@pytest.mark.parametrize(
    "text", ["12345", "naïve café", "日本 🙂", "\n\n \t", "<|im_start|>user\nHi<|im_end|>\n"]
)
def test_any_text_comes_back_from_its_tokens_and_digits_stay_single(text: str) -> None:
    tokenizer = tiny.tokenizer()
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert all(sum(sign.isdigit() for sign in tokenizer.decode([one])) <= 1 for one in ids)


def test_texts_that_keep_coming_back_become_short() -> None:
    line = "Behind one of the doors there is a code word; look first, then open."
    learned = tiny.tokenizer([line, f"{line} Really."])
    assert len(learned(line)["input_ids"]) <= 3 < len(tiny.tokenizer()(line)["input_ids"])


def test_the_template_is_the_one_of_the_installed_trl() -> None:
    tokenizer = tiny.tokenizer()
    assert tokenizer.chat_template == qwen3_chat_template
    assert (
        is_chat_template_prefix_preserving(tokenizer) is False
    )  # TRL swaps in its training template by this text
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tools=[TOOL], add_generation_prompt=True, tokenize=False
    )
    assert '"name": "look"' in text


def test_a_vocabulary_without_room_for_all_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="280"):
        tiny.tokenizer(vocabulary=100)


def test_the_bridge_to_vllm_is_imported_without_torch() -> None:
    code = (
        "import sys, orsay_trl, orsay_trl.testing.tiny_model, orsay_trl.rollout.sync, orsay_trl.rollout.vllm;"
        "print(sorted({'torch', 'transformers', 'tokenizers', 'trl', 'vllm'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"
