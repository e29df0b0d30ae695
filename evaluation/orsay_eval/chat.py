"""A model behind an OpenAI-compatible chat endpoint, as a policy: native tool calls by the package openai."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orsay_client.redact import Redact
from orsay_protocol.evaluation import TokenCounts
from pydantic import BaseModel

from .conversation import Conversation
from .errors import EvaluationError, ModelFault, ModelUnusable
from .moves import Move, Opening, Result

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

__all__ = ["ChatModel"]

_NO_KEY = "none"  # the package requires a key; local servers ignore it
_CONTEXT = ("context length", "context_length", "maximum context", "context window", "too many tokens")
_FIRST_PAUSES_S = (0.5, 1.0, None)
_TOKEN_NAMES = ("max_tokens", "max_completion_tokens")


class ChatModel:
    """A model by its name at ``base_url``; vLLM, SGLang, llama.cpp, Ollama and hosted models speak this.

    Args:
        model: As the endpoint calls it.
        base_url: Of the endpoint, with ``/v1``; None is OpenAI's own.
        api_key: Sent to the endpoint and nowhere else.
        temperature: Sent when given; else the endpoint decides. So for ``top_p`` and ``max_tokens``, which
            bounds one answer.
        seed: Base of a seed for each attempt and turn, sent when given. vLLM on a CPU takes none.
        system: A system message in front of what the environment shows.
        extra_body: More fields of each request, such as ``chat_template_kwargs``.
        timeout_s: Limit for one answer.
        tries: How often a request is sent to an endpoint that does not answer, is overloaded (429) or fails
            (5xx), before the episode is lost to ``model_unavailable``. The pauses grow to 8 s, or as the
            endpoint asks.
        keep_reasoning: Show the model its own reasoning again within an episode, as reasoning models
            want it between tool calls.

    Needs ``pip install 'orsay[eval]'``, and raises EvaluationError without it.
    """

    wants_spec = False

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        system: str | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeout_s: float = 600.0,
        tries: int = 10,
        keep_reasoning: bool = True,
    ) -> None:
        if tries < 1:
            raise ValueError(f"tries must be at least 1, not {tries}")
        if importlib.util.find_spec("openai") is None:  # not imported yet: that is slow
            raise EvaluationError("models need the package openai: pip install 'orsay[eval]'")
        self.name = model
        self._base_url = base_url
        self._api_key = api_key
        self._redact = Redact([api_key])  # endpoints quote the key that they refuse
        self._sampling = {"temperature": temperature, "top_p": top_p}
        self._max_tokens = max_tokens
        self._seed = seed
        self._system = system
        self._extra_body = dict(extra_body or {})
        self._timeout_s = timeout_s
        self._tries = tries
        self.keep_reasoning = keep_reasoning
        self._client: AsyncOpenAI | None = None
        self._token_name = _TOKEN_NAMES[0]
        self._answered = False
        self._reaching, self._reached = asyncio.Lock(), False

    def settings(self) -> dict[str, Any]:
        return {
            **self._sampling,
            "max_tokens": self._max_tokens,
            "seed": self._seed,
            "system": self._system,
            "extra_body": self._extra_body or None,
            "keep_reasoning": self.keep_reasoning,
        }

    def player(self, opening: Opening) -> _ChatPlayer:
        try:
            conversation = Conversation(opening, system=self._system)
        except ValueError as exc:  # an environment may show what the format has no place for
            raise ModelFault("model_error", f"the prompt cannot be shown to a chat model: {exc}") from exc
        return _ChatPlayer(self, opening, conversation)

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        self._reaching, self._reached = asyncio.Lock(), False  # they belong to an event loop
        if client is not None:
            await client.close()

    async def answer(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], seed_of: str
    ) -> ChatCompletion | None:
        """One completion; None when the conversation no longer fits into the model's context.

        Raises ModelFault and ModelUnusable.
        """
        try:
            return await self._answer(messages, tools, seed_of)
        except ModelUnusable as exc:
            raise ModelUnusable(self._redact(str(exc))) from None
        except ModelFault as exc:
            raise ModelFault(exc.fault_class, self._redact(exc.message)) from None

    def _excerpt(self, found: Any) -> str:
        try:
            return self._redact(str(getattr(found, "error", None) or found))[:300]
        except (ValueError, RecursionError):  # too long a number, too deep
            return f"a {type(found).__name__}"

    async def _answer(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], seed_of: str
    ) -> ChatCompletion | None:
        client = self._connected()
        import openai  # an optional dependency

        await self._reach(client)
        token_name = self._token_name
        try:
            found = await self._send(client, messages, tools, seed_of)
        except openai.BadRequestError as exc:
            if _is_context(exc.message):
                return None
            if self._renamed(exc.message, token_name):
                return await self._answer(messages, tools, seed_of)
            raise self._refused(f"refused a request: {exc.message}", _hint(exc.message)) from exc
        except openai.NotFoundError as exc:
            raise self._refused(
                f"answers 404: {exc.message}", "is the model's name right, and does --base-url end in /v1?"
            ) from exc
        except (openai.AuthenticationError, openai.PermissionDeniedError) as exc:
            raise ModelUnusable(
                f"{self._address()} refuses the key ({exc.status_code}): {exc.message}"
            ) from exc
        except openai.APIResponseValidationError as exc:
            raise ModelFault(
                "model_error", f"{self._address()} sent no chat completion: {exc.message}"
            ) from exc
        except openai.APIStatusError as exc:
            kind = "model_unavailable" if exc.status_code in (408, 409, 429) or exc.status_code >= 500 else ""
            if not kind:
                raise self._refused(f"answers {exc.status_code}: {exc.message}", "") from exc
            raise ModelFault(kind, f"{self._address()} answers {exc.status_code}: {exc.message}") from exc
        except openai.APIConnectionError as exc:  # timeouts among them
            why = exc.__cause__ or exc
            raise ModelFault(
                "model_unavailable", f"{self._address()} does not answer ({type(why).__name__}): {why}"
            ) from exc
        except (ValueError, RecursionError) as exc:  # JSON that is cut off, or endless
            raise ModelFault("model_error", f"{self._address()} sent no JSON: {exc}") from exc
        if not isinstance(_first(found, "message"), BaseModel):  # the package checks no types
            raise ModelFault(
                "model_error", f"{self._address()} sent an answer without choices: {self._excerpt(found)}"
            )
        self._answered = True
        return found

    async def _send(
        self,
        client: AsyncOpenAI,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        seed_of: str,
    ) -> ChatCompletion:
        body: dict[str, Any] = {"model": self.name, "messages": list(messages)}
        if tools:
            body["tools"] = list(tools)
        body |= {name: value for name, value in self._sampling.items() if value is not None}
        if self._max_tokens is not None:
            body[self._token_name] = self._max_tokens
        if self._seed is not None:
            digest = hashlib.sha256(f"{self._seed}/{seed_of}".encode()).digest()
            body["seed"] = int.from_bytes(digest[:4]) & 0x7FFFFFFF
        found: ChatCompletion = await client.chat.completions.create(
            **body, extra_body=self._extra_body or None
        )
        return found

    async def _reach(self, client: AsyncOpenAI) -> None:
        """Check the URL once: a wrong one is reported at once, not after all the tries."""
        import openai  # an optional dependency

        async with self._reaching:
            for pause_s in () if self._reached else _FIRST_PAUSES_S:
                try:
                    await client.with_options(max_retries=0).models.list()
                except openai.APIConnectionError as exc:
                    if isinstance(exc, openai.APITimeoutError) or pause_s is not None:
                        await asyncio.sleep(pause_s or 0)
                        continue
                    why = exc.__cause__ or exc
                    raise ModelUnusable(
                        f"{self._address()} cannot be reached ({type(why).__name__}: {why});"
                        " does it run there?"
                    ) from exc
                except (openai.OpenAIError, ValueError, TypeError):
                    pass  # it answers; a list of models is optional
                break
            self._reached = True

    def _connected(self) -> AsyncOpenAI:
        if self._client is None:
            from openai import AsyncOpenAI  # an optional dependency, and slow to import

            try:
                self._client = AsyncOpenAI(
                    api_key=self._api_key or _NO_KEY,
                    base_url=self._base_url or "https://api.openai.com/v1",
                    timeout=self._timeout_s,
                    max_retries=self._tries - 1,
                )
            except Exception as exc:  # errors of httpx about a URL are not translated
                raise EvaluationError(f"{self._base_url!r} is no URL of an endpoint: {exc}") from exc
        return self._client

    def _renamed(self, message: str, sent: str) -> bool:
        """The endpoint wants the other name of the limit than was ``sent``, as newer ones do."""
        older, newer = _TOKEN_NAMES
        if self._max_tokens is None or sent != older or newer not in message:
            return False
        self._token_name = newer
        return True

    def _refused(self, what: str, hint: str) -> Exception:
        """Error for a refused request: after the first answer it loses one episode, before it ends the
        evaluation.
        """
        message = f"{self._address()} {what}"
        if self._answered:
            return ModelFault("model_refused", message)
        return ModelUnusable(f"{message} ({hint})" if hint else message)

    def _address(self) -> str:
        return f"the model {self.name!r} at {_without_login(self._base_url or 'api.openai.com')}"


class _ChatPlayer:
    """One conversation."""

    def __init__(self, model: ChatModel, opening: Opening, conversation: Conversation) -> None:
        self._model, self._conversation = model, conversation
        self._seed_of = f"{opening.split}/{opening.index}/{opening.attempt}"
        self._turn = 0

    async def move(self, results: Sequence[Result], note: str = "") -> Move:
        conversation = self._conversation
        conversation.add_results(results, note)
        self._turn += 1
        answer = await self._model.answer(
            conversation.messages, conversation.tools, f"{self._seed_of}/{self._turn}"
        )
        if answer is None:
            return Move(stop="context")
        move = conversation.add_answer(_first(answer, "message"), self._model.keep_reasoning)
        finish = _first(answer, "finish_reason")
        stop = ""
        if not move.calls and finish in ("length", "content_filter"):
            stop = "length" if finish == "length" else "filtered"
        return Move(move.calls, move.text, stop, _tokens(answer))


def _first(answer: Any, name: str) -> Any:
    """A field of the first choice; None where there is none."""
    choices = getattr(answer, "choices", None)
    return getattr(choices[0], name, None) if isinstance(choices, list) and choices else None


def _tokens(answer: ChatCompletion) -> TokenCounts:
    """Tokens as the endpoint counted them; 0 for those it did not count."""

    def count(*names: str) -> int:
        found: Any = answer
        for name in ("usage", *names):
            found = getattr(found, name, None)
        return found if isinstance(found, int) else 0

    return TokenCounts(
        input=count("prompt_tokens"),
        output=count("completion_tokens"),
        cached=count("prompt_tokens_details", "cached_tokens"),
        reasoning=count("completion_tokens_details", "reasoning_tokens"),
    )


def _is_context(message: str) -> bool:
    lowered = message.lower()
    return any(words in lowered for words in _CONTEXT)


def _hint(message: str) -> str:
    if "tool" in message.lower() and "enable-auto-tool-choice" in message:
        return (
            "start vLLM with --enable-auto-tool-choice --tool-call-parser hermes, or the model's own parser"
        )
    return ""


def _without_login(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.partition('//')[0]}//{tail}" if at else url
