"""Health checks of an upstream: availability, and hosted environments."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from orsay_protocol.redact import Redactor

from ...errors import LoadError
from ...logs import get_logger
from .answers import detail_of
from .backoff import backoff_s
from .discovery import Found, Unusable, discover
from .http import Answer, Broken
from .options import RemoteOptions

__all__ = ["Watch"]

_log = get_logger(__name__)
_LOOK_AGAIN_S = 30.0  # an upstream's environments may change
_SILENT_LIMIT = 3
_NOTHING = Found((), ours=False, versioned=True)


class Watch:
    """State of the upstream ``label``, updated by ``run``.

    ``get`` requests a path. ``changed`` is called when it goes up or down, or its environments change.
    ``hide`` removes our key for the server from its texts.
    """

    def __init__(
        self,
        label: str,
        options: RemoteOptions,
        get: Callable[[str], Awaitable[Answer]],
        changed: Callable[[], None],
        hide: Redactor,
    ) -> None:
        self._label = label
        self._options = options
        self._get = get
        self._changed = changed
        self._hide = hide
        self.up = False
        self.problem = "it was not reached yet"
        self.found = _NOTHING
        self._silent = 0
        self.outages = 0
        self._answered_at = self._looked_at = float("-inf")
        self._suspected = asyncio.Event()
        self._first: asyncio.Future[None] | None = None

    async def first(self) -> None:
        """Wait for a bounded time until it is first up. Raises LoadError for an unusable server."""
        self._first = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._options.start_wait_s):
                await self._first
        except TimeoutError:
            _log.warning("upstream_pending", upstream=self._label, reason=self.problem)

    def note_answer(self) -> None:
        """Note that the server answered a request."""
        self._answered_at = asyncio.get_running_loop().time()

    def broke(self, broken: Broken) -> None:
        """Note a failed request, and check the server."""
        if broken.unreachable:
            self.went_down(str(broken))
        self._suspected.set()

    def look_again(self) -> None:
        """Read the environments again: they may have changed."""
        self._looked_at = float("-inf")
        self._suspected.set()

    async def run(self) -> None:
        """Check the server periodically."""
        failures = 0
        while True:
            suspected = self._suspected.is_set()
            self._suspected.clear()
            try:
                await self._look(suspected)
            except Broken as error:
                failures += 1
                self._silent += 1
                if error.unreachable or not self.up or self._silent >= _SILENT_LIMIT:
                    self.went_down(str(error))
            except Unusable as error:
                failures += 1
                if self._first is not None and not self._first.done():
                    self._first.set_exception(LoadError(f"{self._label} {error}"))
                self.went_down(str(error))
            except Exception:
                failures += 1
                _log.exception("upstream_watch_failed", upstream=self._label)
            else:
                failures = self._silent = 0
            if failures:
                await asyncio.sleep(backoff_s(failures, self._options.health_s))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.health_s):
                    await self._suspected.wait()

    async def _look(self, suspected: bool) -> None:
        """Check once. Raises Broken or Unusable."""
        now = asyncio.get_running_loop().time()
        if not self.up or now - self._looked_at > _LOOK_AGAIN_S:
            self._looked_at = now
            self._came_up(await discover(self._get, self._hide))
        elif suspected or self._silent or now - self._answered_at > self._options.health_s:
            answer = await self._get("/health")
            if answer.status >= 500:
                raise Broken(
                    f"GET /health: {answer.status} {detail_of(answer, self._hide)}", may_have_run=True
                )
            self.note_answer()

    def _came_up(self, found: Found) -> None:
        news = not self.up or found.environments != self.found.environments
        self.found = found
        self.note_answer()
        if not self.up:
            self.up = True
            names = [info.name for info in found.environments]
            _log.info("upstream_up", upstream=self._label, environments=names)
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
        if news:
            self._changed()

    def went_down(self, problem: str) -> None:
        """Note that the server is unreachable; checks continue."""
        was_up, self.up, self.problem = self.up, False, problem
        if was_up:
            self.outages += 1
            _log.warning("upstream_down", upstream=self._label, reason=problem)
            self._changed()
            self._suspected.set()
