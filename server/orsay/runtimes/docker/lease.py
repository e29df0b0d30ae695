"""Lease of containers: a container ends by itself when its server stops sending heartbeats.

The command of a container is wrapped in a few lines of shell, which start a watchdog on the container's
standard input and then exec the command. The server keeps that input open and writes a byte each third of the
lease. An image without a shell, or without ``timeout`` and ``head``, runs without a watchdog.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

__all__ = ["NO_WATCH", "SHELL", "Lease", "watched"]

SHELL = "/bin/sh"
NO_WATCH = "orsay: this image has no timeout or head, and cannot end by itself when its server is gone"
_GRACE_S = 5
_BYTE = b"."

# The watchdog is double-forked, so that the command has no unexpected child.
_SCRIPT = """\
if command -v timeout >/dev/null && command -v head >/dev/null; then
  exec 3<&0 </dev/null
  ( (
    while [ -n "$(timeout {lease} head -c 1 <&3)" ]; do :; done
    echo "orsay: the server of this container is gone" >&2
    kill -TERM $$; sleep {grace}; kill -KILL $$
  ) & )
  exec "$@" 3<&-
fi
echo "{no_watch}" >&2
exec "$@" </dev/null
"""


def watched(command: Sequence[str], lease_s: float) -> tuple[list[str], list[str]]:
    """Entrypoint and command of a container that runs ``command`` under a lease."""
    script = _SCRIPT.format(lease=max(1, round(lease_s)), grace=_GRACE_S, no_watch=NO_WATCH)
    return [SHELL, "-c", script, "orsay"], list(command)


class Lease:
    """Thread that renews the leases of containers: a busy event loop must not end them.

    ``on_beat`` is called on it each time.
    """

    def __init__(self, lease_s: float, *, on_beat: Callable[[], None] = lambda: None) -> None:
        self._on_beat = on_beat
        self._pause_s = lease_s / 3
        self._writers: dict[str, Callable[[bytes], None]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orsay-lease", daemon=True)
        self._thread.start()

    def hold(self, container: str, write: Callable[[bytes], None]) -> None:
        """Renew a container's lease through ``write``, which replaces an earlier one."""
        self._writers[container] = write
        self._renew(container)

    def drop(self, container: str) -> None:
        """Stop renewing a container's lease."""
        self._writers.pop(container, None)

    def stop(self) -> None:
        """Release all containers."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._pause_s):
            self._on_beat()
            for container in list(self._writers):
                self._renew(container)

    def _renew(self, container: str) -> None:
        write = self._writers.get(container)
        if write is None:
            return
        try:
            write(_BYTE)
        except (OSError, ValueError):  # the reader of the connection gets the error too, and reconnects
            self.drop(container)
