"""Pictures as image blocks."""

import base64
import io
import subprocess
import sys
from typing import Any

import numpy as np
import PIL.Image
import pytest
from orsay import ImageBlock
from orsay.authoring.images import image_block, is_image

pytestmark = pytest.mark.process


def opened(block: ImageBlock) -> Any:
    picture = PIL.Image.open(io.BytesIO(base64.b64decode(block.data)))
    picture.load()
    return picture


def encoded(kind: str) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (3, 2), (10, 20, 30)).save(buffer, format=kind)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
def test_bytes_of_an_image_file_are_passed_on_as_they_are(kind: str) -> None:
    data = encoded(kind)
    for value in (data, bytearray(data), memoryview(data)):
        block = image_block(value)
        assert block.mimeType == f"image/{kind}"
        assert base64.b64decode(block.data) == data


def test_other_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"PNG, JPEG, GIF or WebP.*b'hello'"):
        image_block(b"hello")


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "F", "I", "YCbCr", "HSV", "RGBa"]
)
def test_a_pil_image_of_any_mode_becomes_a_png(mode: str) -> None:
    block = image_block(PIL.Image.new(mode, (3, 2)))
    assert block.mimeType == "image/png"
    assert opened(block).size == (3, 2)


@pytest.mark.parametrize(
    ("shape", "mode"), [((2, 3), "L"), ((2, 3, 1), "L"), ((2, 3, 3), "RGB"), ((2, 3, 4), "RGBA")]
)
def test_an_array_becomes_a_png_of_its_pixels(shape: tuple[int, ...], mode: str) -> None:
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    picture = opened(image_block(array))
    assert picture.mode == mode
    assert np.array_equal(np.asarray(picture).reshape(shape), array)


def test_float_and_bool_arrays_are_scaled() -> None:
    assert np.asarray(opened(image_block(np.array([[0.0, 0.5, 1.0]], dtype=np.float32)))).tolist() == [
        [0, 128, 255]
    ]
    assert np.asarray(opened(image_block(np.array([[True, False]])))).tolist() == [[255, 0]]


def test_a_turned_array_is_not_mixed_up() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    turned = array[::-1, ::2].transpose(1, 0, 2)
    assert np.array_equal(np.asarray(opened(image_block(turned))), turned)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((2, 3, 5), np.uint8), r"shape \(2, 3, 5\)"),
        (np.zeros(4, np.uint8), r"shape \(4,\)"),
        (np.zeros((0, 3), np.uint8), "shape"),
        (np.zeros((2, 2), np.int64), "int64"),
        (np.full((2, 2), 3.0), "between 0 and 1"),
        (np.full((2, 2), np.nan), "between 0 and 1"),
    ],
)
def test_an_array_that_is_no_image_is_refused(array: Any, reason: str) -> None:
    with pytest.raises((TypeError, ValueError), match=reason):
        image_block(array)


def test_other_values_are_no_images() -> None:
    assert not is_image("text")
    assert not is_image(3)
    with pytest.raises(TypeError, match="int is no image"):
        image_block(3)


def test_without_pillow_an_array_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(TypeError, match="pip install pillow"):
        image_block(np.zeros((2, 2), np.uint8))


def test_neither_pillow_nor_numpy_is_imported_for_text_and_bytes() -> None:
    code = (
        "import sys, orsay; from orsay.authoring.results import to_output; to_output('a', 't');"
        "to_output(bytes([0xff, 0xd8, 0xff]), 't'); assert not {'PIL', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
