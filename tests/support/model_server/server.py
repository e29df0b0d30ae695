"""A stand-in for ``vllm serve``: the same requests, answers and refusals, over a real tiny model on the CPU.

    python -m tests.support.model_server.server FOLDER [--max-model-len N] [--tools] ...

Stricter than vLLM where vLLM forgives for a while what breaks later: a ``seed`` stops the engine for good,
and reloaded weights are used only after the prefix cache was reset. ``tool_choice: "required"`` does not
constrain what the model writes, streaming is refused, and ``GET /test/seen`` tells what arrived since the
last time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
import uvicorn
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from transformers import AutoTokenizer

from .answers import Refusal, Texts, chat_choice, completion_choice, error_answer
from .engine import Engine, EngineDead, Params, Row
from .wire import ChatRequest, CompletionRequest, DetokenizeRequest, SamplingFields, TokenizeRequest

__all__ = ["ModelServer"]

_Body = TypeVar("_Body", bound=BaseModel)

_TRACE = "please check the stack trace above for the root cause"
_FINGERPRINT = "vllm-stand-in"


class ModelServer:
    """The routes over one engine."""

    def __init__(
        self, folder: Path, *, name: str, max_model_len: int | None, tools: bool, api_key: str | None
    ) -> None:
        self._engine = Engine(folder)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._texts = Texts(self._tokenizer)
        self._folder, self._name, self._tools, self._api_key = folder, name, tools, api_key
        self._limit: int = max_model_len or self._engine.config.max_position_embeddings
        self._seen: dict[str, int] = {}
        self._last: dict[str, Any] | None = None

    def app(self) -> Starlette:
        @asynccontextmanager
        async def life(_: Starlette) -> Any:
            yield
            self._engine.close()

        return Starlette(
            routes=[
                Route("/health", self._guarded(self._health)),
                Route("/version", self._guarded(self._version)),
                Route("/v1/models", self._guarded(self._models)),
                Route("/v1/completions", self._guarded(self._completions), methods=["POST"]),
                Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
                Route("/tokenize", self._guarded(self._tokenize), methods=["POST"]),
                Route("/detokenize", self._guarded(self._detokenize), methods=["POST"]),
                Route("/get_world_size", self._guarded(self._world_size)),
                Route("/collective_rpc", self._guarded(self._collective_rpc), methods=["POST"]),
                Route("/reset_prefix_cache", self._guarded(self._reset), methods=["POST"]),
                Route("/test/seen", self._report),
            ],
            lifespan=life,
        )

    def _guarded(
        self, route: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def run(request: Request) -> Response:
            path = request.url.path
            self._seen[path] = self._seen.get(path, 0) + 1
            key = request.headers.get("authorization", "").removeprefix("Bearer ")
            if self._api_key and path.startswith("/v1") and key != self._api_key:
                return JSONResponse({"error": "Unauthorized"}, 401)
            try:
                return await route(request)
            except Refusal as exc:
                return error_answer(exc)
            except (ValidationError, json.JSONDecodeError) as exc:
                return error_answer(Refusal(str(exc), kind="Bad Request"))
            except EngineDead as exc:
                return error_answer(Refusal(str(exc), status=500, kind="InternalServerError"))

        return run

    async def _report(self, _: Request) -> Response:
        report = {"requests": self._seen, "most_at_once": self._engine.most_running, "last": self._last}
        self._seen, self._last, self._engine.most_running = {}, None, 0
        return JSONResponse(report)

    async def _health(self, _: Request) -> Response:
        return Response(status_code=503 if self._engine.dead else 200)

    async def _version(self, _: Request) -> Response:
        return JSONResponse({"version": "0.32.0"})

    async def _models(self, _: Request) -> Response:
        model = {
            "id": self._name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": str(self._folder),
            "parent": None,
            "max_model_len": self._limit,
            "permission": [],
        }
        return JSONResponse({"object": "list", "data": [model]})

    async def _completions(self, request: Request) -> Response:
        body = await self._body(CompletionRequest, request)
        prompts = self._prompts(body.prompt)
        if body.stream:
            raise Refusal("the stand-in does not stream")
        if body.logprobs is not None and body.logprobs < -1:
            raise Refusal(
                "`logprobs` must be a positive value or -1.", parameter="logprobs", value=body.logprobs
            )
        for prompt in prompts:
            self._check_prompt(prompt)
        top = self._top(body.logprobs)
        params = [self._params(body, prompt, body.max_tokens, top=top) for prompt in prompts]
        rows = await self._sampled(
            [(prompt, one) for prompt, one in zip(prompts, params, strict=True) for _ in range(body.n)]
        )
        choices = [completion_choice(at, row, body, self._texts) for at, row in enumerate(rows)]
        return JSONResponse(
            {
                "id": f"cmpl-{uuid.uuid4().hex[:16]}",
                "object": "text_completion",
                "created": int(time.time()),
                "model": self._name,
                "choices": choices,
                "service_tier": None,
                "system_fingerprint": _FINGERPRINT,
                "usage": _usage(prompts, rows),
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    async def _chat(self, request: Request) -> Response:
        body = await self._body(ChatRequest, request)
        if body.stream:
            raise Refusal("the stand-in does not stream")
        if body.tools and body.tool_choice != "none" and not self._tools:
            raise Refusal(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            )
        prompt = self._rendered(body.messages, body.tools, True, body.chat_template_kwargs)
        self._check_prompt(prompt)
        top = self._top(body.top_logprobs) if body.logprobs else 0
        params = self._params(body, prompt, body.max_completion_tokens or body.max_tokens, top=top)
        rows = await self._sampled([(prompt, params)] * body.n)
        return JSONResponse(
            {
                "id": f"chatcmpl-{uuid.uuid4().hex[:16]}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": self._name,
                "choices": [chat_choice(at, row, body, self._texts) for at, row in enumerate(rows)],
                "service_tier": None,
                "system_fingerprint": _FINGERPRINT,
                "usage": _usage([prompt], rows),
                "prompt_logprobs": None,
                "prompt_token_ids": prompt if body.return_token_ids else None,
                "prompt_text": None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    async def _tokenize(self, request: Request) -> Response:
        body = await self._body(TokenizeRequest, request)
        if body.messages is not None:
            ids = self._rendered(
                body.messages, body.tools, body.add_generation_prompt, body.chat_template_kwargs
            )
        elif body.prompt is not None:
            ids = self._texts.ids(body.prompt)
        else:
            raise Refusal("2 validation errors: body.prompt or body.messages", kind="Bad Request")
        strings = self._tokenizer.convert_ids_to_tokens(ids) if body.return_token_strs else None
        return JSONResponse(
            {"count": len(ids), "max_model_len": self._limit, "tokens": ids, "token_strs": strings}
        )

    async def _detokenize(self, request: Request) -> Response:
        body = await self._body(DetokenizeRequest, request)
        return JSONResponse({"prompt": self._texts.text(body.tokens, skip_special=False)})

    async def _world_size(self, _: Request) -> Response:
        return JSONResponse({"world_size": 1})

    async def _collective_rpc(self, request: Request) -> Response:
        body = await request.json()
        method = body.get("method")
        if method is None:
            raise Refusal("Missing 'method' in request body", kind="Bad Request")
        failed = "Call to collective_rpc method failed: Worker failed with error "
        if method != "reload_weights":
            why = f"{failed}''CPUWorker' object has no attribute '{method}'', {_TRACE}"
            raise Refusal(why, status=500, kind="InternalServerError")
        try:
            await asyncio.wrap_future(self._engine.reload())
        except (OSError, ValueError, RuntimeError) as exc:
            raise Refusal(f"{failed}'{exc}', {_TRACE}", status=500, kind="InternalServerError") from exc
        return JSONResponse({"results": [None]})

    async def _reset(self, _: Request) -> Response:
        return JSONResponse({"success": await asyncio.wrap_future(self._engine.reset())})

    async def _body(self, kind: type[_Body], request: Request) -> _Body:
        raw = await request.json()
        self._last = raw
        body = kind.model_validate(raw)
        model = getattr(body, "model", None)
        if model is not None and model != self._name:
            raise Refusal(
                f"The model `{model}` does not exist. Valid aliases: {self._name}.",
                status=404,
                kind="NotFoundError",
                parameter="model",
            )
        if isinstance(body, SamplingFields):
            body.check()
            if body.seed is not None:
                self._engine.die()
                raise EngineDead("a seed kills the engine of vLLM on a CPU: never send one")
        return body

    def _prompts(self, prompt: str | list[int] | list[list[int]] | list[str] | None) -> list[list[int]]:
        if prompt is None:
            message = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
            raise Refusal(message, parameter="prompt")
        if isinstance(prompt, str):
            return [self._texts.ids(prompt)]
        if not prompt:
            raise Refusal("You must pass at least one prompt")
        if isinstance(prompt[0], int):
            return [prompt]
        return [self._texts.ids(one) if isinstance(one, str) else one for one in prompt]

    def _rendered(
        self, messages: list[Any], tools: list[Any] | None, generation: bool, extra: dict[str, Any] | None
    ) -> list[int]:
        if not messages:
            raise Refusal(
                "Cannot apply chat template to an empty conversation. Provide at least one message."
            )
        for message in messages:
            for call in message.get("tool_calls") or []:
                if isinstance(call["function"]["arguments"], str):  # templates expect an object
                    call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        text = self._tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=generation, tokenize=False, **(extra or {})
        )
        return self._texts.ids(text)

    def _check_prompt(self, prompt: list[int]) -> None:
        if not prompt:
            raise Refusal("The decoder prompt cannot be empty")
        if len(prompt) > self._limit:
            raise Refusal(
                f"This model's maximum context length is {self._limit} tokens. However, your prompt contains "
                f"{len(prompt)} input tokens, which exceeds this limit even without any output tokens. "
                "Please reduce the length of the input prompt.",
                parameter="input_tokens",
                value=len(prompt),
            )
        unknown = next((one for one in prompt if one >= len(self._tokenizer)), None)
        if unknown is not None:
            raise Refusal(f"Token id {unknown} is out of vocabulary")

    def _top(self, wanted: int | None) -> int:
        return len(self._tokenizer) if wanted == -1 else wanted or 0

    def _params(self, body: SamplingFields, prompt: list[int], wanted: int | None, *, top: int) -> Params:
        room = self._limit - len(prompt)
        max_tokens = room if wanted is None else min(wanted, room)
        if max_tokens < 1:
            raise Refusal(
                f"max_tokens must be at least 1, got {max_tokens}.", parameter="max_tokens", value=max_tokens
            )
        stops = frozenset(body.stop_token_ids or ())
        strings = [body.stop] if isinstance(body.stop, str) else body.stop or []

        def ends(ids: list[int]) -> bool:
            text = self._texts.text(ids)
            return any(string in text for string in strings)

        return Params(
            max_tokens=max_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            min_p=body.min_p,
            repetition_penalty=body.repetition_penalty,
            stop_ids=stops if body.ignore_eos else stops | self._engine.end_ids,
            top=top,
            ends=ends if strings else None,
        )

    async def _sampled(self, wanted: list[tuple[list[int], Params]]) -> list[Row]:
        futures = [self._engine.sample(prompt, params) for prompt, params in wanted]
        return list(await asyncio.gather(*map(asyncio.wrap_future, futures)))


def _usage(prompts: list[list[int]], rows: list[Row]) -> dict[str, Any]:
    asked, made = sum(map(len, prompts)), sum(len(row.ids) for row in rows)
    return {
        "prompt_tokens": asked,
        "total_tokens": asked + made,
        "completion_tokens": made,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--served-model-name")
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--tools", action="store_true", help="parse tool calls of the hermes format")
    parser.add_argument("--api-key")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model_server = ModelServer(
        options.folder,
        name=options.served_model_name or str(options.folder),
        max_model_len=options.max_model_len,
        tools=options.tools,
        api_key=options.api_key,
    )
    with socket.create_server(("127.0.0.1", options.port), backlog=1024) as listener:
        print(f"stand-in on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        server = uvicorn.Server(uvicorn.Config(model_server.app(), log_level="warning"))
        server.run(sockets=[listener])


if __name__ == "__main__":
    main()
