"""All settings of the server, from arguments and environment variables; ``config`` adds a file.

Each field is also a variable ``ORSAY_<FIELD>``; arguments win over variables.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = [
    "OTHER_PROTOCOLS",
    "HashSeed",
    "RuntimeName",
    "Settings",
    "available_cores",
    "check_journal",
    "hash_seed_of_process",
    "named_variable",
    "otel_variables",
    "read_keys",
    "sandboxes_url",
    "set_variables",
    "shown_journal",
]

RuntimeName = Literal["process", "local", "docker", "remote"]
HashSeed: TypeAlias = Annotated[int, Field(ge=0, le=2**32 - 1)] | Literal["random"]
"""Hash seed in the form of PYTHONHASHSEED."""
OTHER_PROTOCOLS = ("openenv", "mcp")
_MIB = 1024 * 1024
_LOOPBACK = ("localhost", "::1")
_CREDENTIALS = re.compile(r"(?<=://).*@")  # greedy: an @ in the password may be unescaped
_PASSWORD = re.compile(r"(?<=password=)[^&]*")

_HOST = re.compile(r"\*|(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\*\.)?[A-Za-z0-9_.:\[\]-]*[A-Za-z0-9_\]]")


def available_cores() -> int:
    """Cores available to this process: its affinity, limited by the CPU quota of its cgroup."""
    cores = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for quota in (_quota_v2(), _quota_v1()):
        if quota is not None:
            cores = min(cores, quota)
    return max(1, math.ceil(cores))


def _quota_v2() -> float | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _quota_v1() -> float | None:
    folder = Path("/sys/fs/cgroup/cpu")
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        return None if quota <= 0 else quota / int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None


def hash_seed_of_process() -> int | None:
    """PYTHONHASHSEED of this process; None if random."""
    seed = os.environ.get("PYTHONHASHSEED", "")
    return int(seed) if seed.isdecimal() else None


def set_variables(variables: Mapping[str, str]) -> None:
    """Set environment variables of this process, for code that runs in it."""
    os.environ.update(variables)


def named_variable(name: str) -> str | None:
    """A variable that the user names on the command line."""
    return os.environ.get(name)


SANDBOXES_URL = "ORSAY_SANDBOXES_URL"
"""Environment variable with the address of the server's sandboxes, for code that it hosts."""


def sandboxes_url() -> str:
    """Address of the sandboxes of the server that hosts this code; empty without one."""
    return os.environ.get(SANDBOXES_URL, "")


def otel_variables() -> dict[str, str]:
    """Standard variables of OpenTelemetry."""
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}


