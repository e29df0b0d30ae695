"""Hosts ``kit.py`` on the server of a released package: ``python serve_released.py openreward|ors-sdk``.

Run by that package's own interpreter. Prints the URL once the socket listens.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from pathlib import Path

import uvicorn

if __name__ == "__main__":
    source = {"openreward": "openreward.environments", "ors-sdk": "ors"}[sys.argv[1]]
    os.environ["ORSAY_KIT"] = source
    sys.path.insert(0, str(Path(__file__).parent))
    kit = importlib.import_module("kit")
    server = importlib.import_module(source).Server([kit.Kit, kit.Second])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(server.app, log_level="warning", timeout_keep_alive=60)
    uvicorn.Server(config).run(sockets=[listener])
