"""A rollout's tokens: the transcript for training, and the chat template's tokens between turns.

Sampled tokens are never rendered or encoded again. Only the text between two sampled turns is, as the
difference of two renderings of a dummy conversation.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .sampling import Sample

__all__ = [
    "ChatFormat",
    "Message",
    "TemplateError",
    "Transcript",
    "end_tokens",
    "tokenizer_of",
    "vendored_name",
]

Message = Mapping[str, Any]
"""One message as chat templates take it: ``role``, ``content``, perhaps ``name`` or ``tool_calls``."""

_WORD = "dummy"
_ANSWER = "reply"


class TemplateError(ValueError):
    """The chat template cannot carry a conversation of several turns; the message names it and the reason."""


@dataclass(slots=True)
class Transcript:
    """Tokens of one rollout for a trainer. All lists except ``prompt_ids`` have equal length."""

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    """1 for sampled tokens, 0 for tokens of the template or the environment."""
    logprobs: list[float] = field(default_factory=list)
    """The sampler's logprobs, natural logarithm; 0.0 where ``mask`` is 0."""

    @property
    def ids(self) -> list[int]:
        """All tokens so far, the prompt of the next turn."""
        return self.prompt_ids + self.completion_ids

    def sampled(self, sample: Sample) -> None:
        """Append a turn of the model, verbatim.

        Raises ValueError for a sampler that gave more or fewer logprobs than ids.
        """
        if len(sample.token_ids) != len(sample.logprobs):
            raise ValueError(
                f"the sampler gave {len(sample.token_ids)} ids and {len(sample.logprobs)} logprobs; "
                "there must be one logprob for each id"
            )
        self.completion_ids += sample.token_ids
        self.mask += [1] * len(sample.token_ids)
        self.logprobs += sample.logprobs

    def given(self, ids: Sequence[int]) -> None:
        """Append tokens that the model did not sample."""
        self.completion_ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def masked(self, filler: int) -> Transcript:
        """The same tokens, all masked; ``filler`` replaces an empty completion."""
        ids = self.completion_ids or [filler]
        return Transcript(self.prompt_ids, list(ids), [0] * len(ids), [0.0] * len(ids))


