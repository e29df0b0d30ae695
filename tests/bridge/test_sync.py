"""New weights reach the server through its folder, and whatever would leave it with old ones is an error."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

import torch
from orsay_client.retry import Retry
from orsay_trl.rollout.sampling import Sampling
from orsay_trl.rollout.sync import DiskSync, SyncError, untie
from orsay_trl.rollout.vllm import VLLMSampler
from transformers import AutoModelForCausalLM

from ..support.model_server.processes import ServedModel, serve_model
from ..support.trainers import ranks

pytestmark = pytest.mark.process

QUICK = Retry(tries=2, first_delay_s=0.01)
PROMPT = [64, 65, 66, 220]


@pytest.fixture(scope="module")
def server(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    folder = Path(shutil.copytree(model_folder, tmp_path_factory.mktemp("sync") / "model"))
    with serve_model(folder) as served:
        yield served


@pytest.fixture
def served(server: ServedModel) -> ServedModel:
    """A server whose folder may be written to, and holds at first what it samples from."""
    server.seen()
    return server


@pytest.fixture
def folder(model_folder: Path, tmp_path: Path) -> Path:
    """A copy of the model that may be broken."""
    return Path(shutil.copytree(model_folder, tmp_path / "model"))


def loaded(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder)


def trained(model: Any) -> Any:
    """A few real steps of an optimiser, away from what the server has."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        ids = torch.tensor([[*PROMPT, 10, 11, 12, 13]])
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


async def parity(url: str, model: Any) -> float:
    """max |logprob of the sampler - logprob of the trainer|."""
    async with VLLMSampler(url, sampling=Sampling()) as vllm:
        made = await vllm.sample(PROMPT, max_tokens=12)
    with torch.inference_mode():
        logits = model(torch.tensor([PROMPT + made.token_ids])).logits[0, len(PROMPT) - 1 : -1]
    ours = logits.log_softmax(-1).gather(-1, torch.tensor(made.token_ids)[:, None])[:, 0]
    return float((ours - torch.tensor(made.logprobs)).abs().max())


def a_trainer(model: Any, step: int = 0) -> Any:
    """What DiskSync reads of a trainer, with accelerate's own accelerator."""
    from accelerate import Accelerator

    return SimpleNamespace(
        model=model,
        model_wrapped=model,
        accelerator=Accelerator(cpu=True),
        state=SimpleNamespace(global_step=step),
    )


async def test_after_a_push_the_server_samples_from_the_trained_weights(served: ServedModel) -> None:
    model = loaded(served.folder)
    assert await parity(served.base_url, model) < 1e-3
    trained(model)
    assert await parity(served.base_url, model) > 0.05
    DiskSync(served.folder, served.base_url + "/v1").push(model)
    assert await parity(served.base_url, model) < 1e-3
    assert served.seen()["requests"]["/reset_prefix_cache"] == 1


async def test_a_trainer_is_synchronised_once_per_step(served: ServedModel) -> None:
    trainer = a_trainer(loaded(served.folder))
    sync = DiskSync(served.folder, served.base_url)
    assert [sync.sync(trainer), sync.sync(trainer)] == [True, False]
    assert served.seen()["requests"]["/collective_rpc"] == 1
    trained(trainer.model)
    trainer.state.global_step = 4
    assert sync.sync(trainer) is True and sync.step == 4
    assert await parity(served.base_url, trainer.model) < 1e-3


def test_a_failed_synchronisation_is_done_again(served: ServedModel, tmp_path: Path) -> None:
    trainer = a_trainer(loaded(served.folder))
    sync = DiskSync(served.folder, "http://127.0.0.1:1", retry=QUICK)
    with pytest.raises(SyncError, match="is vLLM running there"):
        sync.sync(trainer)
    sync.base_url = served.base_url
    assert sync.sync(trainer) is True


def test_a_tied_output_layer_is_refused_until_it_is_untied(served: ServedModel) -> None:
    model = loaded(served.folder)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    sync = DiskSync(served.folder, served.base_url)
    with pytest.raises(ValueError, match="untie"):
        sync.push(model)
    assert "/collective_rpc" not in served.seen()["requests"]
    untie(model)
    assert torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)
    model.lm_head.weight.data += 1
    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)
    assert model.lm_head.weight.requires_grad


