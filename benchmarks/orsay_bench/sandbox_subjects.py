"""Ways to have sandboxes that are compared: docker commands, a service of these, and our server."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp

__all__ = ["Commands", "Failed", "Kind", "Naive", "Orsay", "Subject", "docker"]

_PART = (4 << 20) - (64 << 10)
"""Bytes of a file that the released client sends at once."""


class Failed(Exception):
    """It did not do what it was asked to."""


@dataclass(frozen=True)
class Kind:
    """What all sandboxes are made from. ``network``: none or open."""

    image: str
    network: str = "none"
    cpus: int = 1
    memory_bytes: int = 1 << 30

    @property
    def options(self) -> Sequence[str]:
        """Options of ``docker run``."""
        network = "none" if self.network == "none" else "bridge"
        return ("--network", network, "--cpus", str(self.cpus), "--memory", str(self.memory_bytes))


class Subject(Protocol):
    """One way to have sandboxes. Raises Failed."""

    async def first_answer(self) -> str:
        """A sandbox that has answered a command, by its id."""
        ...

    async def run(self, sid: str, command: str) -> bytes: ...

    async def delete(self, sid: str) -> None: ...

    async def upload(self, sid: str, path: str, content: bytes) -> None: ...

    async def download(self, sid: str, path: str) -> bytes: ...

    async def fork(self, sid: str) -> str:
        """Another with its files, that has answered a command."""
        ...

    async def pids(self, sid: str) -> list[int]:
        """Processes of this machine that a sandbox consists of, outermost first."""
        ...


async def docker(*words: str) -> bytes:
    """Output of a docker command."""
    process = await asyncio.create_subprocess_exec(
        "docker", *words, stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=-1
    )
    output, errors = await process.communicate()
    if process.returncode:
        raise Failed(f"docker {words[0]}: {errors.decode(errors='replace').strip()[-300:]}")
    return output


async def _container_pid(container: str) -> int:
    return int(await docker("inspect", "--format", "{{.State.Pid}}", container))


class Commands:
    """Docker commands, from here; ``docker run`` itself gives the first answer."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._images: list[str] = []

    async def first_answer(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "id")
            said = await docker("run", "--cidfile", str(place), *self._kind.options, self._kind.image, "true")
            if said:
                raise Failed(f"docker run: {said!r}")
            return await asyncio.to_thread(place.read_text)

    async def lasting(self) -> str:
        """A container for commands."""
        words = ("run", "--detach", "--init", *self._kind.options, self._kind.image, "sleep", "infinity")
        return (await docker(*words)).decode().strip()

    async def run(self, sid: str, command: str) -> bytes:
        return await docker("exec", sid, "bash", "-c", command)

    async def delete(self, sid: str) -> None:
        await docker("rm", "--force", sid)
        if self._images:
            await docker("rmi", "--force", self._images.pop())

    async def upload(self, sid: str, path: str, content: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:
            await asyncio.to_thread(Path(file.name).write_bytes, content)
            await docker("cp", file.name, f"{sid}:{path}")

    async def download(self, sid: str, path: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            await docker("cp", f"{sid}:{path}", f"{folder}/file")
            return await asyncio.to_thread(Path(folder, "file").read_bytes)

    async def fork(self, sid: str) -> str:
        image = (await docker("commit", sid)).decode().strip()
        words = ("run", "--detach", "--init", *self._kind.options, image, "sleep", "infinity")
        made = (await docker(*words)).decode().strip()
        await self.run(made, "true")
        self._images.append(image)
        return made

    async def pids(self, sid: str) -> list[int]:
        return [await _container_pid(sid)]


class _Http:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def _post(self, path: str, data: bytes | Mapping[str, Any], **more: Any) -> bytes:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        try:
            async with self._session.post(path, data=body, **more) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise Failed(f"{path}: {exc!r}") from exc
        if answer.status != 200:
            raise Failed(f"{path}: {answer.status} {content[:300]!r}")
        return content


class Naive(_Http):
    """The service in ``servers/naive_sandboxes.py``."""

    def __init__(self, session: aiohttp.ClientSession, kind: Kind) -> None:
        super().__init__(session)
        self._kind = kind
        self._images: dict[str, str] = {}

    async def first_answer(self) -> str:
        kind = self._kind
        network = "none" if kind.network == "none" else "bridge"
        body = {
            "image": kind.image,
            "network": network,
            "cpus": kind.cpus,
            "memory_bytes": kind.memory_bytes,
        }
        sid: str = json.loads(await self._post("/create", body))["sid"]
        await self.run(sid, "true")
        return sid

    async def run(self, sid: str, command: str) -> bytes:
        return await self._post("/run", {"sid": sid, "cmd": command})

    async def delete(self, sid: str) -> None:
        await self._post("/delete", {"sid": sid})
        if sid in self._images:
            await docker("rmi", "--force", self._images.pop(sid))

    async def upload(self, sid: str, path: str, content: bytes) -> None:
        await self._post("/write", content, params={"sid": sid, "path": path})

    async def download(self, sid: str, path: str) -> bytes:
        return await self._post("/read", b"", params={"sid": sid, "path": path})

    async def fork(self, sid: str) -> str:
        network = "none" if self._kind.network == "none" else "bridge"
        made = json.loads(await self._post("/fork", {"sid": sid, "network": network}))
        self._images[made["sid"]] = made["image"]
        await self.run(made["sid"], "true")
        return str(made["sid"])

    async def pids(self, sid: str) -> list[int]:
        return [await _container_pid(sid)]


class Orsay(_Http):
    """Our server, by the endpoints and pieces that the released client of the platform uses."""

    def __init__(self, session: aiohttp.ClientSession, kind: Kind) -> None:
        super().__init__(session)
        self._kind = kind

    async def first_answer(self) -> str:
        return await self._made()

    async def _made(self, snapshot: str = "") -> str:
        kind = self._kind
        body = {
            "environment": "bench/bench",
            "image": kind.image,
            "block_network": kind.network == "none",
            "machine_size": f"{kind.cpus}:{kind.memory_bytes >> 30}",
            "orsay": {"snapshot": snapshot},
        }
        sid = str(_end_of(await self._post("/create_sandbox", body))["sid"])
        await self.run(sid, "true")
        return sid

    async def run(self, sid: str, command: str) -> bytes:
        body = {"cmd": command, "timeout_s": 300, "max_bytes": 50_001, "shell": "/bin/bash"}
        told = _end_of(await self._post("/run", body, headers={"X-Session-ID": sid}))
        output = base64.b64decode(told["output"])
        if told["return_code"]:
            raise Failed(f"code {told['return_code']}: {output[:300]!r}")
        return output

    async def delete(self, sid: str) -> None:
        await self._post("/delete_session", b"", headers={"X-Session-ID": sid})

    async def upload(self, sid: str, path: str, content: bytes) -> None:
        headers = {"X-Session-ID": sid}
        for at in range(0, len(content), _PART):
            query = {"path": path, "offset": str(at), "mkdirs": "1"}
            await self._post("/write_file", content[at : at + _PART], params=query, headers=headers)
        query = {"path": path, "commit": "1", "size": str(len(content))}
        await self._post("/write_file", b"", params=query, headers=headers)

    async def download(self, sid: str, path: str) -> bytes:
        headers, found = {"X-Session-ID": sid}, bytearray()
        told = json.loads(await self._post("/stat_file", b"", params={"path": path}, headers=headers))
        while len(found) < told["size"]:
            query = {"path": path, "offset": str(len(found)), "length": str(_PART)}
            found += await self._post("/read_file", b"", params=query, headers=headers)
        return bytes(found)

    async def fork(self, sid: str) -> str:
        told = json.loads(await self._post("/snapshot_sandbox", b"", headers={"X-Session-ID": sid}))
        try:
            return await self._made(told["snapshot"])
        finally:
            await self._post("/drop_snapshot", {"snapshot": told["snapshot"]})

    async def pids(self, sid: str) -> list[int]:
        container = (await docker("ps", "--quiet", "--filter", f"label=orsay.sandbox={sid}")).decode().strip()
        return [await _container_pid(container)] if container else []


def _end_of(events: bytes) -> dict[str, Any]:
    """The answer at the end of a stream of events. Raises Failed for an error there."""
    kept: list[str] = []
    event = ""
    for line in events.decode().splitlines():
        name, _, value = line.partition(": ")
        if name == "event":
            event = value
        elif name == "data" and event in ("chunk", "end"):
            kept.append(value)
        elif name == "data" and event == "error":
            raise Failed(value)
    found: dict[str, Any] = json.loads("".join(kept))
    return found
