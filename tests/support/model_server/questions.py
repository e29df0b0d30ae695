"""The requests whose answers were recorded from vLLM, and how other answers are compared with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

__all__ = ["MAX_MODEL_LEN", "MODEL", "QUESTIONS", "RECORDED", "Question", "ask", "difference", "lasting"]

RECORDED = Path(__file__).with_name("recorded.json")
"""The answers, by the names of the questions, with the release of vLLM and the fingerprint of the model."""

MODEL = "tiny"
MAX_MODEL_LEN = 512

_VOLATILE = frozenset({"id", "created", "system_fingerprint", "root", "permission"})
_CLOSE = 1e-3


@dataclass(frozen=True, slots=True)
class Question:
    """One request. ``drawn``: the tokens differ from time to time, and only the form is compared."""

    path: str
    body: Mapping[str, Any] | None = None
    method: str = "POST"
    drawn: bool = False


def _complete(drawn: bool = False, **fields: Any) -> Question:
    body: dict[str, Any] = {
        "model": MODEL,
        "prompt": [64, 65, 66],
        "max_tokens": 12,
        "temperature": 0,
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **fields,
    }
    return Question("/v1/completions", body, drawn=drawn)


def _draw(**fields: Any) -> Question:
    return _complete(True, **{"temperature": 1, "ignore_eos": True, "n": 4, **fields})


TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look behind a door.",
        "parameters": {"type": "object", "properties": {"door": {"type": "integer"}}, "required": ["door"]},
    },
}
ASKED = [{"role": "user", "content": "Find the door."}]
PLAYED = [
    *ASKED,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"door": 3}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "a code word"},
]


def _chat(drawn: bool = False, **fields: Any) -> Question:
    body = {
        "model": MODEL,
        "messages": ASKED,
        "max_tokens": 30,
        "temperature": 0,
        "logprobs": True,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **fields,
    }
    return Question("/v1/chat/completions", body, drawn=drawn)


def _rest(path: str, method: str = "POST", **body: Any) -> Question:
    return Question(path, body if method == "POST" else None, method)


QUESTIONS: Mapping[str, Question] = {
    "health": _rest("/health", "GET"),
    "models": _rest("/v1/models", "GET"),
    "world size": _rest("/get_world_size", "GET"),
    "greedy": _complete(),
    "greedy past the end": _complete(ignore_eos=True, max_tokens=40),
    "greedy long prompt": _complete(
        prompt=[(7 * at) % 690 for at in range(300)], max_tokens=30, ignore_eos=True
    ),
    "greedy up to the context limit": _complete(prompt=[64] * 500, max_tokens=40, ignore_eos=True),
    "greedy last place": _complete(prompt=[64] * 511),
    "greedy, rest of the context": _complete(prompt=[64] * 500, max_tokens=None),
    "greedy, top logprobs": _complete(logprobs=3),
    "greedy, tokens as text": _complete(return_token_ids=False, return_tokens_as_token_ids=False),
    "greedy, no logprobs": _complete(logprobs=None),
    "greedy, special tokens kept": _complete(skip_special_tokens=False),
    "greedy, several prompts": _complete(prompt=[[64, 65], [87, 88, 89], [22], list(range(600, 690))]),
    "greedy, text prompt": _complete(prompt="abc"),
    "greedy, text prompts": _complete(prompt=["abc", "Look behind door 7."]),
    "greedy, stop token": _complete(stop_token_ids=[416]),
    "greedy, stop string": _complete(stop=["</tool"]),
    "greedy, repetition penalty": _complete(repetition_penalty=1.8, ignore_eos=True, max_tokens=30),
    "unknown fields are ignored": _complete(nonsense=True),
    "default length": Question(
        "/v1/completions",
        {"prompt": [64, 65, 66], "temperature": 0, "ignore_eos": True, "return_token_ids": True},
    ),
    "drawn": _draw(),
    "drawn, several prompts": _draw(prompt=[[64, 65], [87, 88, 89]], n=2),
    "drawn, cold": _draw(temperature=0.5),
    "drawn, hot": _draw(temperature=2.0),
    "drawn, top k": _draw(top_k=5),
    "drawn, top p": _draw(top_p=0.6),
    "drawn, min p": _draw(min_p=0.2),
    "drawn, all filters": _draw(temperature=1.5, top_k=40, top_p=0.9, min_p=0.01, repetition_penalty=1.3),
    "too long": _complete(prompt=[64] * 600),
    "one of two too long": _complete(prompt=[[64], [64] * 600]),
    "no room": _complete(prompt=[64] * 512),
    "unknown model": _complete(model="nobody"),
    "no prompt": _complete(prompt=None),
    "empty prompt": _complete(prompt=[]),
    "empty prompt among others": _complete(prompt=[[64], []]),
    "id out of vocabulary": _complete(prompt=[100000]),
    "negative id": _complete(prompt=[-1]),
    "max_tokens 0": _complete(max_tokens=0),
    "n 0": _complete(n=0),
    "n 2 greedy": _complete(n=2),
    "negative temperature": _complete(temperature=-1),
    "top_p 0": _complete(top_p=0),
    "top_k -5": _complete(top_k=-5),
    "min_p 2": _complete(min_p=2),
    "repetition_penalty 0": _complete(repetition_penalty=0),
    "logprobs -2": _complete(logprobs=-2),
    "chat": _chat(),
    "chat with tools": _chat(tools=[TOOL]),
    "chat with tools, tokens as text": _chat(
        tools=[TOOL], return_token_ids=False, return_tokens_as_token_ids=False
    ),
    "chat with tools switched off": _chat(
        tools=[TOOL], tool_choice="none", chat_template_kwargs={"enable_thinking": False}
    ),
    "chat after a tool answered": _chat(messages=PLAYED, tools=[TOOL]),
    "chat cut off in a call": _chat(tools=[TOOL], max_tokens=4),
    "chat, top logprobs": _chat(top_logprobs=1, max_tokens=2),
    "chat, no logprobs": _chat(logprobs=False, tools=[TOOL]),
    "chat, drawn": _chat(True, temperature=1, n=2, tools=[TOOL]),
    "chat without messages": _chat(messages=[]),
    "chat, unknown model": _chat(model="nobody"),
    "tokenize": _rest("/tokenize", model=MODEL, prompt="abc 12"),
    "tokenize, marks": _rest(
        "/tokenize", model=MODEL, prompt="<|im_start|>user\n<think>é", return_token_strs=True
    ),
    "tokenize, messages": _rest("/tokenize", model=MODEL, messages=ASKED),
    "tokenize, messages and tools": _rest(
        "/tokenize", model=MODEL, messages=PLAYED, tools=[TOOL], add_generation_prompt=False
    ),
    "tokenize, unknown model": _rest("/tokenize", model="nobody", prompt="a"),
    "tokenize, nothing": _rest("/tokenize", model=MODEL),
    "detokenize": _rest("/detokenize", model=MODEL, tokens=[693, 64]),
    "reload": _rest("/collective_rpc", method_="reload_weights"),
    "reset": _rest("/reset_prefix_cache"),
    "greedy after a reload": _complete(),
    "rpc without a method": _rest("/collective_rpc"),
    "unknown rpc": _rest("/collective_rpc", method_="nothing_of_that_name"),
}


def ask(client: httpx.Client, question: Question) -> dict[str, Any]:
    """Status and body of the answer, ready for JSON."""
    body = question.body
    if body is not None and "method_" in body:
        body = {"method": body["method_"]}
    answer = client.request(question.method, question.path, json=body)
    return {"status": answer.status_code, "body": answer.json() if answer.content else None}


def difference(question: Question, wanted: Any, got: Any) -> str | None:
    """Where ``got`` differs from the recorded ``wanted``, beyond rounding and what is made up on the spot."""
    if question.drawn:
        wanted, got = _form(wanted), _form(got)
    return _difference(_settled(wanted), _settled(got), "answer")


def lasting(answer: Any) -> Any:
    """The answer without the values that differ each time; their names stay."""
    if isinstance(answer, dict):
        return {name: None if name in _VOLATILE else lasting(value) for name, value in answer.items()}
    return [lasting(value) for value in answer] if isinstance(answer, list) else answer


def _settled(answer: Any) -> Any:
    """The answer without ids, times and the wording of pydantic's complaints."""
    if isinstance(answer, dict):
        kept = {name: _settled(value) for name, value in answer.items() if name not in _VOLATILE}
        if answer.get("type") == "Bad Request":
            kept.pop("message")
            kept.pop("param")
        return kept
    return [_settled(value) for value in answer] if isinstance(answer, list) else answer


