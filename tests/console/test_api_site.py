"""How the page and its files are served: from a built folder, and by a real server."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import orsay
import pytest
from orsay.console.site import Site

from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from .api import raw_get

pytestmark = pytest.mark.process

INDEX = """<!doctype html><html><head><base href="/console/" />
<meta name="csp-nonce" content="__CSP_NONCE__" /><style nonce="__CSP_NONCE__">p { color: red }</style>
<script type="module" src="./assets/index-1.js"></script></head></html>"""
SCRIPT = "export const words = 'all of them';\n" * 100
SOURCES = Path(orsay.__file__).parent / "console"


class Answer:
    """What an ASGI application sent."""

    def __init__(self, messages: list[MutableMapping[str, Any]]) -> None:
        start, *parts = messages
        self.status = int(start["status"])
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        self.body = b"".join(part.get("body", b"") for part in parts)


async def ask(site: Site, place: str, raw_path: str | None = None, **headers: str) -> Answer:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    path = raw_path if raw_path is not None else f"/console/{place}"
    scope = {"path": path, "raw_path": path.encode()}
    given = {name.lower().replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    await site.answer(scope, given, send, place)
    return Answer(sent)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "assets" / "index-1.js").write_text(SCRIPT)
    (folder / "assets" / "font.woff2").write_bytes(b"font" * 100)
    (folder / "icon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "secret.txt").write_text("nobody may read this")
    return folder


async def test_each_page_has_a_nonce_of_its_own_in_its_policy(built: Path) -> None:
    site = Site(built)
    nonces = set()
    for _ in range(3):
        answer = await ask(site, "")
        (nonce,) = set(re.findall(r"(?:nonce|content)=\"([\w-]{16,})\"", answer.body.decode()))
        assert f"style-src 'self' 'nonce-{nonce}';" in answer.headers["content-security-policy"]
        assert b"__CSP_NONCE__" not in answer.body
        nonces.add(nonce)
    assert len(nonces) == 3


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/console", "console/"),
        ("/console/", "./"),
        ("/console/live", "./"),
        ("/console/live/", "../"),
        ("/console/trajectories/7", "../"),
        ("/console/trajectories/a%2Fb", "../"),
        ("/console/trajectories/7/diff/8", "../../../"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "/envs", "/a/b"])
async def test_the_page_finds_its_files_from_every_depth_and_behind_every_prefix(
    built: Path, path: str, base: str, prefix: str
) -> None:
    page = (await ask(Site(built), path[len("/console/") :], path)).body.decode()
    assert f'<base href="{base}"' in page
    seen = httpx.URL(f"https://proxy.example{prefix}{path}")  # a proxy took the prefix away
    assert str(seen.join(base).join("./assets/index-1.js")) == (
        f"https://proxy.example{prefix}/console/assets/index-1.js"
    )


async def test_assets_are_kept_for_ever_and_the_page_is_not(built: Path) -> None:
    site = Site(built)
    asset = await ask(site, "assets/index-1.js")
    assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert asset.headers["content-type"] == "text/javascript; charset=utf-8"
    icon, page = await ask(site, "icon.svg"), await ask(site, "runs")
    assert icon.headers["cache-control"] == page.headers["cache-control"] == "no-cache"
    assert icon.headers["content-type"] == "image/svg+xml"
    assert "etag" not in page.headers  # a nonce is good once


async def test_what_the_browser_has_is_not_sent_again(built: Path) -> None:
    site = Site(built)
    mark = (await ask(site, "icon.svg")).headers["etag"]
    for given in (mark, f"W/{mark}", f'"other", {mark}'):
        again = await ask(site, "icon.svg", If_None_Match=given)
        assert again.status == 304 and again.body == b"" and again.headers["etag"] == mark
        assert "content-security-policy" in again.headers
    assert (await ask(site, "icon.svg", If_None_Match='"other"')).status == 200


async def test_text_is_compressed_once_and_fonts_are_not(built: Path) -> None:
    site = Site(built)
    packed = await ask(site, "assets/index-1.js", Accept_Encoding="gzip, br")
    assert packed.headers["content-encoding"] == "gzip" and packed.headers["vary"] == "accept-encoding"
    assert gzip.decompress(packed.body).decode() == SCRIPT and len(packed.body) < len(SCRIPT) // 4
    assert int(packed.headers["content-length"]) == len(packed.body)
    assert (await ask(site, "assets/index-1.js")).body.decode() == SCRIPT
    font = await ask(site, "assets/font.woff2", Accept_Encoding="gzip")
    assert "content-encoding" not in font.headers and font.headers["content-type"] == "font/woff2"


async def test_a_page_that_was_built_again_is_served_as_it_is_now(built: Path) -> None:
    site = Site(built)
    await ask(site, "assets/index-1.js")
    (built / "assets" / "index-1.js").unlink()
    (built / "assets" / "index-2.js").write_text("new")
    (built / "index.html").write_text(INDEX.replace("index-1", "index-2"))
    os.utime(built / "index.html", ns=(1, 1))
    assert b"index-2.js" in (await ask(site, "")).body
    assert (await ask(site, "assets/index-2.js")).body == b"new"
    stale = await ask(site, "assets/index-1.js")
    assert stale.status == 404 and b"load the page again" in stale.body


async def test_a_page_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    answer = await ask(Site(tmp_path / "nothing"), "")
    assert answer.status == 200 and b"npm run build" in answer.body
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "place", ["../secret.txt", "assets/../../secret.txt", "/etc/passwd", "..", ".", "assets", "//", "\x00"]
)
async def test_nothing_outside_of_the_folder_can_be_read(built: Path, place: str) -> None:
    answer = await ask(Site(built), place)
    assert b"nobody may read this" not in answer.body and b"root:" not in answer.body
    assert b"<!doctype html>" in answer.body or answer.status == 404


# on a server


@pytest.fixture(scope="module")
def served() -> Iterator[ServerProcess]:
    with server(f"{ENVIRONMENTS}:Plain", runtime="local") as found:
        yield found


@pytest.mark.parametrize(
    "path",
    [
        "/console/../face.py",
        "/console/../../console/face.py",
        "/console/%2e%2e/face.py",
        "/console/assets/..%2f..%2fface.py",
        "/console/..%5cface.py",
        "/console/assets/%2e%2e/%2e%2e/face.py",
        f"/console/{SOURCES}/face.py",
        "/console//etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_page(served: ServerProcess, path: str) -> None:
    status, headers, body = raw_get(served.url, path)
    assert b"ConsoleMount" not in body and b"root:" not in body
    assert status in (200, 404)
    assert status == 404 or headers["content-type"].startswith("text/html")


def test_every_path_that_is_no_file_is_the_page(served: ServerProcess) -> None:
    whole = httpx.get(f"{served.url}/console").text
    for path in ("/console/", "/console/live", "/console/trajectories/12", "/console/a/b/c", "/console/x.y"):
        answer = httpx.get(served.url + path)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
        assert re.search("<title>(.*)</title>", answer.text)[1] in whole  # type: ignore[index]
    head = httpx.head(f"{served.url}/console")
    assert head.status_code == 200 and head.content == b"" and int(head.headers["content-length"]) > 100


def test_every_file_of_the_page_is_served_as_it_is(served: ServerProcess) -> None:
    folder = SOURCES / "static"
    files = [each for each in folder.rglob("*") if each.is_file() and each.name != "index.html"]
    assert files, "build the page: npm ci && npm run build in console/"
    with httpx.Client(base_url=f"{served.url}/console/") as http:
        for each in files:
            answer = http.get(each.relative_to(folder).as_posix())
            assert answer.status_code == 200 and answer.content == each.read_bytes()
            assert answer.headers["content-type"] != "application/octet-stream", each.name


def test_the_page_loads_scripts_and_styles_that_are_there(served: ServerProcess) -> None:
    page = httpx.get(f"{served.url}/console/trajectories/12")
    base = page.url.join(re.search('<base href="([^"]*)"', page.text)[1])  # type: ignore[index]
    wanted = re.findall(r"(?:src|href)=\"(\./[^\"]+)\"", page.text)
    assert any(each.endswith(".js") for each in wanted)
    for each in wanted:
        assert httpx.get(base.join(each)).status_code == 200, each
    assert "<script>" not in page.text and not re.search(r"\son\w+=", page.text)  # the policy allows neither
