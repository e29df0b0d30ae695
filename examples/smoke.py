"""``--smoke``: a tiny model that can call tools, and small sizes, to run an example without a GPU.

The model is made by the script and imitates scripted episodes for a few seconds, with random arguments, so
that it calls tools without skill; everything else is real.

    python examples/smoke.py FOLDER --url http://127.0.0.1:8080    # writes such a model, for a vLLM to serve
"""

from __future__ import annotations

import argparse
import atexit
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orsay_trl import EnvironmentSpec
from orsay_trl.testing import tiny_model as tiny
from train_demo.transcripts import Message, Transcript, encode, render

__all__ = ["SETTINGS", "add_flag", "shrink", "tiny_model"]

SETTINGS: Mapping[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "use_vllm": False,
    "learning_rate": 1e-4,
    "logging_steps": 1,
    "save_strategy": "no",
    "disable_tqdm": True,
    "report_to": "none",
}
"""Arguments of ``GRPOConfig`` that fit a CPU."""

_EPISODES, _STEPS, _BATCH = 12, 50, 6


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--smoke``."""
    parser.add_argument(
        "--smoke", action="store_true", help="two steps of a tiny model on the CPU, in seconds"
    )


def shrink(args: argparse.Namespace, *specs: EnvironmentSpec) -> None:
    """Replace the sizes that were asked for by tiny ones, and the model by one that plays ``specs``.

    A model that is a folder stays.
    """
    small: dict[str, Any] = {
        "max_steps": 2,
        "num_generations": 2,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_completion_length": 192,
        "max_tool_calling_iterations": 3,
    }
    if specs and not Path(args.model).is_dir():
        small["model"] = str(tiny_model(*specs))
    for name, value in small.items():
        if hasattr(args, name):
            setattr(args, name, value)


def tiny_model(*specs: EnvironmentSpec, folder: Path | None = None, seed: int = 0) -> Path:
    """The folder of a new model that calls the tools of these environments; by default a temporary one."""
    import torch

    torch.set_num_threads(1)
    chance = random.Random(seed)
    episodes = [_play(spec, index, chance) for spec in specs for index in range(_EPISODES)]
    plain = tiny.tokenizer()  # its template renders the texts that the real one learns from
    texts = [render(plain, *episode) for episode in episodes]
    tokenizer = tiny.tokenizer(texts)
    model = tiny.model(tokenizer, seed)
    _imitate(model, [encode(tokenizer, text) for text in texts], chance)
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="tiny-model-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _play(
    spec: EnvironmentSpec, index: int, chance: random.Random
) -> tuple[list[Message], Sequence[Mapping[str, Any]]]:
    """A scripted episode: each tool once, in the order of the list."""
    dataset = spec.train_dataset
    episode = spec.begin(dataset[index % len(dataset)])
    messages: list[Message] = [{"role": "user", "content": episode.observation}]
    for schema in episode.tools:
        function = schema["function"]
        arguments = _arguments(function["parameters"], str(episode.observation), chance)
        answer = spec.run(episode.call(function["name"], arguments))
        call = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "name": function["name"], "content": answer.text})
    messages.append({"role": "assistant", "content": "Done."})
    spec.release([episode])
    return messages, episode.tools


def _arguments(parameters: Mapping[str, Any], prompt: str, chance: random.Random) -> dict[str, Any]:
    """Something for each parameter that must be given; words are taken from the prompt."""
    words = ["".join(filter(str.isalnum, word)) for word in prompt.split()]
    drawn: dict[str, Any] = {
        "integer": chance.randint(1, 10),
        "number": float(chance.randint(1, 10)),
        "boolean": chance.random() < 0.5,
        "string": chance.choice([word for word in words if word] or ["word"]),
        "array": [],
        "object": {},
    }
    properties: Mapping[str, Mapping[str, Any]] = parameters.get("properties") or {}
    required = parameters.get("required") or []
    return {name: drawn.get(properties[name].get("type", "string"), "word") for name in required}


def _imitate(model: Any, transcripts: Sequence[Transcript], chance: random.Random) -> None:
    import torch
    from torch.nn.utils.rnn import pad_sequence

    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(_STEPS):
        batch = chance.sample(transcripts, min(_BATCH, len(transcripts)))
        ids = [torch.tensor(one.ids) for one in batch]
        labels = [
            torch.where(torch.tensor(one.learned), row, -100) for one, row in zip(batch, ids, strict=True)
        ]
        model(
            input_ids=pad_sequence(ids, batch_first=True),
            attention_mask=pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
            labels=pad_sequence(labels, batch_first=True, padding_value=-100),
        ).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="an ORS server")
    parser.add_argument("--env-name", help="which environment of the server; its first by default")
    args = parser.parse_args()
    tiny_model(EnvironmentSpec(args.url, env_name=args.env_name, terminal="tool"), folder=args.folder)


if __name__ == "__main__":
    main()
