"""``orsay serve`` in processes of its own, with all that it writes."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .servers import ROOT, start
from .worker_template import is_template

__all__ = ["ENVIRONMENTS", "ServerProcess", "children", "is_running", "server", "variables_of"]

ENVIRONMENTS = str(ROOT / "tests" / "support" / "environments.py")
START_S = 60.0
_URL = re.compile(r"http://\S+:\d+")


def children(pid: int) -> list[int]:
    """Process ids of the children of ``pid``, without the template of its workers."""
    try:
        found = [
            Path(f"/proc/{pid}/task/{task}/children").read_text() for task in os.listdir(f"/proc/{pid}/task")
        ]
    except FileNotFoundError:
        return []
    return [int(each) for text in found for each in text.split() if not is_template(int(each))]


def is_running(pid: int) -> bool:
    """Alive, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _limit_open_files(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count // 2, count))


class ServerProcess:
    """``orsay serve`` in a process of its own, with all that it writes."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        *,
        drained: bool = True,
        folder: Path = ROOT,
        open_files: int | None = None,
        imported: Sequence[str] = (),
        verb: Sequence[str] = ("serve",),
    ) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ORSAY_")}
        (out, out_end), (log, log_end) = os.pipe(), os.pipe()
        self._streams = (os.fdopen(out, "rb"), os.fdopen(log, "rb"))
        try:
            self._process = start(
                [sys.executable, "-m", "orsay", *verb, *arguments],
                cwd=folder,
                env={**clean, "ORSAY_JOURNAL": "off", **env},
                stdout=out_end,
                stderr=log_end,
                start_new_session=True,
                preexec_fn=None if open_files is None else partial(_limit_open_files, open_files),
                imported=imported,
            )
        finally:
            os.close(out_end)
            os.close(log_end)
        os.set_blocking(log, False)
        self.pid = self._process.pid
        self.output: list[str] = []
        self._log: list[str] = []
        self._log_rest = b""
        self._log_lock = threading.Lock()
        self._drained = drained
        self._url = threading.Event()
        self.url = ""
        self._readers = [threading.Thread(target=self._read_output, daemon=True)]
        if drained:
            self._readers.append(threading.Thread(target=self._read_log, daemon=True))
        for reader in self._readers:
            reader.start()

    def _read_output(self) -> None:
        for line in self._streams[0]:
            self.output.append(line.decode())
            found = _URL.search(self.output[-1])
            if found:
                self.url = found.group()
                self._url.set()
        self._url.set()

    def _read_log(self) -> None:
        while self._take_log():
            select.select([self._streams[1]], [], [])

    def _take_log(self) -> bool:
        """Read what the pipe holds now; False after its end."""
        with self._log_lock:
            try:
                while chunk := os.read(self._streams[1].fileno(), 65536):
                    *lines, self._log_rest = (self._log_rest + chunk).split(b"\n")
                    self._log += [f"{line.decode()}\n" for line in lines]
            except BlockingIOError:
                return True
            if self._log_rest:
                self._log.append(self._log_rest.decode())
                self._log_rest = b""
            return False

    @property
    def log(self) -> list[str]:
        """All lines written so far; a line written before an answer is among them when the answer is read."""
        if self._drained and not self._streams[1].closed:
            self._take_log()
        return list(self._log)

    def wait_for_url(self) -> None:
        if not self._url.wait(START_S) or not self.url:
            code = self.end()
            raise RuntimeError(f"no URL; exit code {code}; {self.everything}")

    @property
    def everything(self) -> str:
        """All that was written, to either stream."""
        return "".join(self.output + self.log)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines of that event."""
        lines = [json.loads(line) for line in self.log if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout_s: float = 40.0) -> int:
        """The exit code; the output is complete then."""
        code = self._process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    def end(self) -> int:
        """Stop it if it still runs, and let nothing live on."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self.wait(20)
        finally:
            for stream in self._streams:
                stream.close()

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def variables_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables of settings by their names."""
    return {
        f"ORSAY_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
    }


@contextmanager
def server(
    *targets: str,
    options: Sequence[str] = (),
    drained: bool = True,
    open_files: int | None = None,
    imported: Sequence[str] = (),
    **settings: Any,
) -> Iterator[ServerProcess]:
    """A running server with one worker.

    ``settings`` by their names, given as variables; ``open_files``: at most so many; ``imported``: as in
    ``start``.
    """
    if not targets:
        targets = (f"{ENVIRONMENTS}:Scripted", f"{ENVIRONMENTS}:AsyncScripted", f"{ENVIRONMENTS}:Plain")
    process = ServerProcess(
        ["--port", "0", *targets, *options],
        {"ORSAY_WORKERS": "1", **variables_of(settings)},
        drained=drained,
        open_files=open_files,
        imported=imported,
    )
    try:
        process.wait_for_url()
        yield process
    finally:
        process.end()
