"""Functions of texts: runs, numerals, expressions, brackets."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from itertools import groupby
from random import Random
from typing import Any

from ..problem import Params, Problem, size

__all__ = ["PROBLEMS"]


# compact-runs


def _compact(params: Params, text: str) -> str:
    pieces = []
    for character, group in groupby(text):
        left = len(list(group))
        while left:
            count = min(left, params["longest"])
            left -= count
            if count < params["least"]:
                pieces.append(character * count)
            elif params["order"] == "the count, the mark and the character":
                pieces.append(f"{count}{params['mark']}{character}")
            else:
                pieces.append(f"{character}{params['mark']}{count}")
    return "".join(pieces)


def _runs(rng: Random, params: Params) -> list[Any]:
    return [
        "".join(rng.choice("abcxyz") * rng.choice((1, 1, 2, 3, 4, 5, 9, 20)) for _ in range(size(rng, 10)))
    ]


_COMPACT_RUNS = Problem(
    name="compact-runs",
    signature="(text: str) -> str",
    words={
        "function": ("compact", "shorten", "squeeze", "encode_runs"),
        "thing": ("message", "signal", "genome", "log line"),
    },
    params=lambda rng: {
        "least": rng.randint(2, 5),
        "longest": rng.randint(6, 12),
        "mark": rng.choice("*#:~^+=@"),
        "order": rng.choice(
            ("the count, the mark and the character", "the character, the mark and the count")
        ),
    },
    statements=(
        "Shorten a {thing} of lower-case letters. From left to right, split it into runs of equal "
        "characters; a run longer than {longest} is split into runs of {longest}, and the rest comes last. "
        "A run of {least} or more is replaced by {order}, without blanks; the mark is {mark}. Shorter runs "
        "stay as they are.",
        "A {thing} of lower-case letters is compressed: every run of the same letter with a length from "
        "{least} to {longest} becomes {order} (the mark is {mark}, nothing else in between). Longer runs "
        "are first cut, from the left, into pieces of {longest} letters and a last piece with the rest. "
        "Runs and pieces shorter than {least} do not change. Return the result.",
    ),
    draw=_runs,
    reference=_compact,
    solutions={
        "python": """
            import re

            def {{function}}(text):
                def short(found):
                    run = found.group()
                    if len(run) < {{least}}:
                        return run
                    parts = [str(len(run)), "{{mark}}", run[0]]
                    if "{{order}}".startswith("the character"):
                        parts.reverse()
                    return "".join(parts)

                return re.sub(r"(.)\\1{0,%d}" % ({{longest}} - 1), short, text)
        """
    },
)


# numerals


def _numeral_params(rng: Random) -> dict[str, Any]:
    values = [1]
    for _ in range(rng.randint(3, 5)):
        values.append(values[-1] * rng.randint(2, 6))
    symbols = rng.sample("ABCDEHKLMOPRTUVXYZ", len(values))
    first = rng.choice(("largest", "smallest"))
    return {"values": values, "symbols": symbols, "first": first}


def _numeral(params: Params, number: int) -> str:
    written = ""
    for value, symbol in reversed([*zip(params["values"], params["symbols"], strict=True)]):
        count, number = divmod(number, value)
        written += symbol * count
    return written if params["first"] == "largest" else written[::-1]


_NUMERALS = Problem(
    name="numerals",
    signature="(number: int) -> str",
    words={
        "function": ("numeral", "write_number", "to_symbols", "inscription"),
        "people": ("old kingdom", "island people", "guild of masons", "mountain tribe"),
    },
    params=_numeral_params,
    statements=(
        "The {people} wrote numbers with symbols that are added up. The symbols {symbols} have the values "
        "{values}, in this order. Write the given number (1 or more) with as few symbols as possible by "
        "taking the largest value that fits, again and again. In the text, the symbols of the {first} value "
        "come first.",
        "Numerals of the {people}: the values {values} are written as {symbols}, respectively, and the "
        "value of a numeral is the sum of its symbols. Return the numeral of a number >= 1. Use large "
        "values as often as they fit before smaller ones; then sort the symbols so that the {first} value "
        "is at the beginning.",
    ),
    draw=lambda rng, params: [rng.randint(1, params["values"][-1] * rng.choice((1, 1, 6)))],
    reference=_numeral,
    solutions={
        "python": """
            def {{function}}(number):
                values = [{{values}}]
                symbols = "{{symbols}}".split(", ")
                result = []
                while number:
                    at = max(i for i, value in enumerate(values) if value <= number)
                    number -= values[at]
                    result.append(at)
                result.sort(reverse="{{first}}" == "largest")
                return "".join(symbols[at] for at in result)
        """
    },
)


# operators

_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "#": lambda a, b: abs(a - b),
    "?": max,
}


def _operator_params(rng: Random) -> dict[str, Any]:
    signs = rng.sample("+-*#?", 5)
    cuts = sorted(rng.sample(range(1, 5), 2))
    levels = [signs[: cuts[0]], signs[cuts[0] : cuts[1]], signs[cuts[1] :]]
    sides = [rng.choice(("left", "right")) for _ in levels]
    return {
        "levels": ["".join(sorted(level)) for level in levels],
        "sides": sides,
        "rules": "; ".join(
            f"{' '.join(sorted(level))} (from the {side})" for level, side in zip(levels, sides, strict=True)
        ),
    }


def _evaluate(params: Params, expression: str) -> int:
    tokens = expression.split()
    return _climb(params, tokens, len(params["levels"]) - 1)


def _climb(params: Params, tokens: list[str], level: int) -> int:
    """Level 0 binds most: the expression is split at the operators of the loosest level first."""
    if len(tokens) == 1:
        return int(tokens[0])
    signs, side = params["levels"][level], params["sides"][level]
    at = [index for index, token in enumerate(tokens) if token in signs]
    if not at:
        return _climb(params, tokens, level - 1)
    middle = at[-1] if side == "left" else at[0]
    left, right = tokens[:middle], tokens[middle + 1 :]
    return _OPERATIONS[tokens[middle]](_climb(params, left, level), _climb(params, right, level))


def _expression(rng: Random, params: Params) -> list[Any]:
    text = str(rng.randint(0, 12))
    for _ in range(size(rng, 9)):
        text += f" {rng.choice('+-*#?')} {rng.randint(0, 12)}"
    return [text]


_OPERATORS = Problem(
    name="operators",
    signature="(expression: str) -> int",
    words={
        "function": ("evaluate", "calculate", "result", "value_of"),
        "machine": ("pocket calculator", "spreadsheet", "small language", "game console"),
    },
    params=_operator_params,
    statements=(
        "A {machine} has its own rules for expressions. Numbers (0 or more) and operators are separated by "
        "blanks; there are no brackets. a # b is the absolute difference of a and b, a ? b is the larger "
        "one, and + - * are as usual. Operators of an earlier group bind tighter than those of a later one; "
        "in a group all bind equally and are grouped from the side given: {rules}. Return the value of the "
        "expression.",
        "Evaluate an expression for a {machine}. It is a text such as '3 + 4 # 10': whole numbers and "
        "binary operators, with one blank in between, without brackets. Besides + - * there are # (absolute "
        "difference) and ? (maximum). Precedence, from what is done first to what is done last, with the "
        "side from which operators of the same precedence are grouped: {rules}.",
    ),
    draw=_expression,
    reference=_evaluate,
    solutions={
        "python": """
            def {{function}}(expression):
                tokens = expression.split()
                levels = "{{levels}}".split(", ")
                sides = "{{sides}}".split(", ")
                do = {
                    "+": lambda a, b: a + b,
                    "-": lambda a, b: a - b,
                    "*": lambda a, b: a * b,
                    "#": lambda a, b: abs(a - b),
                    "?": lambda a, b: max(a, b),
                }
                values = [int(token) for token in tokens[::2]]
                signs = tokens[1::2]
                for level, side in zip(levels, sides):
                    while any(sign in level for sign in signs):
                        found = [i for i, sign in enumerate(signs) if sign in level]
                        i = found[0] if side == "left" else found[-1]
                        values[i : i + 2] = [do[signs[i]](values[i], values[i + 1])]
                        del signs[i]
                return values[0]
        """
    },
)


# brackets


def _bracket_params(rng: Random) -> dict[str, Any]:
    pairs = rng.sample(("()", "[]", "<>", "«»"), rng.randint(2, 4))
    return {
        "pairs": sorted(pairs),
        "deepest": rng.randint(2, 6),
        "quote": rng.choice(("|", "'", "%", "!")),
        "open_end": rng.choice(("the length of the text", "-2")),
    }


def _first_fault(params: Params, text: str) -> int:
    closing = {pair[0]: pair[1] for pair in params["pairs"]}
    stack: list[str] = []
    quoted = False
    for at, character in enumerate(text):
        if character == params["quote"]:
            quoted = not quoted
        elif quoted:
            continue
        elif character in closing:
            stack.append(closing[character])
            if len(stack) > params["deepest"]:
                return at
        elif character in closing.values() and (not stack or stack.pop() != character):
            return at
    if stack or quoted:
        return len(text) if params["open_end"] == "the length of the text" else -2
    return -1


def _bracketed(rng: Random, params: Params) -> list[Any]:
    """Mostly balanced texts, with a change now and then."""

    def part(depth: int) -> str:
        text = ""
        for _ in range(rng.randint(0, 2 if depth else 3)):
            kind = rng.randint(0, 5)
            if kind == 0:
                text += rng.choice("abcdef")
            elif kind == 1:
                noise = "".join(rng.sample("ab([<)]>", rng.randint(0, 3)))
                text += params["quote"] + noise + params["quote"]
            elif depth < params["deepest"] + rng.choice((0, 0, 1)):
                pair = rng.choice(params["pairs"])
                text += pair[0] + part(depth + 1) + pair[1]
        return text

    text = part(0) + part(0) + part(0)
    if text and rng.random() < 0.7:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(("", "", ")", ">", "]", "(", params["quote"])) + text[at + 1 :]
    return [text]


_BRACKETS = Problem(
    name="brackets",
    signature="(text: str) -> int",
    words={
        "function": ("first_fault", "check_brackets", "position_of_error", "lint"),
        "thing": ("configuration file", "formula", "template", "query"),
    },
    params=_bracket_params,
    statements=(
        "Check the brackets of a {thing}. The pairs are {pairs}; all other characters are plain, other "
        "brackets too. Between two quote characters {quote} everything is plain. Return the position (from "
        "0) of the first character that is wrong: a closing bracket that does not match the last open one, "
        "or an opening bracket that would be nested deeper than {deepest}. If no character is wrong, but a "
        "bracket or a quotation is open at the end, return {open_end}. Return -1 if all is well.",
        "Find the first fault in the brackets of a {thing}. Only the pairs {pairs} count, and not between "
        "two {quote}, which begin and end a quotation. At most {deepest} brackets may be open at once. The "
        "result is the index of the first bracket that closes without its partner being the innermost open "
        "one, or that opens one too many; it is {open_end} when the text ends too early (a bracket or a "
        "quotation is not closed), and -1 for a text without fault.",
    ),
    draw=_bracketed,
    reference=_first_fault,
    solutions={
        "python": """
            def {{function}}(text):
                pairs = "{{pairs}}".split(", ")
                opening = [pair[0] for pair in pairs]
                closing = [pair[1] for pair in pairs]
                unclosed = len(text) if "{{open_end}}" != "-2" else -2
                open_now = []
                position = 0
                while position < len(text):
                    char = text[position]
                    if char == "{{quote}}":
                        end = text.find("{{quote}}", position + 1)
                        if end < 0:
                            return unclosed
                        position = end
                    elif char in opening:
                        open_now.append(opening.index(char))
                        if len(open_now) > {{deepest}}:
                            return position
                    elif char in closing:
                        if not open_now or open_now[-1] != closing.index(char):
                            return position
                        open_now.pop()
                    position += 1
                return unclosed if open_now else -1
        """
    },
)


# clean-paths


def _clean(params: Params, path: str) -> str:
    kept: list[str] = []
    rooted = path.startswith(params["separator"])
    for part in path.split(params["separator"]):
        if part in ("", params["here"]):
            continue
        if part != params["up"]:
            kept.append(part)
        elif kept and kept[-1] != params["up"]:
            kept.pop()
        elif not rooted:
            kept.append(part)
    text = str(params["separator"]).join(kept[: params["deepest"]])
    return (params["separator"] if rooted else "") + text or params["here"]


def _path(rng: Random, params: Params) -> list[Any]:
    parts = ["", params["here"], params["up"], params["up"], *("etc", "home", "a", "b", "data", "x1")]
    text = params["separator"].join(rng.choice(parts) for _ in range(size(rng, 9, 1)))
    return [text or params["here"]]


_CLEAN_PATHS = Problem(
    name="clean-paths",
    signature="(path: str) -> str",
    words={
        "function": ("clean_path", "normalise", "simplify", "resolve"),
        "machine": ("mainframe", "text adventure", "document store", "network device"),
    },
    params=lambda rng: {
        "separator": rng.choice(("/", ":", "|", ">", "!")),
        "here": rng.choice((".", "@", "self", "=")),
        "up": rng.choice(("..", "^", "up", "-")),
        "deepest": rng.randint(2, 6),
    },
    statements=(
        "A {machine} has paths of names with the separator {separator} in between. The name {here} stands "
        "for the folder itself and {up} for the one above. A path is absolute if it begins with the "
        "separator. Return the path in its simplest form: without empty names, without {here}, and every "
        "{up} taken together with the name before it. {up} directly below the root is dropped; at the "
        "beginning of a path that is not absolute it stays. Of the result, keep the first {deepest} names "
        "only. An absolute path still begins with one separator, there is none at the end (unless the path "
        "is the root, one separator), and an empty result is written {here}.",
        "Simplify a path of a {machine}. Names are separated by {separator}, and a leading separator makes "
        "a path absolute. Drop empty names and {here} (the same folder). {up} (the parent) removes the name "
        "before it; where there is no name to remove, it is dropped in an absolute path and kept in "
        "another. At last cut the path after {deepest} names. Return the names joined with the separator, "
        "with one in front if the path was absolute; a relative path without names is {here}.",
    ),
    draw=_path,
    reference=_clean,
    solutions={
        "python": """
            def {{function}}(path):
                sep = "{{separator}}"
                absolute = path[:1] == sep
                names = [name for name in path.split(sep) if name not in ("", "{{here}}")]
                changed = True
                while changed:
                    changed = False
                    for i, name in enumerate(names):
                        if name != "{{up}}":
                            continue
                        if i == 0 and absolute:
                            del names[0]
                        elif i > 0 and names[i - 1] != "{{up}}":
                            del names[i - 1 : i + 1]
                        else:
                            continue
                        changed = True
                        break
                names = names[:{{deepest}}]
                if absolute:
                    return sep + sep.join(names)
                return sep.join(names) or "{{here}}"
        """
    },
)

PROBLEMS = (_COMPACT_RUNS, _NUMERALS, _OPERATORS, _BRACKETS, _CLEAN_PATHS)
