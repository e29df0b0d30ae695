"""A real nginx that does TLS in front of a server, set up as docs/security.md says."""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .documentation import ROOT, blocks
from .sockets import free_port

__all__ = ["Proxy", "nginx"]

_LIMIT_S = 60.0
_SERVER = "http://127.0.0.1:8080"
_CONF = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream orsay {{
        server {server};
        keepalive 8;
    }}
    {site}
}}
"""
_SITE = """\
server {{
    listen 443 ssl;
    ssl_certificate cert.pem;
    ssl_certificate_key key.pem;
    {location}
    {prefixed}
}}
"""


@dataclass(frozen=True)
class Proxy:
    """``url`` begins with https; ``certificate`` is the file that makes a client believe it."""

    url: str
    certificate: Path

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))


@contextmanager
def nginx(server: str, folder: Path, *, site: str = "") -> Iterator[Proxy]:
    """In front of the server at that URL, at ``/`` and, the prefix taken away, at ``/envs/``.

    With ``site``, what that configuration of a server says, but for its port, certificate and server.
    """
    certificate = _certificate(folder)
    port = free_port()
    place = server.removeprefix("http://")
    conf = folder / "nginx.conf"
    here = _here(site or _documented_site(), folder, port)
    conf.write_text(_CONF.format(folder=folder, server=place, site=here))
    command = [str(_binary()), "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(conf)]
    process = subprocess.Popen(command)
    try:
        _wait_for(port, process, folder / "error.log")
        yield Proxy(f"https://127.0.0.1:{port}", certificate)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _documented_site() -> str:
    """A site of what docs/security.md shows."""
    config, sockets = (b.code for b in blocks() if (b.page.name, b.language) == ("security.md", "nginx"))
    prefixed = config.replace("location /", "location /envs/").replace(_SERVER, f"{_SERVER}/")
    return _SITE.format(location=config + sockets, prefixed=prefixed)


def _here(site: str, folder: Path, port: int) -> str:
    """The site on a port of loopback, with a certificate of ours, before the server of the test."""
    for shown, here in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        (r"ssl_certificate \S+;", f"ssl_certificate {folder}/cert.pem;"),
        (r"ssl_certificate_key \S+;", f"ssl_certificate_key {folder}/key.pem;"),
        (re.escape(_SERVER), "http://orsay"),
    ):
        site, count = re.subn(shown, here, site)
        assert count, f"the site does not say {shown}"
    return site


def _binary() -> Path:
    """The one of this machine, else Debian's, unpacked into the cache; skips where neither can be had."""
    if found := shutil.which("nginx"):
        return Path(found)
    folder = ROOT / ".cache" / "nginx"
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / "usr" / "sbin" / "nginx"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            try:
                _run("apt-get", "download", "nginx", folder=folder)
                (package,) = folder.glob("nginx_*.deb")
                _run("dpkg-deb", "-x", package.name, ".", folder=folder)
            except (OSError, ValueError, subprocess.SubprocessError) as exc:
                pytest.skip(f"there is no nginx here, and none can be had: {exc}")
    return binary


def _certificate(folder: Path) -> Path:
    """Of 127.0.0.1, signed by itself, beside its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here to make a certificate with")
    names = ["-subj", "/CN=orsay test", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    _run("openssl", "req", *kind, *names, "-keyout", "key.pem", "-out", "cert.pem", folder=folder)
    return folder / "cert.pem"


def _run(*command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, capture_output=True, timeout=_LIMIT_S, check=True)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise TimeoutError(f"nginx does not listen: {log.read_text()}")
