"""Polling until the hub has built a Space and its server runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import SpaceError
from .hub import Hub, Runtime

__all__ = ["Pace", "wait"]

_BUSY = frozenset({"BUILDING", "RUNNING_BUILDING", "APP_STARTING", "RUNNING_APP_STARTING"})
_GOOD = frozenset({"RUNNING", "SLEEPING"})
_FAILED = {
    "BUILD_ERROR": "its image cannot be built",
    "RUNTIME_ERROR": "its server does not start, or ended",
    "CONFIG_ERROR": "the hub does not accept the front matter of its README",
    "NO_APP_FILE": "the hub finds no Dockerfile in it",
}
_TOLERATED = 5


@dataclass(frozen=True)
class Pace:
    """Times in seconds: poll interval, settling time of a stage without a commit, total limit."""

    poll_s: float = 5.0
    settle_s: float = 15.0
    limit_s: float = 1800.0


class _Belief:
    """Decides if a reported state belongs to the commit just made, or to the previous one."""

    def __init__(self, commit: str, settle_s: float, *, changed: bool) -> None:
        self._commit = commit
        self._settle_s = settle_s
        self._changed = changed
        self._busy = False
        self._quiet_since_s = 0.0

    def holds(self, now: Runtime, elapsed_s: float) -> bool:
        """True for a stage of this commit. If the hub does not name the commit, a failure counts once a build
        has run, and a success after some time without a change."""
        if now.stage in _BUSY:
            self._busy, self._quiet_since_s = True, elapsed_s
            return False
        if now.commit == self._commit or not self._changed:
            return True
        if self._busy and (now.stage in _FAILED or not now.commit):
            return True
        settle_s = self._settle_s if self._busy or not now.commit else 8 * self._settle_s
        return elapsed_s - self._quiet_since_s >= settle_s


def wait(
    hub: Hub, space: str, commit: str, *, pace: Pace, report: Callable[[str, float], None], changed: bool
) -> None:
    """Return when the server of that commit runs. ``report`` is called with stage and seconds.

    ``changed`` is whether the hub has anything to build. Raises SpaceError: the Space failed, stands still,
    or took too long.
    """
    start, failures = time.monotonic(), 0
    belief = _Belief(commit, pace.settle_s, changed=changed)
    while True:
        elapsed_s = time.monotonic() - start
        try:
            now = hub.runtime(space)
            failures = 0
        except SpaceError:
            failures += 1
            if failures > _TOLERATED:
                raise
        else:
            believed = belief.holds(now, elapsed_s)
            report(now.stage if believed or now.stage in _BUSY else "waiting for the build", elapsed_s)
            if believed:
                _judge(hub, space, now)
                return
        if elapsed_s >= pace.limit_s:
            raise SpaceError(
                f"{space} is not up after {elapsed_s:.0f} s; the hub may go on: see {hub.page(space)}"
            )
        time.sleep(min(pace.poll_s, 0.5 + elapsed_s / 10))


def _judge(hub: Hub, space: str, now: Runtime) -> None:
    """Raise SpaceError unless the server runs."""
    if now.stage in _GOOD:
        return
    page = hub.page(space)
    if now.stage not in _FAILED:
        raise SpaceError(f"{space} has its files, but its state is {now.stage}: start it at {page}/settings")
    build = now.stage == "BUILD_ERROR"
    lines = hub.log(space, build=build) if now.stage in ("BUILD_ERROR", "RUNTIME_ERROR") else []
    text = f"{space} failed ({now.stage}): {_FAILED[now.stage]}"
    if now.error:
        text += f": {now.error}"
    if lines:
        text += "\n" + "\n".join(f"  {line}" for line in lines)
    where = f"{page}?logs={'build' if build else 'container'}"
    raise SpaceError(f"{text}\nThe whole log is at {where}; fix it and push again")
