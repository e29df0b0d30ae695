"""A PostgreSQL server of the tests: on a Unix socket, in a temporary folder, ended when the tests are."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "s3cret%word"
_QUOTED = "s3cret%25word"


class Postgres:
    """A cluster with one superuser, ``orsay``. It can be stopped and started again."""

    def __init__(self, folder: Path, user: str | None) -> None:
        self._folder = folder
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        (folder / "password").write_text(PASSWORD)
        if user is not None:
            shutil.chown(folder, user)
        self._run("initdb", "-D", str(folder / "data"), "-U", "orsay", "-A", "scram-sha-256",
                  f"--pwfile={folder / 'password'}", "-E", "UTF8", "--no-sync")  # fmt: skip

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=60, **self._as_user())

    def _as_user(self) -> dict[str, Any]:
        return {} if self._user is None else {"user": self._user, "group": self._user, "extra_groups": []}

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        import psycopg

        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["postgres", "-D", str(self._folder / "data"), "-k", str(self._folder), "-F",
                 "-c", "listen_addresses=", "-c", "shared_buffers=16MB", "-c", "max_connections=60"],
                stdout=log, stderr=log, **self._as_user(),
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres"), autocommit=True).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server without waiting for its clients; with SIGQUIT as if it had crashed."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def url(self, database: str) -> str:
        return f"postgresql://orsay:{_QUOTED}@/{database}?host={self._folder}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        self._databases += 1
        self.execute("postgres", f"CREATE DATABASE journal{self._databases}")
        return self.url(f"journal{self._databases}")

    def execute(self, database: str, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with (
            contextlib.closing(psycopg.connect(self.url(database), autocommit=True)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


def running_postgres() -> Iterator[Postgres]:
    """For a fixture. Skips where there is no PostgreSQL."""
    missing = [name for name in ("postgres", "initdb") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"PostgreSQL is not installed: no {missing[0]}")
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    user = None
    if os.getuid() == 0:  # which PostgreSQL refuses to run as
        user = next((name for name in ("postgres", "nobody") if _exists(name)), None)
        if user is None:
            pytest.skip("PostgreSQL does not run as root, and there is no other user")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: the path of a socket is at most 107 bytes
    try:
        server = Postgres(folder, user)
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _exists(user: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
