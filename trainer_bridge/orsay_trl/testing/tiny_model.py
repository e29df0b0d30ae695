"""A tiny untrained Qwen3 model and its tokenizer, for trying training without a model hub or a GPU.

The chat template is the one that the installed TRL carries, byte for byte, so that TRL, vLLM and the rollout
function treat the tiny model as they treat a large one. Nothing here is pretrained.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["MARKS", "build", "model", "tokenizer"]

PAD, TURN, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Marks of one token each, but not special ones: decoding keeps them, as tool calls are parsed from text."""

_CONTEXT = 4096  # tokens; a server may be set to allow fewer
_EXAMPLES = (
    "You are a helpful assistant.",
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n",
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>",
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within ",
    ' XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n',
    '\n{"type": "function", "function": {"name": "look", "description": "Look behind a door.", ',
    '"parameters": {"type": "object", "properties": {"door": {"type": "integer", ',
    '"description": "The number of the door."}}, "required": ["door"]}}}',
    '\n{"type": "function", "function": {"name": "submit", "description": "Give the answer.", ',
    '"parameters": {"type": "object", "properties": {"answer": {"type": "string", ',
    '"description": "What was asked for."}, "code": {"type": "number"}}, "required": ["answer"]}}}',
    '\n{"name": "look", "arguments": {"door": 1}}\n',
    '\n{"name": "submit", "arguments": {"answer": "yes", "code": 0}}\n',
    "user\nWhat is the word? Find it, then submit it.",
    "user\nThe answer is a number between 1 and 100: guess higher or lower.",
    "assistant\n",
    "system\n",
    "tool\nCorrect. That was the right answer; the episode is finished.",
    "The quick brown fox jumps over the lazy dog, and this text ends here.",
)


def tokenizer(texts: Iterable[str] = (), *, vocabulary: int = 700) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer learned from ``texts``, by default from a few lines of chat with tools.

    Any text can be encoded; the closer to ``texts``, the shorter. Digits stay single and words are not split
    first, so that a phrase that keeps coming back becomes one token. The same texts give the same tokenizer.

    Args:
        texts: Transcripts, or parts of them, as the model will see them.
        vocabulary: Tokens at most, the chat marks included; at least 280. Few texts may give fewer.

    Raises:
        ImportError: TRL or transformers is not installed.
        ValueError: ``vocabulary`` is too small for the 256 bytes and the marks.
    """
    tokenizers, transformers = _import("tokenizers"), _import("transformers")
    marks = [tokenizers.AddedToken(mark, normalized=False, special=True) for mark in (PAD, TURN, END)]
    marks += [tokenizers.AddedToken(mark, normalized=False, special=False) for mark in MARKS]
    if vocabulary < 280:
        raise ValueError(
            f"a vocabulary of {vocabulary} has no room for 256 bytes and the chat marks; use >= 280"
        )
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = tokenizers.decoders.ByteLevel()
    # The alphabet is sorted and the texts are read in order: nothing depends on hashing.
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary - len(marks),
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(_parts(list(texts) or _EXAMPLES), trainer)
    bpe.add_tokens(marks)
    made: PreTrainedTokenizerFast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[TURN],
        clean_up_tokenization_spaces=False,
        model_max_length=_CONTEXT,
    )
    made.chat_template = _import("trl.chat_template_utils").qwen3_chat_template
    return made


def model(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> PreTrainedModel:
    """An untrained Qwen3 of about 200,000 parameters in float32, whose output layer is its own.

    vLLM keeps a stale output layer after a reload when that layer is tied to the embedding; this one is not.
    The random state of torch is left as it was.

    Raises:
        ImportError: torch or transformers is not installed.
    """
    torch, transformers = _import("torch"), _import("transformers")
    end = tokenizer.convert_tokens_to_ids(END)
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=192,
        initializer_range=0.05,
        max_position_embeddings=_CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made: PreTrainedModel = transformers.Qwen3ForCausalLM(config).eval()
    made.generation_config.eos_token_id = [end, tokenizer.pad_token_id]
    return made


def build(folder: Path, *, texts: Iterable[str] = (), seed: int = 0) -> Path:
    """Save a new model and its tokenizer into ``folder``, where TRL and vLLM load them by that path.

    Raises:
        ImportError: torch, transformers or TRL is not installed.
    """
    made = tokenizer(texts)
    model(made, seed).save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


def _parts(texts: Iterable[str]) -> Iterable[str]:
    """The texts between the marks: merges must not cross a mark."""
    for text in texts:
        for mark in (PAD, TURN, END, *MARKS):
            text = text.replace(mark, "\0")
        yield from filter(None, text.split("\0"))


def _import(name: str) -> Any:
    """Import heavy packages of an extra, on first use."""
    from importlib import import_module  # beside its only use

    try:
        return import_module(name)
    except ImportError as exc:
        raise ImportError(f"making a model needs {name.partition('.')[0]}: pip install 'orsay[trl]'") from exc
