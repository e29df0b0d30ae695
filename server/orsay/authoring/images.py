"""Conversion of authors' images (PIL images, numpy arrays, encoded bytes) to image blocks.

Neither Pillow nor numpy is imported for a value that does not come from it.
"""

from __future__ import annotations

import base64
import io
import sys
from typing import Any

from orsay_protocol import ImageBlock

__all__ = ["image_block", "is_image"]

_PNG_MODES = frozenset({"1", "L", "LA", "I;16", "P", "RGB", "RGBA"})
_NEAREST_MODES = {"La": "LA", "RGBa": "RGBA", "PA": "RGBA", "I": "I;16"}


def is_image(value: object) -> bool:
    """True for a value of a type that ``image_block`` converts; it may still refuse the content."""
    return isinstance(value, bytes | bytearray | memoryview) or _is_pil(value) or _is_array(value)


def image_block(value: Any) -> ImageBlock:
    """The image as a block: bytes as they are, everything else encoded as PNG.

    bytes: a PNG, JPEG, GIF or WebP file. numpy: ``height x width`` (grey), ``x 3`` (RGB) or ``x 4`` (RGBA),
    uint8, bool, or float between 0 and 1. Raises TypeError or ValueError with the reason.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return _block(data, _mime_type(data))
    if _is_array(value):
        value = _picture(value)
    elif not _is_pil(value):
        raise TypeError(f"{type(value).__name__} is no image")
    return _block(_png(value), "image/png")


def _block(data: bytes, mime_type: str) -> ImageBlock:
    return ImageBlock(data=base64.b64encode(data).decode("ascii"), mimeType=mime_type)


def _is_pil(value: object) -> bool:
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(value, pil.Image)


def _is_array(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _mime_type(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError(
        f"bytes in a result must be a PNG, JPEG, GIF or WebP file; these start with {data[:8]!r}. "
        "For text, return a str"
    )


def _png(picture: Any) -> bytes:
    if picture.mode not in _PNG_MODES:
        picture = picture.convert(_NEAREST_MODES.get(picture.mode, "RGB"))
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def _picture(array: Any) -> Any:
    try:
        import PIL.Image  # optional: only environments that return arrays need it
    except ImportError as exc:
        raise TypeError("a numpy array needs Pillow to become an image: pip install pillow") from exc
    return PIL.Image.fromarray(_pixels(array))


def _pixels(array: Any) -> Any:
    """The array as uint8, in a shape that Pillow takes."""
    shape = array.shape
    if len(shape) == 3 and shape[2] == 1:
        array, shape = array[:, :, 0], shape[:2]
    fits = len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4))
    if not fits or 0 in shape:
        raise TypeError(
            f"an array of shape {tuple(array.shape)} is no image: use (height, width), "
            "(height, width, 3) or (height, width, 4)"
        )
    kind = array.dtype.kind
    if kind == "b":
        return array.astype("uint8") * 255
    if kind == "f":
        low, high = float(array.min()), float(array.max())
        if not (low >= 0.0 and high <= 1.0):
            raise ValueError(
                f"a float array must lie between 0 and 1 to be an image; found {low:g} to {high:g}"
            )
        return (array * 255).round().astype("uint8")
    if array.dtype != "uint8":
        raise TypeError(f"an array of {array.dtype} is no image: use uint8, bool, or float between 0 and 1")
    return array
