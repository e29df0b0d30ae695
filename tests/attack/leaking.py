"""An environment that shows its secrets wherever code of an author can show something.

``leak(how)`` raises with them, ``say(how)`` writes them to where an author looks; a task like
``{"setup": "repr"}`` has that hook raise.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import os
import sys
import threading
import urllib.parse
import warnings
from typing import Any

from orsay import Environment, Split, TextBlock, ToolOutput, tool
from pydantic import BaseModel, field_validator

__all__ = ["FORMS", "RAISES", "SAYS", "Leaky"]

FORMS: dict[str, Any] = {
    "raw": str,
    "repr": repr,
    "ascii": ascii,
    "json": json.dumps,
    "utf8 json": lambda text: json.dumps(text, ensure_ascii=False),
    "json twice": lambda text: json.dumps(json.dumps({"a": text})),
    "bytes": lambda text: repr(text.encode()),
    "url": urllib.parse.quote_plus,
    "html": html.escape,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "pieces": lambda text: f"{text[:25]}...{text[-24:]}",
}
RAISES = [*FORMS, "key error", "group", "notes", "cause", "context", "pydantic", "long", "validation", "name"]
SAYS = ["print", "stderr", "logging", "exception", "thread", "warning"]


class Strict(BaseModel):
    number: int
    items: list[int]


class Asked(BaseModel):
    value: str = ""

    @field_validator("value")
    @classmethod
    def _is_no_secret(cls, value: str) -> str:
        if value:
            raise ValueError(f"{value!r} cannot be used")
        return value


def spill(how: str, secrets: Any) -> None:
    """Raise with every secret, in that form or way."""
    texts = list(secrets.values())
    if how in FORMS:
        raise ValueError(" | ".join(FORMS[how](text) for text in texts))
    if how == "key error":
        os.environ[str(texts)]
    if how == "group":
        raise ExceptionGroup("several", [ValueError(text) for text in texts])
    if how == "notes":
        error = ValueError("see the notes")
        for text in texts:
            error.add_note(f"with {text}")
        raise error
    if how == "cause":
        try:
            raise OSError(f"connecting with {texts}")
        except OSError as exc:
            raise RuntimeError("cannot connect") from exc
    if how == "context":
        try:
            json.loads(str(dict(secrets)))
        finally:
            int(max(texts, key=len))
    if how == "pydantic":
        Strict.model_validate({"number": max(texts, key=len), "items": texts})
    if how == "long":
        raise ValueError("x" * 19_990 + "".join(texts) * 3)


class Leaky(Environment):
    """See module."""

    @classmethod
    def name(cls) -> str:
        return "leaky"

    @classmethod
    def list_splits(cls) -> list[Any]:
        return [Split(name="train", type="train")]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{}]

    def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:
        super().__init__(task_spec, secrets)
        spill((task_spec or {}).get("init", ""), self.secrets)

    def _hook(self, name: str) -> None:
        spill(str(self.task_spec.get(name, "")), self.secrets)

    def setup(self) -> None:
        self._hook("setup")

    def teardown(self) -> None:
        self._hook("teardown")

    def get_prompt(self) -> list[TextBlock]:
        self._hook("prompt")
        return [TextBlock(text=f"the secrets are {dict(self.secrets)} and {json.dumps(dict(self.secrets))}")]

    @tool
    def leak(self, how: str) -> str:
        """Raise."""
        spill(how, self.secrets)
        return "nothing raised"

    @tool
    async def leak_async(self, how: str) -> str:
        """Raise."""
        spill(how, self.secrets)
        return "nothing raised"

    @tool
    def strict(self, asked: Asked) -> str:
        """Refuse the input, in words of its own."""
        return asked.value

    @tool
    def echo(self, text: str) -> ToolOutput:
        """Return the text and the secrets, as a tool may."""
        return ToolOutput(
            blocks=[TextBlock(text=f"{text} {dict(self.secrets)}")],
            metadata={
                "secrets": dict(self.secrets),
                "number": 48151623,
                "of": [json.dumps(dict(self.secrets))],
            },
        )

    @tool
    def say(self, how: str) -> str:
        """Write the secrets to where an author looks."""
        for text in self.secrets.values():
            match how:
                case "print":
                    print("using", text, {"k": text})
                case "stderr":
                    sys.stderr.write(f"using {json.dumps(text)}\n")
                case "logging":
                    logging.getLogger("leaky").warning("using %r", text)
                case "exception":
                    try:
                        raise ValueError(text)
                    except ValueError:
                        logging.getLogger("leaky").exception("failed with %s", text)
                case "thread":
                    thread = threading.Thread(target=spill, args=("repr", dict(self.secrets)))
                    thread.start()
                    thread.join()
                case "warning":
                    warnings.warn(f"do not use {text}", stacklevel=1)
        print(f"said by {how}", file=sys.stderr, flush=True)
        return "said"
