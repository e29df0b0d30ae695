"""Calls a function of a solution with the arguments on standard input and writes its result, both as JSON.

Runs in sandboxes, as the solution's own process: nothing is decided here. What the solution prints goes to
standard error.
"""

import importlib.util
import json
import os
import sys


def main(source: str, function: str) -> None:
    arguments = json.load(sys.stdin)
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.insert(0, os.path.dirname(source))
    spec = importlib.util.spec_from_file_location("solution", source)
    assert spec is not None and spec.loader is not None
    solution = importlib.util.module_from_spec(spec)
    sys.modules["solution"] = solution
    spec.loader.exec_module(solution)
    result = getattr(solution, function)(*arguments)
    with output:
        json.dump(result, output)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
