"""Protection of a server without keys against foreign web pages (CSRF, DNS rebinding).

Anyone who can reach such a server may use it, and a foreign page in such a person's browser can reach it
too. Two headers that a page cannot choose identify the page: ``Host``, the name in the URL, which may point
here by DNS rebinding, and ``Origin``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import BadRequest, Forbidden, Unauthorized
from .asgi import Headers, Scope, address_of
from .limits import Notes
from .names import Names, name_of
from .request import Request

__all__ = ["Guard"]

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?P<authority>[^/]+)")
_KEPT = 1_024
_SHOWN = 100


class Guard:
    """Check of requests to a server without keys; with keys it is not necessary, as a page has none.

    ``origins`` are those of other pages that may use it: ``https://app.example.org``,
    ``https://*.example.org``, or ``*``.
    """

    def __init__(self, names: Names, origins: Iterable[str] = ()) -> None:
        self.refused = 0
        """Requests that were refused."""
        self._names = names
        given = [each.lower() for each in origins]
        self._any_page = "*" in given
        self._pages = [_pattern(each) for each in given]
        self._notes = Notes()
        self._good: set[bytes | None] = {None, b""}  # clients other than browsers may send no Host

    def check(self, request: Request) -> None:
        """Raises Forbidden for a foreign name or page; BadRequest for a repeated Host or Origin."""
        headers = request.headers
        if len(headers) != len(request.scope["headers"]):
            self._judge_repeated(request.scope)
        host = headers.get(b"host")
        if host not in self._good:
            self._judge_host(host or b"")
        if b"origin" in headers or b"sec-fetch-site" in headers:
            self._judge_page(headers)

    def note(self, request: Request, error: Forbidden | Unauthorized) -> None:
        """Log a request refused for its key, its host name or its page, within the rate of ``Notes``."""
        about = {
            "client": address_of(request.scope),
            "method": request.scope.get("method", "GET"),  # a WebSocket has none
            "path": request.path[:_SHOWN],
        }
        if isinstance(error, Unauthorized):
            self._notes.add("key_refused", **about)
            return
        for name in ("host", "origin"):
            about[name] = request.headers.get(name.encode(), b"").decode("latin-1")[:_SHOWN]
        self._notes.add("page_refused", **about)

    def _judge_host(self, host: bytes) -> None:
        name = name_of(host.decode("latin-1"))
        if name is None or name not in self._names:
            self.refused += 1
            raise Forbidden(
                "this server has no API keys, so it refuses host names that a web page could use to reach it:"
                f" {_shown(host)} is no name of this server. Use its address, such as"
                " http://127.0.0.1, add the name to ORSAY_ALLOWED_HOSTS, or set ORSAY_API_KEYS"
            )
        if len(self._good) < _KEPT:
            self._good.add(host)

    def _judge_page(self, headers: Headers) -> None:
        if self._any_page:
            return
        origin = headers.get(b"origin")
        if origin is None:
            site, mode = headers.get(b"sec-fetch-site"), headers.get(b"sec-fetch-mode")
            if site != b"cross-site" or mode == b"navigate":  # the user follows a link
                return
            page = "this is embedded in one of another site"
        else:
            if self._is_ours(origin.decode("latin-1").lower(), headers.get(b"host", b"")):
                return
            page = f"this one is of {_shown(origin)}"
        self.refused += 1
        raise Forbidden(
            f"this server has no API keys, so web pages of other machines may not use it; {page}."
            " Add its origin to ORSAY_ALLOWED_ORIGINS, or set ORSAY_API_KEYS"
        )

    def _is_ours(self, origin: str, host: bytes) -> bool:
        """True for a page under a name of this server, on any port, or of an origin that the settings allow.

        A proxy in front may have removed port and scheme; and a program that serves pages on another port of
        this machine can reach the server without a browser.
        """
        found = _ORIGIN.fullmatch(origin)
        if found is not None and origin.startswith(("http://", "https://")):
            name = name_of(found["authority"])
            if name is not None and (self._names.own(name) or name == name_of(host.decode("latin-1"))):
                return True
        return any(page.fullmatch(origin) for page in self._pages)

    def _judge_repeated(self, scope: Scope) -> None:
        names = [name for name, _ in scope["headers"] if name in (b"host", b"origin")]
        if len(names) != len(set(names)):
            self.refused += 1
            raise BadRequest("the request has two headers Host, or two headers Origin: send one of each")


def _pattern(origin: str) -> re.Pattern[str]:
    """Pattern for an origin of the settings, in which a star stands for one or more labels of a name."""
    return re.compile(re.escape(origin).replace(r"\*\.", r"(?:[a-z0-9_-]+\.)+"))


def _shown(value: bytes) -> str:
    text = value.decode("latin-1")
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
