"""The examples of docs/rollout.md run, with a tiny model and little to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

from orsay_trl.testing import tiny_model as tiny

from tests.support.documentation import EXAMPLES

from ..support.bridge_server import TRAINING, EnvServer, serve_environments
from ..support.model_server.processes import ServedModel
from .parrot import Parrot

pytestmark = [pytest.mark.process, *TRAINING, pytest.mark.timeout(300)]

LITTLE = (
    "max_steps=1, per_device_train_batch_size=2, num_generations=2, use_cpu=True, bf16=False, "
    "report_to='none', save_strategy='no', disable_tqdm=True, "
)


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(
        tmp_path_factory.mktemp("docs"), target="envs/echo/echo_env/env.py:EchoEnvironment"
    ) as found:
        yield found


def run(name: str, folder: Path, **replaced: str) -> None:
    """The example as it is written, but for the model, the address and the amount of work."""
    code = (EXAMPLES / "training" / f"{name}.py").read_text()
    known = {
        "Qwen/Qwen3-0.6B": str(tiny.build(folder / "model")),
        "GRPOConfig(": f"GRPOConfig(output_dir={str(folder / 'out')!r}, {LITTLE}",
        "max_completion_length=1024": "max_completion_length=64",
        "max_completion_length=512": "max_completion_length=64",
        "num_tasks=64": "num_tasks=2",
        **replaced,
    }
    for old, new in known.items():
        code = code.replace(old, new)
    space: dict[str, object] = {"__name__": "example"}
    exec(compile(code, name, "exec"), space)
    spec = space.get("spec")
    if spec is not None:
        spec.close()  # type: ignore[attr-defined]  # whatever the example made


@pytest.mark.parametrize("name", ["rollout", "text_rollout"])
def test_an_environment_is_trained_on(name: str, echo: EnvServer, tmp_path: Path) -> None:
    run(name, tmp_path, **{"http://127.0.0.1:8080": echo.url})


def test_an_openenv_environment_is_trained_on(
    parrot: Parrot, model_server: ServedModel, tmp_path: Path
) -> None:
    changes = {
        "http://127.0.0.1:8000": parrot.url,
        'use_vllm=True, vllm_mode="colocate"': "temperature=1.0",  # a server instead, of the same model
        "max_steps=2,\n    ),": f"max_steps=2, vllm_base_url={model_server.base_url!r}, sync=False),",
        "Qwen/Qwen3-0.6B": str(model_server.folder),
    }
    run("openenv_rollout", tmp_path, **changes)
