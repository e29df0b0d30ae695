"""Hosts ``peer_env.py`` on a released server: ``python serve.py openreward|ors-sdk``, by its own Python.

Prints the URL once the socket listens.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module
from pathlib import Path

import uvicorn

if __name__ == "__main__":
    package = {"openreward": "openreward.environments", "ors-sdk": "ors"}[sys.argv[1]]
    os.environ["ORSAY_TEST_PACKAGE"] = package
    sys.path.insert(0, str(Path(__file__).parent))
    classes = import_module("peer_env")
    server = import_module(package).Server([classes.Peer, classes.Second])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(server.app, log_level="warning", timeout_keep_alive=60)
    uvicorn.Server(config).run(sockets=[listener])
