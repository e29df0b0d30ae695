"""What the stand-in answers, in vLLM's form: completions, chat with hermes tool calls, refusals."""

from __future__ import annotations

import json
import re
import uuid
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from .engine import Row
    from .wire import ChatRequest, CompletionRequest, SamplingFields

__all__ = ["Refusal", "Texts", "chat_choice", "completion_choice", "error_answer"]

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)


class Refusal(Exception):
    """An error answer; the value that was refused is repeated in the message."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "BadRequestError",
        parameter: str | None = None,
        value: object = None,
    ) -> None:
        if value is not None:
            message = f"{message} (parameter={parameter}, value={value})"
        super().__init__(message)
        self.message, self.status, self.kind, self.parameter = message, status, kind, parameter


def error_answer(refusal: Refusal) -> JSONResponse:
    error = {
        "message": refusal.message,
        "type": refusal.kind,
        "param": refusal.parameter,
        "code": refusal.status,
    }
    return JSONResponse({"error": error}, refusal.status)


class Texts:
    """Ids as text and back, as vLLM does it."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def text(self, ids: list[int], *, skip_special: bool = True) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=skip_special)
        return text

    def shown(self, token: int, as_id: bool) -> str:
        return f"token_id:{token}" if as_id else self.text([token], skip_special=False)

    def made(self, row: Row, body: SamplingFields) -> str:
        """What the row says, without the token or from the string that ended it."""
        ids = row.ids[:-1] if row.finish == "stop" and row.ids[-1] in row.params.stop_ids else row.ids
        text = self.text(ids, skip_special=body.skip_special_tokens)
        if row.finish == "stop" and (found := self.stop_string(row, body)) is not None:
            text = text[: text.index(found)]
        return text

    def stop_string(self, row: Row, body: SamplingFields) -> str | None:
        if row.ids[-1] in row.params.stop_ids:
            return None
        strings = [body.stop] if isinstance(body.stop, str) else body.stop or []
        text = self.text(row.ids)
        return next((string for string in strings if string in text), None)

    def stop_reason(self, row: Row, body: SamplingFields) -> int | str | None:
        """The asked-for token or string that ended the row; None for the model's own end."""
        if row.finish != "stop":
            return None
        if row.ids[-1] in (body.stop_token_ids or ()):
            return row.ids[-1]
        return self.stop_string(row, body)


def completion_choice(at: int, row: Row, body: CompletionRequest, texts: Texts) -> dict[str, Any]:
    return {
        "index": at,
        "text": texts.made(row, body),
        "logprobs": None if body.logprobs is None else _completion_logprobs(row, body, texts),
        "finish_reason": row.finish,
        "stop_reason": texts.stop_reason(row, body),
        "token_ids": row.ids if body.return_token_ids else None,
        "prompt_logprobs": None,
        "prompt_token_ids": row.prompt if body.return_token_ids else None,
        "routed_experts": None,
    }


def _completion_logprobs(row: Row, body: CompletionRequest, texts: Texts) -> dict[str, Any]:
    as_ids = body.return_tokens_as_token_ids
    tokens = [texts.shown(token, as_ids) for token in row.ids]
    tops = [
        {texts.shown(one, as_ids): logprob for one, logprob in [(token, sampled), *top]}
        for token, sampled, top in zip(row.ids, row.logprobs, row.tops, strict=True)
    ]
    return {
        "text_offset": list(accumulate(map(len, tokens[:-1]), initial=0)),
        "token_logprobs": row.logprobs,
        "tokens": tokens,
        "top_logprobs": tops,
    }


def chat_choice(at: int, row: Row, body: ChatRequest, texts: Texts) -> dict[str, Any]:
    text = texts.made(row, body)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
    }
    parses = body.tools and body.tool_choice != "none"
    calls = _tool_calls(text) if parses else []
    if calls:
        message["content"] = (
            "" if body.tool_choice == "required" else text.partition("<tool_call>")[0] or None
        )
        message["tool_calls"] = calls
    message["reasoning"] = None
    return {
        "index": at,
        "message": message,
        "logprobs": {"content": _chat_logprobs(row, body, texts)} if body.logprobs else None,
        "finish_reason": "tool_calls" if calls else row.finish,
        "stop_reason": texts.stop_reason(row, body),
        "token_ids": row.ids if body.return_token_ids else None,
        "routed_experts": None,
    }


def _tool_calls(text: str) -> list[dict[str, Any]]:
    """All calls of the text, or none when one of them is not whole: the text is then left as it is."""
    try:
        found = [json.loads(whole or open_ended) for whole, open_ended in _CALL.findall(text)]
        return [
            {
                "id": f"chatcmpl-tool-{uuid.uuid4().hex[:16]}",
                "type": "function",
                "function": {
                    "name": call["name"],
                    "arguments": json.dumps(call["arguments"], ensure_ascii=False),
                },
            }
            for call in found
        ]
    except (ValueError, KeyError, TypeError):
        return []


def _chat_logprobs(row: Row, body: ChatRequest, texts: Texts) -> list[dict[str, Any]]:
    as_ids = body.return_tokens_as_token_ids

    def of(token: int, logprob: float, written: str) -> dict[str, Any]:
        return {"token": texts.shown(token, as_ids), "logprob": logprob, "bytes": list(written.encode())}

    return [
        {
            **of(token, logprob, texts.shown(token, False)),
            "top_logprobs": [of(one, its, texts.shown(one, as_ids)) for one, its in top],
        }
        for token, logprob, top in zip(row.ids, row.logprobs, row.tops, strict=True)
    ]
