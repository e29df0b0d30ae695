"""Has a tool repeat odd texts by the unmodified client ``openreward``; takes the URL of the server.

Prints one line of JSON: how many texts there were, and which came back changed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ODD = 'é\r\n\x00 \u2028\u2029\x85\ufeff"\\ \t\x1b[0m☃🔑 data: x\n\nevent: end\ndata: {}\n\n'
TEXTS = [
    "\r\n",
    "a\r\nb\rc\n",
    "\r",
    "\x00",
    "a\x00b" * 1000,
    "\u2028",
    "x\u2028y\u2029z\x85",
    "\ufeffbom",
    "".join(map(chr, range(0x20))) + "\x7f",
    "event: error\ndata: no\n\n",
    ": comment\n\n",
    "id: 1\nretry: 5\n",
    ODD,
    ODD * 60_000,  # more than 5 MB
    "\n" * 1_000_000,
    " " * 5_000_000,
]


def main() -> None:
    for variable in ("OPENREWARD_API_URL", "OPENREWARD_SESSION_URL", "OPENREWARD_MATRIX_URL"):
        os.environ[variable] = sys.argv[1]
    from openreward import OpenReward

    client: Any = OpenReward(api_key="a-key")
    wrong = []
    with client.environments.get("vault").session(split="train", index=0) as session:
        for number, text in enumerate(TEXTS):
            output = session.call_tool("echo", {"text": text})
            if "".join(block.text for block in output.blocks) != text:
                wrong.append(number)
        prompt = session.get_prompt()[0].text
    print(json.dumps({"texts": len(TEXTS), "wrong": wrong, "prompt": prompt}), flush=True)
    os._exit(0)  # the client keeps threads that would wait


if __name__ == "__main__":
    main()
