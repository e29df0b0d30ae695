"""Minimal echo environment on OpenEnv, served in OpenEnv's own way.

python echo_openenv.py sync 19103     # a plain step()
python echo_openenv.py async 19104    # step_async()

Needs `pip install openenv uvloop httptools`.
Its limit of concurrent sessions (8 by default) is raised, or nothing here could be measured.
"""

import importlib
import sys
import uuid
from typing import Any

import uvicorn

interfaces: Any = importlib.import_module("openenv.core.env_server.interfaces")
types: Any = importlib.import_module("openenv.core.env_server.types")
server: Any = importlib.import_module("openenv.core.env_server.http_server")


class EchoAction(types.Action):  # type: ignore[misc]  # OpenEnv lives in a virtual environment of its own
    message: str


class EchoObservation(types.Observation):  # type: ignore[misc]  # as above, and below
    echoed: str = ""


class SyncEcho(interfaces.Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.current = types.State(episode_id=str(uuid.uuid4()), step_count=0)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **rest: Any) -> EchoObservation:
        self.current = types.State(episode_id=episode_id or str(uuid.uuid4()), step_count=0)
        return EchoObservation(done=False, reward=0.0)

    def step(self, action: EchoAction, timeout_s: float | None = None, **rest: Any) -> EchoObservation:
        self.current.step_count += 1
        return EchoObservation(echoed=action.message, done=False, reward=0.0)

    @property
    def state(self) -> Any:
        return self.current


class AsyncEcho(SyncEcho):
    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **rest: Any
    ) -> EchoObservation:
        return self.reset(seed, episode_id)

    async def step_async(
        self, action: EchoAction, timeout_s: float | None = None, **rest: Any
    ) -> EchoObservation:
        return self.step(action)


if __name__ == "__main__":
    app = server.create_app(
        {"sync": SyncEcho, "async": AsyncEcho}[sys.argv[1]],
        EchoAction,
        EchoObservation,
        env_name="echo",
        max_concurrent_envs=20_000,
    )
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]))
