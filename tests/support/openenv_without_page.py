"""OpenEnv, imported without its web page: that needs gradio, whose import takes three seconds of CPU.

OpenEnv does so itself where gradio is missing. Its environments, servers and clients are the same; only a
server of its web page cannot be made, until that is imported by its own name.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_PAGE = "openenv.core.env_server.web_interface"

if _PAGE not in sys.modules:
    modules: dict[str, Any] = sys.modules
    modules[_PAGE] = None  # to Python: there is no such module
    try:
        importlib.import_module("openenv.core.env_server")
    finally:
        del modules[_PAGE]
