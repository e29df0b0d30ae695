from __future__ import annotations

import pytest
from orsay.auth import ANYONE, Keys
from orsay.errors import Unauthorized
from pydantic import SecretStr

KEYS = Keys([SecretStr("first"), SecretStr("schlüssel")], b"a salt")


@pytest.mark.conformance("S1")
def test_either_header_lets_in_and_says_whose_sessions_are_meant() -> None:
    by_header = KEYS.owner({b"x-api-key": b"first"})
    assert (
        by_header == KEYS.owner({b"authorization": b"Bearer first"}) == KEYS.owner({b"x-api-key": b" first "})
    )
    other = KEYS.owner({b"x-api-key": "schlüssel".encode()})
    assert other != by_header and "first" not in by_header and "schl" not in other


@pytest.mark.conformance("S1")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"x-api-key": b""},
        {b"x-api-key": b"wrong"},
        {b"x-api-key": b"first "[:4]},
        {b"authorization": b"first"},
        {b"authorization": b"Basic first"},
        {b"x-api-key": b"wrong", b"authorization": b"Bearer first"},
        {b"x-api-key": b"\xff\xfe"},
    ],
)
def test_nobody_else_gets_in_and_no_answer_repeats_a_key(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(Unauthorized) as caught:
        KEYS.owner(headers)
    assert "wrong" not in caught.value.detail


def test_without_keys_all_sessions_are_of_one_owner() -> None:
    assert Keys([]).owner({b"x-api-key": b"any"}) == ANYONE
