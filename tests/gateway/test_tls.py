"""An upstream behind TLS, whose certificate is checked."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from ..interop.servers import KIT, serve
from ..support.server_process import ServerProcess
from ..support.session_api import api_for
from ..support.waiting import until

OPENSSL = shutil.which("openssl") or ""
pytestmark = [pytest.mark.process, pytest.mark.skipif(not OPENSSL, reason="openssl makes the certificate")]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of its own for 127.0.0.1, its key in the same file."""
    key, cert, both = (tmp_path / name for name in ("key.pem", "cert.pem", "both.pem"))
    subprocess.run(
        [
            *(OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    return both


@asynccontextmanager
async def behind_tls(url: str, certificate: Path) -> AsyncIterator[str]:
    """The same server, at an address that speaks TLS."""
    parts = urlsplit(url)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection(parts.hostname, parts.port)
        await asyncio.gather(copy(reader, inner[1]), copy(inner[0], writer))

    server = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_a_gateway_plays_an_upstream_over_tls(certificate: Path) -> None:
    with serve(*KIT, runtime="local") as plain:
        async with behind_tls(plain.url, certificate) as url:
            trusting = ServerProcess([url, "--port", "0"], {"SSL_CERT_FILE": str(certificate)})
            try:
                await asyncio.to_thread(trusting.wait_for_url)
                async with api_for(trusting.url) as api:
                    body = {"env_name": "kit", "split": "train", "index": 0}
                    assert (await api.post("/create", body)).status_code == 200
                    assert (await api.call("add", n=2)).text == "2"
                    await api.delete()
            finally:
                await asyncio.to_thread(trusting.end)


async def test_a_certificate_that_nobody_vouches_for_is_not_spoken_to(certificate: Path) -> None:
    with serve(*KIT, runtime="local") as plain:
        async with behind_tls(plain.url, certificate) as url:
            careful = ServerProcess([url, "--port", "0"], {"ORSAY_LOG_FORMAT": "json"})
            try:
                await asyncio.to_thread(careful.wait_for_url)
                answer = await asyncio.to_thread(httpx.get, f"{careful.url}/list_environments")
                assert answer.status_code == 503
                await until(lambda: careful.events("upstream_pending"))
                assert any("certificate" in line["reason"] for line in careful.events("upstream_pending"))
            finally:
                await asyncio.to_thread(careful.end)
