"""Servers that are measured, and what a scrape of one says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay_client import AsyncClient, AsyncSession
from prometheus_client.parser import text_string_to_metric_families

from ..support.server_process import ServerProcess

__all__ = ["BENCH", "OTHER", "Figures", "play", "scrape", "session_of"]

BENCH = f"{Path(__file__).with_name('environments.py')}:Bench"
OTHER = f"{Path(__file__).with_name('environments.py')}:Other"


class Figures:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}

    def values(self, name: str, **labels: str) -> list[float]:
        """Of all samples of that name that have these labels."""
        return [
            sample.value
            for sample in self.samples
            if sample.name == name and all(sample.labels.get(key) == value for key, value in labels.items())
        ]

    def sum(self, name: str, **labels: str) -> float:
        found = self.values(name, **labels)
        assert found, f"no {name} with {labels}"
        return sum(found)

    def labels(self, name: str) -> list[Mapping[str, str]]:
        return [sample.labels for sample in self.samples if sample.name == name]


async def scrape(url: str, **headers: str) -> Figures:
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{url}/metrics", headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return Figures(answer.text)


@asynccontextmanager
async def session_of(
    process: ServerProcess | str, name: str = "bench", **options: Any
) -> AsyncIterator[AsyncSession]:
    """An open session of a client of ours."""
    url = process if isinstance(process, str) else process.url
    key = options.pop("api_key", None)
    async with (
        AsyncClient(url, api_key=key) as client,
        client.environment(name).session(split="train", index=0, **options) as session,
    ):
        yield session


async def play(url: str, **options: Any) -> None:
    """Two answers, one fault, one refusal, and the end of the session."""
    async with session_of(url, **options) as session:
        await session.call("add", {"one": 1, "two": 2})
        with pytest.raises(Exception, match="broken with"):
            await session.call("fail")
        with pytest.raises(Exception, match="no-such-tool"):
            await session.call("no-such-tool-5d1c")
        await session.call_terminal("bye")