async def test_an_untied_model_is_sampled_as_it_was_trained(served: ServedModel) -> None:
    model = loaded(served.folder)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    untie(model)
    untie(model)
    DiskSync(served.folder, served.base_url).push(trained(model))
    saved = loaded(served.folder)
    assert torch.equal(saved.lm_head.weight, model.lm_head.weight)
    assert not torch.equal(saved.lm_head.weight, saved.model.embed_tokens.weight)
    assert await parity(served.base_url, model) < 1e-3


def test_an_adapter_is_refused(served: ServedModel) -> None:
    model = loaded(served.folder)
    model.peft_config = {}
    with pytest.raises(ValueError, match="merge_and_unload"):
        DiskSync(served.folder, served.base_url).push(model)


def test_something_wrapped_is_refused(served: ServedModel) -> None:
    with pytest.raises(ValueError, match="unwrapped; got Linear"):
        DiskSync(served.folder, served.base_url).push(torch.nn.Linear(2, 2))


def test_another_folder_than_the_served_one_is_refused_and_left_alone(
    served: ServedModel, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with pytest.raises(SyncError, match="give DiskSync the folder that the server was started on"):
        DiskSync(other, served.base_url).push(loaded(served.folder))
    assert not other.exists()


def test_the_cache_is_emptied_only_after_running_requests_ended(served: ServedModel) -> None:
    model = loaded(served.folder)
    body = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "temperature": 0}
    running = threading.Thread(
        target=lambda: httpx.post(
            f"{served.base_url}/v1/completions", json=body, timeout=100, trust_env=False
        )
    )
    running.start()
    try:
        while not served.seen()["most_at_once"]:
            assert running.is_alive()
        DiskSync(served.folder, served.base_url).push(model)
        running.join(10)
        assert not running.is_alive()
        assert served.seen()["requests"]["/reset_prefix_cache"] > 1
    finally:
        running.join()


def test_broken_weights_in_the_folder_are_reported(folder: Path) -> None:
    model = loaded(folder)

    def save_nonsense(where: Path) -> None:
        (where / "model.safetensors").write_bytes(b"nonsense")

    model.save_pretrained = save_nonsense
    with serve_model(folder) as served, pytest.raises(SyncError, match="collective_rpc answered 500"):
        DiskSync(folder, served.base_url).push(model)


class Plain(BaseHTTPRequestHandler):
    """vLLM without development mode."""

    def do_GET(self) -> None:
        self.answer(200, {"data": [{"id": "m", "root": "/somewhere/in/a/container"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.answer(404, {"detail": "Not Found"})

    def answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_server_without_development_mode_is_distinguished(folder: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Plain) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(SyncError, match="VLLM_SERVER_DEV_MODE=1"):
                DiskSync(folder, f"http://127.0.0.1:{server.server_port}").push(loaded(folder))
        finally:
            server.shutdown()
            thread.join()


TWO_PROCESSES = """
import sys
from types import SimpleNamespace
import torch
from accelerate import Accelerator
from orsay_trl.rollout.sync import DiskSync
from transformers import AutoModelForCausalLM

accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2
bare = AutoModelForCausalLM.from_pretrained(sys.argv[1])
model = accelerator.prepare(bare)
with torch.no_grad():
    bare.lm_head.weight.mul_(0)
trainer = SimpleNamespace(
    model=model, model_wrapped=model, accelerator=accelerator, state=SimpleNamespace(global_step=1)
)
sync = DiskSync(sys.argv[1], sys.argv[2])
assert [sync.sync(trainer), sync.sync(trainer)] == [True, False]
saved = AutoModelForCausalLM.from_pretrained(sys.argv[1])
assert not saved.lm_head.weight.any(), "the other process went on before the main one had saved"
accelerator.end_training()
"""


def test_of_two_processes_the_main_one_saves_and_the_other_waits(served: ServedModel, tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    done = ranks([str(script), str(served.folder), served.base_url], timeout=110)
    assert [each.returncode for each in done] == [0, 0], [each.stderr[-3000:] for each in done]
    assert served.seen()["requests"]["/collective_rpc"] == 1
    assert asyncio.run(parity(served.base_url, loaded(served.folder))) < 1e-3
