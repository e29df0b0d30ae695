"""Texts of errors, which author code may raise with any text."""

from __future__ import annotations

import pytest
from orsay.errors import BadTask, Faulted, OrsayError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("error", [BadTask("half: \ud800"), Faulted("tool_error", "half: \ud800")])
def test_the_text_of_an_error_can_be_written_on_any_wire(error: OrsayError) -> None:
    assert str(error).encode() == b"half: \\ud800"
