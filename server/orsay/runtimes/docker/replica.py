"""One container and its server, from creation to removal."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orsay_protocol.redact import Redactor, redactor
from pydantic import SecretStr
from pydantic_core import from_json, to_json

from ...errors import EngineError, LoadError, NotThere
from ...logs import get_logger
from ..base import EnvironmentInfo
from ..remote.options import RemoteOptions
from ..remote.upstream import Upstream
from .address import url_of, wait_for_answer
from .claim import Claim
from .engine import Engine, Stream
from .lease import NO_WATCH, SHELL, Lease, watched
from .options import DockerOptions
from .output import Output
from .spec import ContainerSpec, ImageConfig

__all__ = ["Plan", "Replica", "reason_of"]

_log = get_logger(__name__)
_DEFAULT_PORT = 8080
_VARIABLES = {"ORSAY_ERROR_DETAIL": "exception"}  # this server decides which details clients get
_HASH_SEEDS = ("PYTHONHASHSEED", "ORSAY_HASH_SEED")  # of any server there, and of the workers of ours
_KEYS = "ORSAY_API_KEYS"
_REATTACH_S = (0.2, 1.0, 2.0, 5.0)
_NO_SHELL = f"exec {SHELL} failed"  # error message of the engine's init process


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings that all containers of a runtime have in common."""

    engine: Engine
    options: DockerOptions
    image: ImageConfig
    claim: Claim
    lease: Lease
    network: str
    key: SecretStr = field(default_factory=lambda: SecretStr(secrets.token_urlsafe(24)), repr=False)
    """API key of the server in a container, against other clients on its network."""

    @property
    def keys(self) -> Iterable[str]:
        """Keys of the servers in the containers, to be redacted from their output."""
        yield self.key.get_secret_value()
        if self.options.remote.api_key is not None:
            yield self.options.remote.api_key.get_secret_value()
        with contextlib.suppress(ValueError):
            given = from_json(self.options.variables.get(_KEYS, "[]"))
            yield from (key for key in given if isinstance(key, str))

    @property
    def port(self) -> int:
        return self.options.port or next(iter(self.image.ports), _DEFAULT_PORT)

    @property
    def remote(self) -> RemoteOptions:
        """Options for the server in a container; an API key of the user has priority."""
        given = self.options.remote
        own = given.api_key is None and _KEYS not in self.options.variables
        return replace(
            given, start_wait_s=self.options.start_limit_s, api_key=self.key if own else given.api_key
        )

    def spec(self, *, unwatched: bool) -> ContainerSpec:
        """Specification of a container. Raises LoadError if the image has no command."""
        options, image = self.options, self.image
        command = [*image.entrypoint, *(image.command if options.command is None else options.command)]
        if not command:
            raise LoadError(f"image {options.image} has no command: give it one")
        entrypoint, arguments = (command[:1], command[1:]) if unwatched else watched(command, options.lease_s)
        return ContainerSpec(
            image=image.id,
            entrypoint=entrypoint,
            command=arguments,
            labels=self.claim.labels,
            variables={
                **_VARIABLES,
                **dict.fromkeys(_HASH_SEEDS, str(options.hash_seed)),
                _KEYS: to_json([self.key.get_secret_value()]).decode(),
                **options.variables,
            },
            user=options.user,
            network=self.network,
            published_port=self.port if self.network == "bridge" else None,
            binds=options.binds,
            cpus=options.cpus,
            memory_bytes=options.memory_bytes,
            pids=options.pids,
            capabilities=options.capabilities,
            read_only=options.read_only,
        )


class _Ended(Exception):
    """The container ended while it started; the text has the reason."""


