"""A PostgreSQL server for the time of a benchmark: in a temporary folder, on a Unix socket."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .processes import ProcessTree

__all__ = ["RunningPostgres", "is_there", "running_postgres"]

_START_LIMIT_S = 60.0


def is_there() -> bool:
    """True if PostgreSQL and its driver are installed."""
    with contextlib.suppress(ImportError):
        import psycopg  # optional

        return bool(psycopg.__version__) and all(shutil.which(name) for name in ("initdb", "postgres"))
    return False


class RunningPostgres:
    """``url`` names an empty database; ``tree`` is its processes."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder = folder
        self.tree = ProcessTree(pid)
        self._databases = 0

    def new_database(self) -> str:
        import psycopg  # optional

        self._databases += 1
        name = f"journal{self._databases}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql://orsay@/{database}?host={self._folder}"

    def wait_until_ready(self) -> None:
        import psycopg  # optional

        deadline = time.monotonic() + _START_LIMIT_S
        while True:
            try:
                psycopg.connect(self._url("postgres")).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@contextlib.contextmanager
def running_postgres() -> Iterator[RunningPostgres]:
    """Started, and stopped at the end; as another user where this one is root, which it refuses to be."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    account: dict[str, Any] = {}
    if os.getuid() == 0:
        user = "postgres" if any(each.pw_name == "postgres" for each in pwd.getpwall()) else "nobody"
        shutil.chown(folder, user)
        account = {"user": user, "group": user, "extra_groups": []}
    data = str(folder / "data")
    try:
        subprocess.run(
            ["initdb", "-D", data, "-U", "orsay", "-A", "trust"], check=True, capture_output=True, **account
        )
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                ["postgres", "-D", data, "-k", str(folder), "-c", "listen_addresses="],
                stdout=log, stderr=log, **account,
            )  # fmt: skip
        try:
            found = RunningPostgres(folder, process.pid)
            found.wait_until_ready()
            yield found
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(_START_LIMIT_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
