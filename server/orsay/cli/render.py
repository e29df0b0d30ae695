"""Display of prompts, messages, tools and results, with rich."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orsay_protocol import (
    ImageBlock,
    Message,
    ReasoningBlock,
    TerminalToolSpec,
    TextBlock,
    ToolCallBlock,
    ToolOutput,
    ToolResultBlock,
    ToolSpec,
)
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..plain import one_line, safe
from .forms import fields_of

__all__ = ["Screen"]


class Screen:
    """Output of ``orsay play``. Images go to files of a temporary folder, made when first needed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._folder: Path | None = None
        self._images = 0

    def line(self, text: str = "", style: str = "") -> None:
        """Print text of one or more lines."""
        self._console.print(Text(safe(text), style=style))

    def question(self, kind: str, text: str) -> None:
        """Print a question of a form, or an error about an answer."""
        self.line(text, "yellow" if kind == "complaint" else "cyan")

    def messages(self, messages: Sequence[Message]) -> None:
        """Print the conversation that opens the episode."""
        for message in messages:
            body = Text("\n").join(Text(line) for line in self._blocks(message.blocks))
            self._console.print(
                Panel(body, title=Text(message.role), title_align="left", border_style="blue")
            )

    def tools(self, tools: Sequence[ToolSpec], terminal: TerminalToolSpec | None) -> None:
        """Print the tools, numbered; a plain answer has a number too."""
        table = Table(box=None, show_header=False, padding=(0, 1))
        for number, tool in enumerate(tools, 1):
            arguments = ", ".join(field.name for field in fields_of(tool.input_schema or {}))
            name = Text(one_line(f"{tool.name}({arguments})"), style="bold")
            table.add_row(Text(str(number), style="cyan"), name, Text(_first_line(tool.description)))
        if terminal is not None:
            name = Text("answer in plain words", style="bold")
            what = _first_line(terminal.description) or "your message ends the episode"
            table.add_row(Text(str(len(tools) + 1), style="cyan"), name, Text(what))
        self._console.print(table)

    def result(self, output: ToolOutput, total: float) -> None:
        """Print the answer of a tool."""
        body = Text("\n").join(Text(line) for line in self._blocks(output.blocks))
        self._console.print(Panel(body, title="result", title_align="left", border_style="green"))
        if output.metadata:
            self.line(f"metadata {json.dumps(dict(output.metadata), ensure_ascii=False)}", "dim")
        if output.reward is not None:
            self.line(f"reward {output.reward:.4g}, {total:.4g} in all", "bold green")

    def _blocks(self, blocks: Sequence[Any]) -> list[str]:
        return [self._block(block) for block in blocks]

    def _block(self, block: object) -> str:
        match block:
            case TextBlock():
                return safe(block.text)
            case ImageBlock():
                return self._image(block)
            case ReasoningBlock():
                return f"[reasoning] {safe(block.text)}"
            case ToolCallBlock():
                return safe(f"[calls {block.name}] {_compact(block.input)}")
            case ToolResultBlock():
                head = f"[{'error' if block.is_error else 'result'} of {one_line(block.tool_call_id)}]"
                return "\n".join([head, *self._blocks(block.blocks)])
            case _:
                return f"[{type(block).__name__}]"

    def _image(self, block: ImageBlock) -> str:
        mime_type = one_line(block.mimeType)
        try:
            data = base64.b64decode(block.data, validate=True)
        except binascii.Error:
            return f"[image, {mime_type}: its data cannot be decoded]"
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="orsay-play-"))
        self._images += 1
        path = self._folder / f"image-{self._images}{mimetypes.guess_extension(mime_type) or '.bin'}"
        path.write_bytes(data)
        return f"[image, {mime_type}, {len(data):,} bytes, saved as {path}]"


def _first_line(text: str) -> str:
    return one_line(text.strip().partition("\n")[0])


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False)
