"""Content of a chat message, a text or a list of parts, from blocks on the wire."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from typing import Any, TypeAlias

from orsay_client import errors
from orsay_protocol import ImageBlock, TextBlock

__all__ = ["Content", "content_of", "text_of"]

Content: TypeAlias = str | list[dict[str, Any]]
"""Text; or parts, ``{"type": "text", "text": str}`` and ``{"type": "image", "image": PIL.Image}``."""


def content_of(blocks: Iterable[TextBlock | ImageBlock], *, images: bool) -> Content:
    """Text blocks joined by newlines; parts in their order when there is an image and ``images`` is set.

    Without ``images`` the text names each image, for models without vision. Raises ImportError without
    Pillow, and Fault of class ``bad_image`` for invalid data.
    """
    found = list(blocks)
    if not images or not any(isinstance(block, ImageBlock) for block in found):
        return "\n".join(_text(block) for block in found)
    return [
        {"type": "image", "image": _picture(block)}
        if isinstance(block, ImageBlock)
        else {"type": "text", "text": block.text}
        for block in found
    ]


def text_of(content: Content) -> str:
    """The text alone."""
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if part.get("type") == "text")


def _text(block: TextBlock | ImageBlock) -> str:
    return f"[image: {block.mimeType}]" if isinstance(block, ImageBlock) else block.text


def _picture(block: ImageBlock) -> Any:
    from PIL import Image  # an optional dependency: only environments with images need it

    try:
        image = Image.open(io.BytesIO(base64.b64decode(block.data)))
        return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as exc:  # Pillow raises all four
        message = f"the environment sent an image ({block.mimeType}) that cannot be read: {exc}"
        raise errors.Fault(message, fault_class="bad_image", retryable=False) from exc
