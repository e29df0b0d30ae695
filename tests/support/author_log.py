"""What author code of tests/support/environments.py writes down, and the gates that it waits for."""

from __future__ import annotations

from pathlib import Path

from .waiting import until

__all__ = ["Log"]


class Log:
    """What author code has noted, line by line; also gates that it may wait for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "log"

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().split("\n")[:-1] if self.path.exists() else []

    def count(self, line: str) -> int:
        return self.lines.count(line)

    async def has(self, line: str, times: int = 1) -> None:
        await until(lambda: self.count(line) >= times)

    def gate(self, name: str) -> str:
        return str(self._folder / f"gate-{name}")

    def open(self, name: str) -> None:
        Path(self.gate(name)).touch()
