"""Text exposition of metrics, in the format that the scraper accepts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from .metrics import gather
from .observed import Observed

__all__ = ["Exposition"]


class _Families(CollectorRegistry):
    """Adapter from families to the registry that the encoders expect."""

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__()
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


class Exposition:
    """The metrics of a server, and those of its process: memory, CPU time, files, garbage collection."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def text(self, accept: str, names: Collection[str] = ()) -> tuple[bytes, str]:
        """Body and content type of a scrape: OpenMetrics if ``accept`` names it.

        With ``names``, only the series of these names.
        """
        families = [*await gather(self._observed), *self._process.collect()]
        if names:
            families = [only for family in families if (only := _restricted(family, names)) is not None]
        encode, kind = choose_encoder(accept)
        return encode(_Families(families)), kind


def _restricted(family: Metric, names: Collection[str]) -> Metric | None:
    samples = [sample for sample in family.samples if sample.name in names]
    if not samples:
        return None
    found = Metric(family.name, family.documentation, family.type, family.unit)
    found.samples = samples
    return found