def _form(answer: Any) -> Any:
    """What stays the same when other tokens are drawn: the names, and how many there are of each."""
    body = dict(answer["body"])
    body["usage"] = sorted(body["usage"])
    body["choices"] = [
        {
            **dict.fromkeys(choice),
            "index": choice["index"],
            "prompt_token_ids": choice.get("prompt_token_ids"),
            "logprobs": sorted(choice["logprobs"]),
            "lengths": len({len(choice["token_ids"]), *map(len, choice["logprobs"].values())}),
        }
        for choice in body["choices"]
    ]
    return {"status": answer["status"], "body": body}


def _difference(wanted: Any, got: Any, where: str) -> str | None:
    if isinstance(wanted, dict) and isinstance(got, dict):
        if wanted.keys() != got.keys():
            return f"{where}: {sorted(wanted.keys() ^ got.keys())} on one side only"
        found = (_difference(wanted[name], got[name], f"{where}.{name}") for name in wanted)
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        pairs = enumerate(zip(wanted, got, strict=True))
        found = (_difference(one, two, f"{where}[{at}]") for at, (one, two) in pairs)
    elif isinstance(wanted, float) and isinstance(got, float):
        return None if abs(wanted - got) <= _CLOSE else f"{where}: {got} instead of {wanted}"
    else:
        return None if wanted == got else f"{where}: {got!r} instead of {wanted!r}"
    return next((text for text in found if text), None)
