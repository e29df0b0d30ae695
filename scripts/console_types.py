"""OpenAPI document of a server with a console, as JSON: the input of ``console/types.mjs``."""

from __future__ import annotations

import json
import sys

from orsay.console.operations import OPERATIONS
from orsay.faults import FaultLog
from orsay.http.fastapi_app import build
from orsay.runtimes.execution.episode import Limits
from orsay.runtimes.local import LocalRuntime

if __name__ == "__main__":
    runtime = LocalRuntime([], Limits(1, 1, 1, 1), threads=1)  # it hosts nothing
    app = build(runtime, FaultLog(show=False), index_only=False, more=OPERATIONS)
    json.dump(app.openapi(), sys.stdout)