def read_keys(path: Path) -> tuple[SecretStr, ...]:
    """Keys of a file, one a line, without empty lines and comments (#). Raises ValueError."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").split("\n")]
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is no text"
        raise ValueError(f"the file of API keys {path} cannot be read: {reason}") from None
    found = tuple(SecretStr(line) for line in lines if line and not line.startswith("#"))
    if not found:
        raise ValueError(f"the file of API keys {path} has none: write one a line")
    return found


def _listed(text: str | None) -> tuple[str, ...]:
    """Items of a comma-separated list."""
    return tuple(each.strip() for each in (text or "").split(",") if each.strip())


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_journal(location: str) -> str:
    """Validate ``location`` for the setting ``journal``. Raises ValueError, without a password."""
    kind, separator, rest = location.partition("://")
    if not separator:
        if location.strip():
            return location
        raise ValueError("name a file, or use auto or off")
    if kind == "sqlite":
        if len(rest) > 1 and rest != "/:memory:":
            return location
        raise ValueError("name a file, such as sqlite:///journal.db; to keep nothing, use off")
    if kind not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise ValueError(
            f"{kind!r} is no kind of journal; there are: a path, sqlite:///PATH and"
            " postgresql://USER:PASSWORD@HOST/NAME, auto and off"
        )
    try:
        parts = urlsplit(location)
        readable = parts.port != 0 and "@" not in parts.path and parts.netloc.count("@") < 2
    except ValueError:
        readable = False
    if not readable:
        raise ValueError(
            "this URL cannot be read; write postgresql://USER:PASSWORD@HOST:PORT/NAME,"
            " with %40 for an @ and %2F for a / in the password"
        )
    if not parts.path.strip("/"):
        raise ValueError(f"{shown_journal(location)} names no database; write postgresql://USER@HOST/NAME")
    return location


def shown_journal(location: str) -> str:
    """The setting ``journal`` without user and password."""
    return _PASSWORD.sub("***", _CREDENTIALS.sub("***@", location))


class Settings(BaseSettings):
    """Effective settings. Times are seconds, sizes are bytes unless the name says otherwise."""

    model_config = SettingsConfigDict(env_prefix="ORSAY_", extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535, description="0 takes any free port")
    runtime: RuntimeName = "process"
    workers: int = Field(default_factory=available_cores, ge=1, description="worker processes")
    also: str | None = Field(None, description="other protocols to serve: openenv, mcp, or both with a comma")

    api_keys: tuple[SecretStr, ...] = Field((), description="JSON list in the variable; empty: no keys")
    api_keys_file: Path | None = Field(None, description="more keys, one a line")
    allow_anonymous: bool = Field(False, description="bind wider than loopback although there are no keys")
    allowed_hosts: str | None = Field(
        None,
        description="without keys: more names of this server, separated by commas; *: any",
    )
    allowed_origins: str | None = Field(
        None,
        description="without keys: foreign web pages that may use this server, separated by commas; *: any",
    )
    console: Literal["auto", "on", "off"] = Field(
        "auto", description="the page at /console; auto: on loopback, and on servers with keys"
    )
    metrics: bool = Field(True, description="serve metrics at /metrics, for Prometheus")
    index_only: bool = Field(False, description="tasks by split and index only; specs stay on the server")
    error_detail: Literal["auto", "exception", "id"] = Field(
        "auto", description="how much of an exception clients read; auto: its text on loopback, else an id"
    )

    server_name: str | None = Field(
        None, description="identifies the containers of this server; by default made of host and port"
    )
    trusted_proxies: str = Field(
        "127.0.0.1,::1",
        description="addresses and networks whose X-Forwarded headers are trusted; *: any; empty: none",
    )
    keep_alive_s: int = Field(
        75, ge=1, description="an idle connection is kept this long: longer than by a proxy in front"
    )
    head_time_limit_s: float = Field(
        20,
        gt=0,
        description="from the start of a connection, or the first byte of a request, to the end of its head",
    )
    transfer_time_limit_s: float = Field(
        60, gt=0, description="time in which a body or an answer must advance by 256 KiB, or end"
    )
    max_connections: int | None = Field(
        None, ge=1, description="beyond it, 503; by default bounded by the limit of open files"
    )

    max_sessions: int = Field(50_000, ge=1)
    max_sessions_per_key: int | None = Field(
        None, ge=1, description="by default half, if there are several keys"
    )
    max_calls: int = Field(10_000, ge=1, description="calls in flight")
    max_calls_per_key: int | None = Field(
        None, ge=1, description="by default half, if there are several keys"
    )
    max_body_bytes: int = Field(32 * _MIB, ge=1024)
    max_result_bytes: int = Field(64 * _MIB, ge=1024)
    threads_per_worker: int = Field(1_000, ge=1, description="synchronous author code at once, per process")

    stored_results_per_session: int = Field(64, ge=1)
    stored_bytes_per_session: int = Field(64 * _MIB, ge=1024)
    stored_bytes: int = Field(512 * _MIB, ge=1024, description="stored results of all sessions together")
    stored_age_s: float = Field(900, gt=0)

    idle_limit_s: float = Field(900, gt=0)
    lifetime_limit_s: float = Field(86_400, gt=0)
    call_time_limit_s: float = Field(1_800, gt=0)
    setup_time_limit_s: float = Field(900, gt=0)
    teardown_time_limit_s: float = Field(30, gt=0)
    client_grace_s: float = Field(60, ge=0, description="a call outlives its client's connection this long")
    shutdown_grace_s: float = Field(30, ge=0)
    gone_memory_s: float = Field(
        900, gt=0, description="a session that is gone answers 410 this long, then 404"
    )
    setup_wait_s: float = Field(25, gt=0, description="how long one request waits for setup")
    load_wait_s: float = Field(
        4, ge=0, description="how long one request waits for environments or journal while the server starts"
    )
    stream_after_s: float = Field(
        0.02, ge=0, description="a call whose tool runs longer is answered as a stream"
    )
    stream_ping_s: float = Field(10, gt=0, description="time between comments on an open stream")

    worker_memory_limit_mib: int | None = Field(None, ge=32, description="above it, no new sessions")
    worker_session_limit: int | None = Field(None, ge=1, description="replaced after this number of sessions")
    sessions_per_worker: int | None = Field(
        None, ge=1, description="workers are added as sessions come; 1: a process for each session"
    )
    max_workers: int = Field(64, ge=1, description="with sessions_per_worker: no more processes than this")
    worker_start_limit_s: float = Field(120, gt=0)
    worker_stall_s: float = Field(2, gt=0, description="silence after which a worker counts as blocked")

    hash_seed: HashSeed = Field(
        0, description="PYTHONHASHSEED of workers and containers: sets of strings have one order; or random"
    )

    journal: str = Field(
        "auto",
        repr=False,  # a URL may hold a password
        description="auto: .orsay/journal.db; off; a path; sqlite:///PATH; postgresql://USER@HOST/NAME",
    )
    journal_durability: Literal["process", "fsync"] = Field(
        "process", description="what a recorded result survives: the server's death, or power loss too"
    )
    journal_required: bool = Field(
        False, description="refuse sessions and calls while the journal cannot be written"
    )
    journal_max_age_days: float | None = Field(None, gt=0, description="older sessions are removed")
    journal_max_sessions: int | None = Field(None, ge=1, description="beyond them, the oldest are removed")
    journal_max_bytes: int = Field(
        10 * 1024 * _MIB, ge=0, description="beyond it, the oldest sessions are removed; 0: no bound"
    )

    sandboxes_backend: Literal["off", "auto", "docker", "bubblewrap"] = Field(
        "auto", description="where sandboxes run; one that is named is also there for openreward environments"
    )
    sandboxes_image: str = Field(
        "", description="image of sandboxes for which code names none; empty: the back end's own"
    )
    sandboxes_images: dict[str, str] = Field(
        {}, description="images by the exact reference that environment code asks for"
    )
    sandboxes_data: dict[str, Path] = Field(
        {}, description="folders by the name of an environment, for its buckets"
    )
    sandboxes_data_path: str = Field(
        "/orwd_data", description="where the code of an environment itself sees its folder of data"
    )
    sandboxes_address: str | None = Field(
        None,
        pattern=r"^https?://[^/\s]+$",
        description="URL at which containers with sandboxes = true reach this server",
    )
    sandboxes_pull: Literal["missing", "always", "never"] = Field(
        "missing", description="when an image is pulled for a sandbox"
    )
    sandboxes_reach_machine: bool = Field(
        False, description="whether sandboxes with an open network reach the engine's own machine"
    )
    sandboxes_max: int = Field(64, ge=1, description="sandboxes at once; more wait for room")
    sandboxes_max_per_key: int | None = Field(None, ge=1, description="of one key at once, or of one session")
    sandboxes_idle_limit_s: float = Field(120, gt=0, description="a sandbox that nobody uses ends after it")
    sandboxes_warm: int = Field(
        2, ge=0, description="sandboxes of a kind that is in use to make ahead, at most; 0: none"
    )
    sandboxes_disk: str = Field(
        "10g",
        pattern=r"^(0|\d+(\.\d+)?[kmgtKMGT])$",
        description="disk of a sandbox for which none is asked; 0: no limit",
    )
    sandboxes_lease_s: float = Field(
        60, ge=3, description="a sandbox that hears nothing of its server ends after it"
    )

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"

    _keys_of_file: tuple[SecretStr, ...] = PrivateAttr(())  # read once, not for each request

    @property
    def keys(self) -> tuple[SecretStr, ...]:
        """All keys that are accepted."""
        return self.api_keys + self._keys_of_file

    @property
    def sessions_per_key(self) -> int | None:
        """Limit of sessions of one key; None without a limit."""
        return self.max_sessions_per_key or self._share(self.max_sessions)

    @property
    def calls_per_key(self) -> int | None:
        """Limit of running calls of one key; None without a limit."""
        return self.max_calls_per_key or self._share(self.max_calls)

    def _share(self, all_of_them: int) -> int | None:
        """Half of a limit if there are several keys, so that one key cannot use all of it."""
        several = len({key.get_secret_value() for key in self.keys}) > 1
        return max(1, all_of_them // 2) if several else None

    @property
    def other_protocols(self) -> tuple[str, ...]:
        """Protocols that ``also`` names."""
        return _listed(self.also)

    @property
    def own_names(self) -> tuple[str, ...]:
        """Host names of this server besides loopback: configured ones, the machine's, a Space's."""
        found = (
            self.host,
            socket.gethostname(),
            os.environ.get("SPACE_HOST", ""),
            *_listed(self.allowed_hosts),
        )
        return tuple(name for name in found if name)

    @property
    def page_origins(self) -> tuple[str, ...]:
        """Origins that ``allowed_origins`` lists."""
        return _listed(self.allowed_origins)

    @property
    def framers(self) -> tuple[str, ...]:
        """Origins that may embed this server's pages in a frame: the hub, for a Space."""
        return ("https://huggingface.co",) if os.environ.get("SPACE_HOST") else ()

    @property
    def loopback(self) -> bool:
        return self.host in _LOOPBACK or self.host.startswith("127.")

    @property
    def open_to_anyone(self) -> bool:
        """True if other machines have access without a key."""
        return not self.loopback and not self.keys

    @property
    def shows_console(self) -> bool:
        """True with a console; by default False if the server is open to anyone."""
        return self.console == "on" or (self.console == "auto" and not self.open_to_anyone)

    @property
    def shows_exceptions(self) -> bool:
        """True if clients get the text of an exception, False if they get an id."""
        return self.error_detail == "exception" or (self.error_detail == "auto" and self.loopback)

    def updated(self, new: Settings, names: Iterable[str]) -> Settings:
        """These settings with the values of ``new`` for ``names``; keys in a file are read again.

        Raises ValueError if that would open the server to anyone.
        """
        found = self.model_copy(update={name: getattr(new, name) for name in names})
        found._check_keys()
        return found

    @field_validator("also")
    @classmethod
    def _known_protocols(cls, also: str | None) -> str | None:
        names = [name.strip() for name in (also or "").split(",")] if also else []
        unknown = [name for name in names if name not in OTHER_PROTOCOLS]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is no protocol that a server speaks beside ORS;"
                f" there are: {', '.join(OTHER_PROTOCOLS)}"
            )
        return also

    @field_validator("allowed_hosts")
    @classmethod
    def _names_of_hosts(cls, hosts: str | None) -> str | None:
        for each in _listed(hosts):
            if not _HOST.fullmatch(each) and not _is_address(each):
                raise ValueError(
                    f"{each!r} is no name of a host: write names without scheme and port, such as"
                    " orsay.example.org or *.example.org, with commas between, or * for any"
                )
        return hosts

    @field_validator("allowed_origins")
    @classmethod
    def _origins_of_pages(cls, origins: str | None) -> str | None:
        for each in _listed(origins):
            if each not in ("*", "null") and not _ORIGIN.fullmatch(each):
                raise ValueError(
                    f"{each!r} is no origin of a page: write scheme, host and port without a path, such as"
                    " https://app.example.org:8443 or https://*.example.org, with commas between; * is any"
                )
        return origins

    @field_validator("sandboxes_data_path")
    @classmethod
    def _below_the_root(cls, path: str) -> str:
        if not path.startswith("/") or os.path.normpath(path) == "/" or ".." in path.split("/"):
            raise ValueError("must be an absolute path below /, such as /orwd_data")
        return os.path.normpath(path)

    @field_validator("hash_seed", mode="before")
    @classmethod
    def _seed_or_random(cls, seed: object) -> object:
        if seed != "random" and not str(seed).isdecimal():
            raise ValueError('must be a whole number from 0 to 4294967295, or "random"')
        return seed

    @field_validator("journal")
    @classmethod
    def _known_journal(cls, journal: str) -> str:
        return check_journal(journal)

    @field_validator("trusted_proxies")
    @classmethod
    def _known_addresses(cls, proxies: str) -> str:
        for each in proxies.split(",") if proxies.strip() not in ("", "*") else ():
            try:
                ipaddress.ip_network(each.strip())
            except ValueError as exc:
                raise ValueError(
                    f"{exc}; name addresses and networks of proxies with commas between, such as"
                    " 10.0.0.7,10.1.0.0/16, or * for any"
                ) from None
        return proxies.strip()

    @model_validator(mode="after")
    def _keys_or_loopback(self) -> Settings:
        self._check_keys()
        return self

    def _check_keys(self) -> None:
        self._keys_of_file = () if self.api_keys_file is None else read_keys(self.api_keys_file)
        if self.open_to_anyone and not self.allow_anonymous:
            raise ValueError(
                f"binding to {self.host} without API keys would let anyone in: set ORSAY_API_KEYS or"
                " --api-key, or use --allow-anonymous if that is what you want"
            )
