"""Client of the Hugging Face hub: the only module that imports ``huggingface_hub``.

Errors of the hub and of the network become SpaceError, with the remedy. Values of secrets are sent, but never
part of a message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from orsay_protocol.redact import Redactor

from ..errors import SpaceError

__all__ = ["Hub", "Remote", "Runtime"]

_TYPE = "space"
_NOTHING_IGNORED = "# The folder holds what belongs here."
# Network errors, by release of the hub's client.
_LIBRARIES = ("httpx", "httpx2", "httpcore", "requests", "urllib3")
_LOG_LINES = 40


@dataclass(frozen=True)
class Remote:
    """State of a Space on the hub: its files by path, the last commit, the URL of its server."""

    files: frozenset[str]
    commit: str | None
    url: str | None
    private: bool | None
    hardware: str | None


@dataclass(frozen=True)
class Runtime:
    """The hub's stage and error, with their commit if the hub names it."""

    stage: str
    commit: str | None
    error: str


@dataclass(frozen=True)
class Hub:
    """The hub with one user's token; None for the variable HF_TOKEN or the login of this machine."""

    token: str | None = field(default=None, repr=False)
    secrets: Sequence[str] = field(default=(), repr=False)

    @property
    def endpoint(self) -> str:
        """URL of the hub."""
        return str(self._api().endpoint)

    def page(self, space: str) -> str:
        """URL of the Space's page."""
        return f"{self.endpoint}/spaces/{space}"

    def user(self) -> str:
        """Owner of the token. Raises SpaceError without a token, or if it is read-only."""
        api = self._api()
        with self._translated("use", "the token"):
            found: dict[str, Any] = api.whoami()
        role = ((found.get("auth") or {}).get("accessToken") or {}).get("role")
        if role == "read":
            raise SpaceError(
                "the token may only read: make one that may write at"
                f" {api.endpoint}/settings/tokens and log in with it, or set HF_TOKEN"
            )
        return str(found.get("name", ""))

    def create(self, space: str, *, private: bool) -> None:
        """Create the Space unless it exists."""
        with self._translated("create", space):
            self._api().create_repo(
                space, repo_type=_TYPE, space_sdk="docker", private=private or None, exist_ok=True
            )

    def look(self, space: str) -> Remote:
        """Current state of the Space on the hub."""
        with self._translated("read", space):
            info = self._api().space_info(space)
        runtime = getattr(info, "runtime", None)
        return Remote(
            files=frozenset(each.rfilename for each in info.siblings or ()),
            commit=info.sha,
            url=getattr(info, "host", None) or None,
            private=info.private,
            hardware=str(value) if (value := getattr(runtime, "requested_hardware", None)) else None,
        )

    def set_secret(self, space: str, name: str, value: str) -> None:
        with self._translated(f"set the secret {name} of", space):
            self._api().add_space_secret(space, name, value)

    def set_variable(self, space: str, name: str, value: str) -> None:
        with self._translated(f"set the variable {name} of", space):
            self._api().add_space_variable(space, name, value)

    def set_hardware(self, space: str, hardware: str) -> None:
        with self._translated(f"take the hardware {hardware} for", space):
            self._api().request_space_hardware(space, hardware)

    def commit(self, space: str, files: Mapping[str, Path], gone: Sequence[str], message: str) -> str:
        """Add and delete files in one commit; returns the id of the last commit."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete  # the extra

        api = self._api()
        adds = [
            CommitOperationAdd(path_in_repo=path, path_or_fileobj=str(file)) for path, file in files.items()
        ]
        deletes = [CommitOperationDelete(path_in_repo=path) for path in gone]
        with self._translated("upload to", space):
            # Not upload_folder: recent releases split it into several commits, each of which is built. The
            # upload before the commit ignores a .gitignore in the Space, which could exclude the wheel.
            api.preupload_lfs_files(
                space, additions=adds, repo_type=_TYPE, free_memory=False, gitignore_content=_NOTHING_IGNORED
            )
            done = api.create_commit(space, [*deletes, *adds], commit_message=message, repo_type=_TYPE)
        return str(done.oid)

    def runtime(self, space: str) -> Runtime:
        with self._translated("ask for the state of", space):
            found = self._api().get_space_runtime(space)
        raw = found.raw
        stage = getattr(found.stage, "value", found.stage)
        return Runtime(str(stage), raw.get("sha"), self._hidden(str(raw.get("errorMessage") or "")))

    def log(self, space: str, *, build: bool) -> list[str]:
        """The last lines of the build log or the server log; empty if the hub provides none."""
        fetch = getattr(self._api(), "fetch_space_logs", None)  # not in older releases
        if fetch is None:
            return []
        lines: list[str] = []
        try:
            with self._translated("read the log of", space):
                lines.extend(islice(fetch(space, build=build), 10_000))
        except SpaceError:
            return []  # the failure itself is reported anyway
        return [self._hidden(line.rstrip("\n")) for line in lines][-_LOG_LINES:]

    def _api(self) -> Any:
        try:
            import huggingface_hub as hub  # the extra
            from huggingface_hub.utils import disable_progress_bars
        except ImportError as exc:
            raise SpaceError(
                "the package huggingface_hub is missing: pip install 'orsay[hub]'; or write the folder with"
                " --dry-run and upload it by hand"
            ) from exc
        disable_progress_bars()
        return hub.HfApi(token=self.token, library_name="orsay")

    def _hidden(self, text: str) -> str:
        return Redactor([self.token, *self.secrets], mask="[hidden]").plain(text)

    @contextlib.contextmanager
    def _translated(self, what: str, of: str) -> Iterator[None]:
        from huggingface_hub import errors  # the extra

        try:
            yield
        except errors.LocalTokenNotFoundError as exc:
            raise SpaceError(
                "not logged in to the hub: run `hf auth login`, or set HF_TOKEN to a token that may write"
            ) from exc
        except errors.HfHubHTTPError as exc:
            raise SpaceError(self._hidden(_refusal(exc, what, of))) from None  # its chain shows the request
        except (
            ValueError,
            RuntimeError,
        ) as exc:  # a name or a front matter it refuses; a file it cannot send
            raise SpaceError(self._hidden(f"cannot {what} {of}: {exc}")) from None
        except Exception as exc:
            if getattr(getattr(exc, "response", None), "status_code", None):  # older releases, of a token
                raise SpaceError(self._hidden(_refusal(exc, what, of))) from None
            if not isinstance(exc, OSError) and type(exc).__module__.partition(".")[0] not in _LIBRARIES:
                raise
            reason = self._hidden(str(exc) or type(exc).__name__)
            raise SpaceError(
                f"cannot {what} {of}: the hub does not answer ({reason}); look at the network, at HF_ENDPOINT"
                " and the proxy variables, and push again"
            ) from None


def _refusal(error: Any, what: str, of: str) -> str:
    """Error text for a refusal of the hub, with the remedy."""
    status = error.response.status_code
    detail = (getattr(error, "server_message", None) or "").strip().rstrip(".") or str(
        error
    ).strip().splitlines()[0]
    hints = {
        401: "the token is wrong or has ended: run `hf auth login` again, or set HF_TOKEN anew",
        402: "the hub requires a paid plan for that; look at its page of prices, or at --hardware",
        403: "the token may not write there: is the owner your name or an organisation that lets you write,"
        " and is the token one that may write?",
        404: "the Space is not there, or the token may not see it",
        409: "something else is changing it; push again",
        429: "too many requests; wait a few minutes and push again",
    }
    hint = hints.get(status, "push again later" if status >= 500 else "fix that and push again")
    return f"cannot {what} {of}: {detail} ({status}); {hint}"
