"""Where a new sandbox comes from: the server of the session, or a back end in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ...errors import SandboxError, SandboxRefused
from ...settings import sandboxes_url
from ...tracing import NOWHERE, current
from .allow_list import network_of
from .model import Connect, SandboxOptions, size_in_bytes
from .sandbox import Content, Sandbox, made

if TYPE_CHECKING:
    from .blocking import BlockingSandbox

__all__ = ["Opening", "SandboxesOfSession", "embed", "sandbox"]

_embedded: list[Callable[[], Connect]] = []


def embed(connect: Callable[[], Connect]) -> None:
    """Have sandboxes outside of sessions made by ``connect()``."""
    _embedded[:] = [connect]


class SandboxesOfSession:
    """The sandboxes that the code of one session has made, with the session's key."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._opened: list[tuple[Sandbox, asyncio.AbstractEventLoop]] = []

    def connect(self) -> Connect:
        """The server's sandboxes. Raises SandboxError where the server has none."""
        url = sandboxes_url()
        if not url:
            raise SandboxError("this server has no sandboxes: start it with --sandboxes docker or bubblewrap")
        from .remote import RemoteSandboxes  # with an HTTP client, which takes long to import

        return RemoteSandboxes(url, self._key)

    def note(self, sandbox: Sandbox) -> None:
        """Remember a sandbox of the session, and the event loop on which it was made."""
        self._opened.append((sandbox, asyncio.get_running_loop()))

    @property
    def is_used(self) -> bool:
        """True once a sandbox was made, until ``close``."""
        return bool(self._opened)

    async def close(self) -> None:
        opened, self._opened = self._opened, []
        here = asyncio.get_running_loop()
        endings = [
            each.close()
            if loop is here
            else asyncio.wrap_future(asyncio.run_coroutine_threadsafe(each.close(), loop))
            for each, loop in opened
        ]
        for error in await asyncio.gather(*endings, return_exceptions=True):
            if isinstance(error, BaseException) and not isinstance(error, SandboxError):
                raise error


class Opening:
    """A sandbox that is yet to be made: await it, or enter it with ``async with`` or ``with``."""

    def __init__(
        self,
        connect: Callable[[], Connect],
        options: SandboxOptions,
        files: Mapping[str, Content],
    ) -> None:
        self._connect = connect
        self._options = options
        self._files = dict(files)
        self._then: list[Callable[[Sandbox], None]] = []
        self._entered: Sandbox | None = None
        self._blocking: BlockingSandbox | None = None

    def then(self, note: Callable[[Sandbox], None]) -> Opening:
        """Have ``note`` called with each sandbox once it is made."""
        self._then.append(note)
        return self

    async def open(self) -> Sandbox:
        """Make it. Raises SandboxRefused and ImageMissing for what cannot be had, and SandboxError."""
        connect = self._connect()
        driver = await made(connect, self._options, self._files)
        sandbox = Sandbox(connect, self._options, self._files, driver, self._note)
        self._note(sandbox)
        return sandbox

    def _note(self, sandbox: Sandbox) -> None:
        for note in self._then:
            note(sandbox)

    def __await__(self) -> Generator[Any, None, Sandbox]:
        opening: Coroutine[Any, Any, Sandbox] = self.open()
        return opening.__await__()

    async def __aenter__(self) -> Sandbox:
        self._entered = await self.open()
        return self._entered

    async def __aexit__(self, *_: object) -> None:
        if self._entered is not None:
            await self._entered.close()

    def open_blocking(self) -> BlockingSandbox:
        """Make it, from code that is not async; not on the thread of an event loop."""
        from .blocking import BlockingSandbox  # with a thread, for those who need it

        return BlockingSandbox.open(self.open)

    def __enter__(self) -> BlockingSandbox:
        self._blocking = self.open_blocking()
        return self._blocking

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._blocking is not None:
            self._blocking.close()


def sandbox(
    *,
    image: str | None = None,
    cpus: float = 1,
    memory: str | int = "1g",
    disk: str | int | None = None,
    processes: int = 1024,
    network: Literal["none", "open"] | Sequence[str] = "none",
    files: Mapping[str, Content] | None = None,
    env: Mapping[str, str] | None = None,
    data: Mapping[str, str] | None = None,
) -> Opening:
    """A machine for untrusted code: ``async with sandbox() as box: await box.run("ls")``.

    In code of a session it is one of the server's, and ends with the session at the latest; elsewhere, such
    as in a script or a test, it is made by this process. To be awaited, or entered with ``async with``, or
    with ``with`` from code that is not async.

    ``memory`` and ``disk`` are bytes, or text such as ``512m``. ``network``: ``none`` leaves the loopback
    only, ``open`` leads to other machines; a list such as ``["pypi.org", "*.pythonhosted.org"]`` has the
    names that are reached, by a proxy for HTTP and HTTPS. ``files`` are written before the first command,
    ``env`` are variables of all of them. ``data`` has names of the server's data folders by the path at which
    each is mounted, read-only.

    Raises ValueError for options that cannot be, and SandboxRefused in a session without sandboxes.
    """
    if not 0 < cpus <= 1024 or processes < 1:
        raise ValueError("cpus and processes must be more than 0")
    for path in [*(files or {}), *(data or {})]:
        if not path.startswith("/") or "\0" in path:
            raise ValueError(f"{path!r} must be an absolute path")
    options = SandboxOptions(
        image=image,
        cpus=cpus,
        memory_bytes=size_in_bytes(memory),
        disk_bytes=None if disk is None else size_in_bytes(disk),
        processes=processes,
        network=network_of(network),
        variables=dict(env or {}),
        data=dict(data or {}),
    )
    origin = current.get()
    session = origin.sandboxes
    if isinstance(session, SandboxesOfSession):
        return Opening(session.connect, options, files or {}).then(session.note)
    if (
        origin is not NOWHERE
    ):  # what this process made itself would escape the server's limits and its journal
        raise SandboxRefused(
            "this session has no sandboxes: serve its environment with --sandboxes docker or bubblewrap"
        )
    return Opening(_embedded[0], options, files or {})
