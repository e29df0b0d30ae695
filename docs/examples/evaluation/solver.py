from orsay_eval import Turn


def solve(turn: Turn) -> tuple[str, dict[str, str]]:
    word = turn.prompt.split("'")[1]
    return "submit", {"text": word[::-1]}