class Replica:
    """A container from ``start`` to its end: by ``end``, or reported by ``ended``."""

    def __init__(self, plan: Plan, number: int, changed: Callable[[], None]) -> None:
        self.name = _name(plan, number)
        self.id = ""
        self.opening = 0
        """Sessions that are being opened."""
        self.questions = 0
        """Pending queries about tasks."""
        self.born_at = self._up_at = 0.0
        self.running = False
        """True once it was started; ``gone`` is set when it no longer runs."""
        self._plan = plan
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[str] = self._loop.create_future()
        self._upstream: Upstream | None = None
        self._stream: Stream | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwatched = False
        self._own = redactor(plan.keys)
        self._output = Output(self._line, self._dropped, self._hides)

    @property
    def upstream(self) -> Upstream:
        """The server in it; available after ``start``."""
        assert self._upstream is not None
        return self._upstream

    @property
    def environments(self) -> Sequence[EnvironmentInfo]:
        """Hosted environments, as far as they are known."""
        return () if self._upstream is None else self._upstream.environments

    @property
    def sessions(self) -> int:
        """Sessions that are open, or being opened."""
        return self.opening + (0 if self._upstream is None else len(self._upstream.sessions))

    def silent_s(self) -> float:
        """Seconds since the server stopped answering while the container runs."""
        if self.upstream.up:
            self._up_at = self._loop.time()
        return self._loop.time() - self._up_at

    @property
    def gone(self) -> bool:
        return self._end.done()

    # starting

    async def start(self) -> None:
        """Start, and wait until the server lists its environments. Raises LoadError, with its last output."""
        options = self._plan.options
        try:
            async with asyncio.timeout(options.start_limit_s):
                await self._run()
                try:
                    await self._wait_for_server()
                except _Ended:
                    if not self._lacks_shell():
                        raise
                    await self._run_unwatched()
                    await self._wait_for_server()
        except _Ended as ended:
            raise self._failed(f"{ended} while it started") from None
        except TimeoutError:
            raise self._failed(
                f"does not answer on port {self._plan.port} after {options.start_limit_s:g} s; set `port` if"
                " it listens elsewhere, and let it listen on 0.0.0.0"
            ) from None
        except EngineError as exc:
            raise self._failed(f"could not be started: {exc}") from exc
        self.born_at = self._up_at = self._loop.time()

    def _failed(self, what: str) -> LoadError:
        lines = "".join(f"\n  {line}" for line in self._output.last_lines)
        last_lines = f"; its last lines were:{lines}" if lines else ""
        return LoadError(f"the container of {self._plan.options.image} {what}{last_lines}")

    async def _run(self) -> None:
        engine = self._plan.engine
        self.id = await engine.create(self._plan.spec(unwatched=self._unwatched), name=self.name)
        await self._attach()
        await engine.start(self.id)
        self.running = True

    def _lacks_shell(self) -> bool:
        return not self._unwatched and any(_NO_SHELL in line for line in self._output.last_lines)

    async def _run_unwatched(self) -> None:
        """Start the container again without the watchdog's shell."""
        _log.warning("container_unwatched", image=self._plan.options.image, why=f"it has no {SHELL}")
        self.running = False
        self._plan.lease.drop(self.id)
        await self._plan.engine.remove(self.id)
        self._unwatched, self._end = True, self._loop.create_future()
        self._output = Output(self._line, self._dropped, self._hides)
        await self._run()

    async def _wait_for_server(self) -> None:
        url = await self._address()
        looking = asyncio.ensure_future(self._look(url))
        try:
            ends: set[asyncio.Future[Any]] = {looking, self._end}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not self._end.done():
                return await looking
        except LoadError as exc:
            raise self._failed(f"cannot be used: {exc}") from exc
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        raise _Ended(self._end.result())

    async def _look(self, url: str) -> None:
        """Wait until the server answers with its environments. Raises LoadError."""
        await wait_for_answer(url)
        self._upstream = Upstream(url, self._plan.remote, label=self.name, changed=self._changed)
        await self._upstream.start()
        if not self._upstream.up:
            raise TimeoutError

    async def _address(self) -> str:
        try:
            found = await self._plan.engine.inspect(self.id)
        except NotThere:
            found = {"State": {}}
        if not found["State"].get("Running"):
            async with asyncio.timeout(5):  # the event is on its way
                raise _Ended(await asyncio.shield(self._end))
        return url_of(found, self._plan.port, image=self._plan.options.image)

    # output and lease

    async def _attach(self) -> None:
        self._output.reconnected()
        self._stream, write = await self._plan.engine.attach(
            self.id, on_data=self._output.feed, on_end=self._detached
        )
        if not self._unwatched:
            self._plan.lease.hold(self.id, write)

    def _detached(self) -> None:
        """Attach again, on the reading thread, after the container ended or the connection broke."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._attach_again)

    def _attach_again(self) -> None:
        if not self._end.done():
            task = self._loop.create_task(self._reattach())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reattach(self) -> None:
        attempt = 0
        while True:
            await asyncio.sleep(_REATTACH_S[min(attempt, len(_REATTACH_S) - 1)])
            attempt += 1
            if self._end.done():
                return
            try:
                await self._attach()
                return
            except NotThere:
                return  # the event with the reason will arrive
            except EngineError as exc:
                _log.warning("container_attach_failed", container=self.name, error=str(exc))

    def _line(self, stream: str, line: str) -> None:
        label = self._plan.claim.label
        if line == NO_WATCH:
            _log.warning("container_unwatched", label=label, container=self.name, why=line)
        else:
            _log.info("container_log", label=label, container=self.name, stream=stream, line=line)

    def _hides(self) -> set[Redactor]:
        """Redactors of its key and of its sessions' secrets; called on the reading thread."""
        own = self._own
        return {own} if self._upstream is None else {own, *self._upstream.hides}

    def _dropped(self, count: int) -> None:
        _log.warning("container_log_dropped", container=self.name, lines=count)

    # shutdown

    def ended(self, reason: str) -> None:
        """Note the end of the container."""
        if not self._end.done():
            self._end.set_result(reason)

    async def end(self) -> None:
        """Stop it with grace, then by force; returns when it is gone. Safe in every state."""
        if self._upstream is not None:
            await self._upstream.close()
        if self.id:
            await self._stop()
        self._plan.lease.drop(self.id)
        self.ended("was stopped")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._stream is not None:
            self._stream.close()
        self._output.end()

    async def _stop(self) -> None:
        engine, grace_s = self._plan.engine, self._plan.options.stop_grace_s
        if not self._end.done():
            with contextlib.suppress(EngineError, TimeoutError):
                await engine.kill(self.id, self._plan.image.stop_signal)
                async with asyncio.timeout(grace_s):
                    await asyncio.shield(self._end)
        try:
            await engine.remove(self.id)  # the engine removes an ended container a moment later
        except EngineError as exc:
            _log.error("container_left", container=self.name, error=str(exc))


def reason_of(exit_code: int, *, out_of_memory: bool, memory: str | None) -> str:
    """Reason of a container's end, as a clause after its name."""
    if out_of_memory:
        limit = f"more than {memory} of memory" if memory else "too much memory"
        return f"was killed for using {limit}"
    if exit_code > 128:
        return f"was ended by signal {exit_code - 128}"
    return f"ended with exit code {exit_code}"


def _name(plan: Plan, number: int) -> str:
    wanted = plan.claim.label or plan.options.image
    slug = re.sub(r"[^a-zA-Z0-9_.-]+", "-", wanted).strip("-.")[:40] or "image"
    return f"orsay-{slug}-{plan.claim.word[:8]}-{number}"
