"""The calculator: exact results, and an answer in words for whatever else is typed, at once."""

import re
import time
from fractions import Fraction

import pytest
from arithmetic_env.calculator import MAX_BITS, MAX_CHARACTERS, CalculatorError, calculate, show
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("1 + 2", "3"),
        ("0.1 + 0.2", "0.3"),
        ("(12 + 3.5) * 4", "62"),
        ("7/3", "7/3 (about 2.33333333333)"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("2 ^ 10", "1024"),
        ("2 ** -3", "0.125"),
        ("6 × 7 ÷ 2 − 1", "20"),
        ("1,200 * 3 + 1,234,567.5", "1238167.5"),
        ("-0.05", "-0.05"),
        ("0.12345678901234567890123", "0.12345678901234567890123"),
        ("1" + "+1" * 250, "251"),
        ("\t1\n+ 1", "2"),
    ],
)
def test_results_are_exact(expression: str, result: str) -> None:
    assert show(calculate(expression)) == result


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9**9",
        "9^9^9^9",
        "2**100000",
        "(-1)**99999999999",
        "(" * 100_000,
        "(" * 400 + "1" + ")" * 400,
        "-" * 990 + "1",
        "9" * 100_000,
        "9**1000 * 9**1000",
        "9" * 990 + "**9",
        "0." + "0" * 990 + "1 ** 90",
        "1" + "+1" * 499,
        "1/0",
        "1//0",
        "1%0",
        "0**-1",
        "4**0.5",
        "",
        "   ",
        "()",
        "1 2",
        "01",
        "1..2",
        "1,2",
        "(1,2)",
        "*(1)",
        "1 if 1 else 2",
        "__import__('os').system('true')",
        "().__class__.__bases__[0].__subclasses__()",
        "'a' * 10**9",
        "[0] * 10**9",
        "lambda: 0",
        "1 is 1",
        "x := 5",
        "1e400",
        "0x10",
        "1_000",
        "1j",
        "\x00",
        "\ud800",
        "１+１",
        "²",
        "٣",
        "\u202e1+1",
        "🙂",
        "1\\\n+1",
        "# 1",
    ],
)
def test_anything_else_is_refused_in_words_and_at_once(expression: str) -> None:
    start = time.perf_counter()
    with pytest.raises(CalculatorError) as refusal:
        calculate(expression)
    assert time.perf_counter() - start < 0.5
    assert str(refusal.value).isascii()
    assert 0 < len(str(refusal.value)) < 200


@given(st.text() | st.text(alphabet="0123456789.,+-*/%()^ ×÷−\n", max_size=MAX_CHARACTERS + 20))
def test_no_text_makes_it_raise_anything_else(text: str) -> None:
    try:
        value = calculate(text)
    except CalculatorError as refusal:
        assert str(refusal).isascii()
    else:
        assert max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_BITS
        assert len(show(value)) < 3_000


@given(
    st.recursive(
        st.integers(0, 10**6).map(str) | st.decimals(0, 1000, places=3).map(str),
        lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        max_leaves=20,
    )
)
def test_it_agrees_with_python_on_fractions(expression: str) -> None:
    as_fractions = re.sub(r"[0-9.]+", lambda number: f"Fraction('{number.group()}')", expression)
    assert calculate(expression) == eval(as_fractions, {"Fraction": Fraction})
