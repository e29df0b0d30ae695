"""Weight updates of a vLLM server through its model folder, where TRL cannot send them itself.

The server must run with ``VLLM_SERVER_DEV_MODE=1`` on that folder, which both sides may see under different
paths. On machines with CUDA, TRL's own ``use_vllm=True`` is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from orsay_client.redact import Redact
from orsay_client.retry import Attempts, Retry

from .sampling import SamplerError
from .vllm import server_url

__all__ = ["DiskSync", "SyncError", "untie"]

_CONNECT_S = 10.0
_SHARDED = frozenset({"DEEPSPEED", "FSDP"})


class SyncError(SamplerError):
    """The server did not load the new weights: it does not sample from the model that is trained."""


class DiskSync:
    """Saves a model into the folder of a vLLM server, and makes the server reload it.

    Args:
        folder: What the server was started on, as this process sees it; the model's files there are replaced.
        base_url: ``http://host:8000``, with or without ``/v1``.
        api_key: Sent as a bearer token; never part of a message.
        timeout_s: How long the server may take to load the weights, or to finish what it samples.
        retry: Bounds of trying again when the connection breaks; loading twice is harmless.
    """

    def __init__(
        self,
        folder: str | Path,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        retry: Retry | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.base_url = server_url(base_url)
        self.step: int | None = None
        """The trainer's step whose weights the server has; None before the first ``sync``."""
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._redact = Redact([api_key])
        self._timeout_s = timeout_s
        self._retry = retry or Retry()

    def sync(self, trainer: Any) -> bool:
        """Update the server with a TRL trainer's weights, unless it has those of the current step.

        A collective call of all processes: the main one saves, the others wait. Returns True if the weights
        were updated. Raises as ``push``.
        """
        step = int(trainer.state.global_step)
        if step == self.step:
            return False
        accelerator, state = trainer.accelerator, None
        if accelerator.distributed_type.value in _SHARDED:  # all processes hold a shard, and take part
            state = accelerator.get_state_dict(trainer.model_wrapped)
        if accelerator.is_main_process:
            self.push(accelerator.unwrap_model(trainer.model), state)
        accelerator.wait_for_everyone()
        self.step = step
        return True

    def push(self, model: Any, state: Mapping[str, Any] | None = None) -> None:
        """Save ``model``, make the server load it, and reset its prefix cache.

        Args:
            model: A transformers model, not wrapped; in one process only.
            state: Its whole state, where the model itself holds a part of it.

        Raises:
            ValueError: The output layer is tied to the embedding, or the model is an adapter.
            SyncError: The server cannot be reached, serves another folder, or failed.
        """
        _check(model)
        with httpx.Client(
            base_url=self.base_url,
            headers=self._headers,
            timeout=httpx.Timeout(self._timeout_s, connect=_CONNECT_S),
            trust_env=False,
        ) as http:
            self._check_folder(http)
            model.save_pretrained(self.folder, **({} if state is None else {"state_dict": state}))
            self._ask(http, "POST", "/collective_rpc", {"method": "reload_weights"})
            self._reset(http)

    def _check_folder(self, http: httpx.Client) -> None:
        answer = self._ask(http, "GET", "/v1/models")
        served = [Path(model["root"]) for model in _members(answer, "data") if model.get("root")]
        # A server in a container may see the folder under another path.
        known = [root for root in served if root.is_absolute() and root.is_dir()]
        if known and not any(root.samefile(self.folder) for root in known if self.folder.is_dir()):
            raise SyncError(
                f"vLLM at {self.base_url} serves {', '.join(map(str, known))}, and would read that again "
                f"instead of {self.folder}; give DiskSync the folder that the server was started on"
            )

    def _reset(self, http: httpx.Client) -> None:
        """Reset the prefix cache, again while the server refuses since requests hold blocks of it."""
        deadline = time.monotonic() + self._timeout_s
        delay_s = 0.02
        while _success(self._ask(http, "POST", "/reset_prefix_cache")) is False:
            if time.monotonic() > deadline:
                raise SyncError(
                    f"vLLM at {self.base_url} still samples {self._timeout_s:.0f} s after its weights "
                    "changed, so that its prefix cache cannot be emptied; is this server used elsewhere?"
                )
            time.sleep(delay_s)
            delay_s = min(2 * delay_s, 1.0)

    def _ask(
        self, http: httpx.Client, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        def send() -> httpx.Response:
            return http.request(method, path, json=body)

        try:
            answer = _with_retries(send, Attempts(self._retry))
        except httpx.TransportError as exc:
            raise SyncError(
                f"{method} {self.base_url}{path} failed: {exc or type(exc).__name__}; is vLLM running there?"
            ) from exc
        if answer.status_code == 200:
            return answer
        hint = "; the server's own log has more"
        if answer.status_code == 404 and path != "/v1/models":
            hint = "; start vLLM with VLLM_SERVER_DEV_MODE=1 in its environment"
        elif answer.status_code in (401, 403):
            hint = "; pass the server's --api-key as api_key"
        text = self._redact(answer.text)[:500]
        raise SyncError(f"{method} {self.base_url}{path} answered {answer.status_code}: {text}{hint}")


def untie(model: Any) -> None:
    """Untie the output layer of a transformers model from its embedding; both start equal.

    Call it before saving the folder that the server starts with, which must be untied too. Does nothing for
    an untied model.
    """
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    model.config.get_text_config().tie_word_embeddings = False
    model.config.tie_word_embeddings = False
    if head is not None and head.weight is embedding.weight:
        head.weight = type(embedding.weight)(
            embedding.weight.detach().clone(), requires_grad=embedding.weight.requires_grad
        )


def _check(model: Any) -> None:
    if hasattr(model, "peft_config"):
        raise ValueError(
            "DiskSync saves whole models, and this one is an adapter: merge it first (merge_and_unload), or "
            "let TRL bring the weights with use_vllm=True"
        )
    if not hasattr(model, "save_pretrained"):
        raise ValueError(f"DiskSync saves transformers models, unwrapped; got {type(model).__name__}")
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head is not None and embedding is not None and head.weight is embedding.weight
    if tied or model.config.get_text_config().tie_word_embeddings:
        raise ValueError(
            "the output layer of this model is tied to its embedding, and vLLM would keep the old one when "
            "it reloads: call orsay_trl.rollout.sync.untie(model) before saving the folder that vLLM is "
            "started on"
        )


def _with_retries(send: Callable[[], httpx.Response], attempts: Attempts) -> httpx.Response:
    while True:
        try:
            answer = send()
        except httpx.TransportError:
            delay_s = attempts.after_break()
            if delay_s is None:
                raise
        else:
            delay_s = attempts.after_answer(answer.status_code, answer.headers)
            if answer.status_code == 200 or delay_s is None:
                return answer
        time.sleep(delay_s)


def _members(answer: httpx.Response, name: str) -> list[Any]:
    try:
        found = answer.json()[name]
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, list):
        raise SyncError(f"{answer.request.url} does not answer as vLLM does: no list {name!r}")
    return found


def _success(answer: httpx.Response) -> bool | None:
    """Success according to the server's answer; None if it has no such field, as of older servers."""
    if not answer.content:
        return None
    try:
        success = answer.json()["success"]
    except (ValueError, KeyError, TypeError):
        return None
    return bool(success)