class ChatFormat:
    """Chat template of one tokenizer: the opening of a conversation, and the tokens after a model's turn.

    Args:
        processing_class: A tokenizer, or a processor that has one.
        stop_ids: Tokens that end a turn of the model, as the sampler knows them.
        template: The chat template, instead of the tokenizer's own or TRL's training version of that.
        template_kwargs: Passed on to the template, such as ``{"enable_thinking": False}``.

    Raises TemplateError where the tokenizer has no chat template.
    """

    def __init__(
        self,
        processing_class: Any,
        *,
        stop_ids: Collection[int] = (),
        template: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._tokenizer = tokenizer_of(processing_class)
        self.template = template or _training_template(processing_class)
        self.stop_ids = frozenset({*stop_ids, self._tokenizer.eos_token_id} - {None})
        self._kwargs = dict(template_kwargs or {})
        self._boundaries: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
        self._as_parts = self._wants_parts()

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """The conversation up to where the model continues. ``tools``: OpenAI's function format.

        Raises TemplateError where the template refuses these messages.
        """
        with self._refusals():
            return self._render(messages, tools=tools, open_turn=True)

    def between(self, turn: Sequence[int], replies: Sequence[Message]) -> list[int]:
        """The tokens from the end of ``turn``, which the model sampled, to where it continues.

        Args:
            turn: The ids of the model's turn, verbatim.
            replies: Tool messages (``role`` tool, with ``name``) or user messages, at least one.

        Raises TemplateError if the template renders a turn differently once something follows it, or does not
        render such replies.
        """
        kind = "tool" if replies[0]["role"] == "tool" else "text"
        name = str(replies[0].get("name", "")) if kind == "tool" else ""
        with self._refusals():
            opening, closed = self._dummy(kind, name)
            whole = self._render([*self._messages(kind, name), *replies], open_turn=True)
        end, rest = self._split(len(opening), closed, whole)
        last = turn[-1] if turn else None
        if last is not None and last == end:
            return rest
        if last in self.stop_ids:
            if (
                rest and rest[0] == last
            ):  # the template opens what follows with the token that the model ended on
                return rest[1:]
            if not (kind == "tool" and last == self._text_end()):
                return rest  # an end of another kind, such as Llama's end of message
        return rest if end is None else [end, *rest]

    def _split(self, start: int, closed: list[int], whole: list[int]) -> tuple[int | None, list[int]]:
        """The token that ends a turn, if the template has one, and what follows it up to the next turn."""
        ends = [at for at in range(len(closed), start, -1) if closed[at - 1] in self.stop_ids]
        for cut in ends:
            if whole[:cut] == closed[:cut]:
                return closed[cut - 1], whole[cut:]
        if not ends and whole[: len(closed)] == closed:
            return None, whole[len(closed) :]
        same = _common(closed, whole)
        if len(closed) == same + 1 and closed[same] in self.stop_ids and self._is_mark(whole[same]):
            return closed[same], whole[
                same + 1 :
            ]  # gpt-oss: the last turn ends on another mark than earlier ones
        raise TemplateError(
            f"the chat template {self._name()} renders a turn of the model otherwise once a "
            f"message follows it, so several turns cannot be put together from it; use a template that "
            "keeps what it rendered (TRL's get_training_chat_template has them for known models)"
        )

    def _text_end(self) -> int | None:
        """The token after a turn that is plain text."""
        opening, closed = self._dummy("text", "")
        tail = [token for token in closed[len(opening) :] if token in self.stop_ids]
        return tail[-1] if tail else None

    def _dummy(self, kind: str, name: str) -> tuple[list[int], list[int]]:
        """Dummy conversation of one question: its stable prefix, and the same with a model's turn."""
        key = (kind, name)
        if key not in self._boundaries:
            messages = self._messages(kind, name)
            question, closed = self._render(messages[:1]), self._render(messages)
            self._check_position(messages, "tool" if kind == "tool" else "user", name)
            self._boundaries[key] = (question[: _common(question, closed)], closed)
        return self._boundaries[key]

    def _check_position(self, messages: list[Message], role: str, name: str) -> None:
        """Check that the template renders the message: some silently drop those they do not know."""
        found = self._render([*messages, {"role": role, "name": name, "content": _ANSWER}], open_turn=True)
        if _ANSWER not in self._tokenizer.decode(found):
            raise TemplateError(f"the chat template {self._name()} leaves out messages of the role {role!r}")

    def _messages(self, kind: str, name: str) -> list[Message]:
        question = {"role": "user", "content": _WORD}
        if kind == "text":
            return [question, {"role": "assistant", "content": _WORD}]
        # The real name: some templates render it in the header of the result.
        call = {"type": "function", "function": {"name": name, "arguments": {}}}
        return [question, {"role": "assistant", "content": "", "tool_calls": [call]}]

    def _render(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), open_turn: bool = False
    ) -> list[int]:
        """Render messages; exceptions of the template pass through."""
        plain = [self._fitted(message) for message in messages]
        try:
            return self._apply(plain, tools, open_turn)
        except TypeError:
            # DeepSeek's template concatenates the arguments: they must be a JSON string.
            return self._apply([_with_json_arguments(message) for message in plain], tools, open_turn)

    def _apply(self, messages: list[Any], tools: Sequence[Any], open_turn: bool) -> list[int]:
        ids = self._tokenizer.apply_chat_template(
            messages,
            tools=list(tools) or None,
            chat_template=self.template,
            add_generation_prompt=open_turn,
            tokenize=True,
            return_dict=False,
            **self._kwargs,
        )
        return list(ids)

    def _fitted(self, message: Message) -> Message:
        content = message.get("content")
        if self._as_parts and isinstance(content, str):
            return {**message, "content": [{"type": "text", "text": content}] if content else []}
        return message

    def _wants_parts(self) -> bool:
        """True for a template that accepts text only in lists of parts, as those of some vision models."""
        from jinja2 import TemplateError as RenderError  # comes with transformers

        self._as_parts = False
        try:
            seen = self._tokenizer.decode(self._render([{"role": "user", "content": _WORD}]))
        except RenderError:
            return True
        return _WORD not in seen

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        from jinja2 import TemplateError as RenderError

        try:
            yield
        except RenderError as exc:
            raise TemplateError(f"the chat template {self._name()} refuses the conversation: {exc}") from exc

    def _is_mark(self, token: int) -> bool:
        return token in self._tokenizer.added_tokens_decoder

    def _name(self) -> str:
        found = vendored_name(self.template)
        if found:
            return repr(found)
        return f"of {self._tokenizer.name_or_path!r}" if self._tokenizer.name_or_path else "of this tokenizer"


def tokenizer_of(processing_class: Any) -> Any:
    """The tokenizer itself, of a processor too."""
    return getattr(processing_class, "tokenizer", processing_class)


def end_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """End-of-turn ids: those of the model's generation config, and the tokenizer's end token."""
    config = getattr(model, "generation_config", None)
    ids = getattr(config, "eos_token_id", None)
    found = [ids] if isinstance(ids, int) else list(ids or ())
    if tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in found:
        found.insert(0, tokenizer.eos_token_id)
    return tuple(found)


def vendored_name(template: str) -> str | None:
    """Name of TRL's identical template, such as ``qwen3_training``."""
    from importlib.resources import files  # beside its only use

    for file in files("trl").joinpath("chat_templates").iterdir():
        if file.name.endswith(".jinja") and file.read_text(encoding="utf-8") == template:
            return file.name.removesuffix(".jinja")
    return None


def _training_template(processing_class: Any) -> str:
    """TRL's training version of the template if there is one, otherwise the template itself."""
    from trl.chat_template_utils import get_training_chat_template  # an optional dependency

    own = processing_class.chat_template
    if isinstance(own, dict):
        own = own.get("default")
    if not own:
        raise TemplateError("the tokenizer has no chat template; set tokenizer.chat_template first")
    try:
        patched = get_training_chat_template(processing_class)
    except Exception:  # TRL renders tool messages, which a template may refuse with any exception
        patched = None
    return str(patched or own)


def _with_json_arguments(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {
        **message,
        "tool_calls": [
            {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
            for call in calls
        ],
    }


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix, in tokens."""
    for at, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return at
    return min(len(a), len(b))
