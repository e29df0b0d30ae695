"""Calculator for untrusted text: exact, bounded in time and memory; raises only CalculatorError.

Three checks come before the arithmetic: the length of the text, the allowed characters (no letters, so no
names, calls, attributes or strings), and the allowed syntax nodes. Numbers are fractions with a bounded
number of bits, and large powers are refused before they are computed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction

__all__ = ["CalculatorError", "calculate", "show"]

MAX_CHARACTERS = 1_000
MAX_BITS = 4_096
MAX_DEPTH = 300

_SPELLINGS = str.maketrans(
    {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\u00a0": " ", "\t": " ", "\n": " "}
)
_FOREIGN = re.compile(r"[^0-9.+\-*/%() ]")
_THOUSANDS = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")


class CalculatorError(ValueError):
    """The text cannot be calculated; the message is for its author."""


def calculate(text: str) -> Fraction:
    """The exact value of an expression of numbers, ``+ - * / // % **`` (or ``^``) and parentheses."""
    if len(text) > MAX_CHARACTERS:
        raise CalculatorError(f"the expression has {len(text)} characters; {MAX_CHARACTERS} is the most")
    text = text.translate(_SPELLINGS).replace("^", "**").strip()
    text = _THOUSANDS.sub(lambda number: number.group().replace(",", ""), text)
    foreign = _FOREIGN.search(text)
    if foreign is not None:
        raise CalculatorError(
            f"cannot read {foreign.group()!a}; use numbers, + - * / // % ** and parentheses, nothing else"
        )
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise CalculatorError("this is not an expression such as (12 + 3.5) * 4") from None
    try:
        return _value(tree.body, text, 0)
    except RecursionError:
        raise CalculatorError("the expression is nested too deep") from None


def show(value: Fraction) -> str:
    """Whole and decimal numbers in full; other fractions as such, with their approximate value."""
    if value.denominator == 1:
        return str(value.numerator)
    twos_and_fives = value.denominator
    for prime in (2, 5):
        while twos_and_fives % prime == 0:
            twos_and_fives //= prime
    digits = _digits(value)
    if twos_and_fives == 1 and digits is not None:
        return digits
    fraction = f"{value.numerator}/{value.denominator}"
    try:
        return f"{fraction} (about {float(value):.12g})"
    except OverflowError:
        return fraction


def _digits(value: Fraction, places: int = 50) -> str | None:
    """Decimal digits, or None when ``places`` are not enough to be exact."""
    scaled = value * 10**places
    if scaled.denominator != 1:
        return None
    whole, rest = divmod(abs(scaled.numerator), 10**places)
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{rest:0{places}d}".rstrip("0")


def _value(node: ast.expr, text: str, depth: int) -> Fraction:
    if depth > MAX_DEPTH:
        raise CalculatorError(f"the expression is nested more than {MAX_DEPTH} deep")
    match node:
        case ast.Constant():
            # From the text and not from node.value, which for 0.1 is a float.
            return _bounded(Fraction(text[node.col_offset : node.end_col_offset]))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, text, depth + 1)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, text, depth + 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            operation = _OPERATIONS[type(op)]
            return _bounded(operation(_value(left, text, depth + 1), _value(right, text, depth + 1)))
        case _:
            raise CalculatorError("only numbers, + - * / // % ** and parentheses are understood")


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise CalculatorError("a number is too large")
    return value


def _divide(left: Fraction, right: Fraction) -> Fraction:
    if right == 0:
        raise CalculatorError("division by zero")
    return left / right


def _floor_divide(left: Fraction, right: Fraction) -> Fraction:
    if right == 0:
        raise CalculatorError("division by zero")
    return Fraction(left // right)


def _modulo(left: Fraction, right: Fraction) -> Fraction:
    if right == 0:
        raise CalculatorError("division by zero")
    return left % right


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise CalculatorError("only whole numbers can be exponents")
    if base == 0 and exponent < 0:
        raise CalculatorError("division by zero")
    if base in (0, 1):
        return Fraction(1) if exponent == 0 else base
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) * bits > MAX_BITS:
        raise CalculatorError("the power is too large")
    return Fraction(base ** int(exponent))


_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
    ast.Pow: _power,
}
