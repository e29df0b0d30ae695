"""The same run with a larger random model on a GPU: how many steps a second, and where the time goes.

It measures speed; a random model of this size learns nothing in so few steps.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orsay_trl import EnvironmentSpec
from orsay_trl.testing import tiny_model as tiny

from . import training, transcripts, warmup
from .screen import Screen
from .serving import serve_environment

__all__ = ["LARGE", "measure", "missing"]

LARGE: Mapping[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 3072,
    "initializer_range": 0.02,
}
"""About 260 million parameters."""

_EPISODES, _WARM_UP_STEPS, _UNTIMED = 200, 60, 2


def missing() -> str | None:
    """Error message without a GPU; None with one."""
    import torch

    if torch.cuda.is_available():
        return None
    return (
        f"there is no GPU here: torch {torch.__version__} finds no CUDA device. "
        "Without --gpu, scripts/train-demo trains a tiny model on the CPU."
    )


def measure(
    seed: int,
    folder: Path,
    screen: Screen,
    *,
    device: str = "cuda",
    size: Mapping[str, Any] = LARGE,
    batches: int = 10,
) -> None:
    """Train for some batches, print the metrics and write them to ``gpu.json``.

    ``size`` replaces fields of the tiny model's configuration. The first two of ``batches``, of which there
    must be four or more, are not timed.
    """
    import torch

    with serve_environment() as url:
        spec = EnvironmentSpec(url)
        with screen.part("warm-up", f"playing {_EPISODES} scripted episodes and imitating them"):
            environment = spec.environment_factory()
            plain, rows = tiny.tokenizer(), list(spec.train_dataset)
            played = warmup.play_many(environment, rows, _EPISODES, seed)
            texts = [transcripts.render(plain, messages, spec.tools.schemas) for messages in played]
            tokenizer = tiny.tokenizer(texts)
            model = _model(tokenizer, seed, size).to(device)
            examples = [transcripts.encode(tokenizer, text) for text in texts]
            for _ in warmup.imitate(model, examples, steps=_WARM_UP_STEPS, seed=seed, learning_rate=3e-4):
                pass
        trainer = training.make_trainer(
            model,
            tokenizer,
            spec,
            batches=batches,
            seed=seed,
            folder=folder / "trainer",
            use_cpu=device == "cpu",
            bf16=device != "cpu",
            learning_rate=1e-5,
        )
        marks: list[tuple[float, float]] = []

        def seen(logs: Mapping[str, float]) -> None:
            marks.append((time.perf_counter(), logs.get("env/wait_share", 0.0)))
            screen.show(logs["reward"], f"waited for the environment {marks[-1][1]:.0%}")

        training.watch(trainer, seen)
        with screen.part("training", f"training with GRPO on {device}"), screen.curve(batches):
            trainer.train()
        spec.close()
    timed = marks[_UNTIMED:]  # the first batches compile and warm caches
    steps = (len(timed) - 1) * training.STEPS_PER_BATCH
    metrics = {
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "model_parameters": sum(weights.numel() for weights in model.parameters()),
        "steps_per_second": steps / (timed[-1][0] - timed[0][0]),
        "episodes_per_second": (len(timed) - 1)
        * training.PROMPTS
        * training.GENERATIONS
        / (timed[-1][0] - timed[0][0]),
        "environment_share": sum(share for _, share in timed[1:]) / (len(timed) - 1),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(metrics, indent=2) + "\n")
    screen.table([(name, str(value)) for name, value in metrics.items()])


def _model(tokenizer: Any, seed: int, size: Mapping[str, Any]) -> Any:
    """An untrained Qwen3 of that size, with the end tokens of the tiny one."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    small = tiny.model(tokenizer, seed)
    kept = {
        name: value for name, value in small.config.to_dict().items() if name not in (*size, "layer_types")
    }
    torch.manual_seed(seed)
    made = Qwen3ForCausalLM(Qwen3Config(**{**kept, **size}))
    made.generation_config = small.generation_config
    return made
