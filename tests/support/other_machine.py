"""Another machine, for what runs on this one: a network namespace behind a pair of interfaces of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["LINK_LOCAL", "OTHER_MACHINE", "other_machine"]

OTHER_MACHINE = "198.18.77.2"
"""Its address, of those meant for tests (RFC 2544)."""
_HERE = "198.18.77.1"
LINK_LOCAL = "169.254.77.77"
"""Another address of it."""
_SERVE = """
import socketserver, sys
class Answer(socketserver.StreamRequestHandler):
    def handle(self): self.wfile.write(b"from " + self.client_address[0].encode())
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
sys.stdin.readline()
with Server(("0.0.0.0", int(sys.argv[1])), Answer) as server:
    print("ready", flush=True)
    server.serve_forever()
"""


def _ip(*words: str, of: int | None = None) -> None:
    inside = [] if of is None else ["nsenter", "--target", str(of), "--net"]
    subprocess.run([*inside, "ip", *words], check=True, timeout=20, capture_output=True)


@contextmanager
def other_machine(port: int) -> Iterator[None]:
    """It answers on a port of all its addresses. Skips the test where no such thing can be made."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        pytest.skip("another machine is made of a network namespace, by root with iproute2 and util-linux")
    command = ["unshare", "--net", sys.executable, "-c", _SERVE, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            here = f"orst{process.pid}"[:15]
            while os.readlink(f"/proc/{process.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
                assert process.poll() is None
            _ip("link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", str(process.pid))
            _ip("addr", "add", f"{_HERE}/30", "dev", here)
            _ip("link", "set", here, "up")
            for each in ("lo", "eth0"):
                _ip("link", "set", each, "up", of=process.pid)
            for address in (f"{OTHER_MACHINE}/30", f"{LINK_LOCAL}/32"):
                _ip("addr", "add", address, "dev", "eth0", of=process.pid)
            _ip("route", "add", "default", "via", _HERE, of=process.pid)
            _ip("route", "add", f"{LINK_LOCAL}/32", "via", OTHER_MACHINE)
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()  # its namespace ends with it, and so do the interfaces and routes
