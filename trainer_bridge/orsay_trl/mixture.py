"""Several environments in one run: rows of all, each played in its own environment."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from . import slots
from .play.environment import LiveEnvironment
from .play.episode import Episode
from .trainer.environment import EnvironmentFactory

if TYPE_CHECKING:
    from transformers import TrainerCallback

__all__ = ["Member", "Mixture"]


class Member(Protocol):
    """One environment of a mixture: an ``EnvironmentSpec``."""

    @property
    def live(self) -> LiveEnvironment: ...
    @property
    def class_name(self) -> str: ...
    @property
    def environment_factory(self) -> EnvironmentFactory: ...
    def columns(self, which: slots.Part) -> dict[str, list[Any]]: ...
    def close(self) -> None: ...


class Mixture:
    """Product of ``EnvironmentSpec.combine``; has the properties of a spec that a trainer takes.

    TRL selects each row's environment by the column ``environment``, and shows the model only the tools of
    that one. Rows are shuffled by ``seed``. With ``weights`` the rows of each environment are repeated or
    dropped to reach its share, for the same total. The metrics of each environment are logged under
    ``env/<name>/``.

    Raises ValueError for no spec, duplicate names, or invalid weights.
    """

    def __init__(
        self,
        specs: Sequence[Member],
        *,
        names: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        seed: int = 0,
    ) -> None:
        if not specs:
            raise ValueError("combine() needs at least one spec")
        self.names = list(names) if names is not None else [_name(spec) for spec in specs]
        if len(self.names) != len(specs) or len(set(self.names)) != len(self.names):
            raise ValueError(f"each spec needs a name of its own, and these are {self.names}: give names=[…]")
        if weights is not None and (len(weights) != len(specs) or min(weights) < 0 or sum(weights) <= 0):
            raise ValueError("weights has one number for each spec, none below 0 and not all of them 0")
        self.specs = dict(zip(self.names, specs, strict=True))
        self._weights = None if weights is None else [weight / sum(weights) for weight in weights]
        self._seed = seed
        for name, spec in self.specs.items():
            spec.live.metrics_prefix = f"env/{name}/"
            if spec.live is not specs[0].live:
                spec.live.follow(specs[0].live)

    train_dataset = cached_property(slots.train_dataset)
    eval_dataset = cached_property(slots.eval_dataset)
    rollout_dataset = cached_property(slots.rollout_dataset)
    rollout_eval_dataset = cached_property(slots.rollout_eval_dataset)
    reward_funcs = property(slots.reward_funcs)
    group_reward = property(slots.group_reward)

    @cached_property
    def environment_factory(self) -> dict[str, EnvironmentFactory]:
        """Factories by name, TRL's form for several environments."""
        return {name: spec.environment_factory for name, spec in self.specs.items()}

    def callback(self) -> TrainerCallback:
        """Callback that labels sessions with the step, and ends them when training ends."""
        return slots.callback(self)

    def members(self) -> Sequence[LiveEnvironment]:
        """The environments that were combined."""
        return [spec.live for spec in self.specs.values()]

    def member(self, row: Mapping[str, Any]) -> LiveEnvironment:
        """The environment that the row names."""
        return self.specs[str(row["environment"])].live

    def episode(self, row: Mapping[str, Any]) -> Episode:
        """Episode of a row, in the environment that the row names."""
        return self.member(row).episode(row)

    def close(self) -> None:
        """Close all specs."""
        for spec in reversed(self.specs.values()):
            spec.close()

    def columns(self, which: slots.Part) -> dict[str, list[Any]]:
        """Columns of all environments, with ``environment``; a field that a task lacks is None.

        The weights count for ``train`` alone.
        """
        tables = {name: spec.columns(which) for name, spec in self.specs.items()}
        counts = {name: len(table["prompt"]) for name, table in tables.items()}
        picks = [(name, row) for name, count in counts.items() for row in range(count)]
        draw = random.Random(self._seed)
        if which == "train":
            if self._weights is not None:
                picks = self._weighted(counts, draw)
            draw.shuffle(picks)
        keys = list(dict.fromkeys(key for table in tables.values() for key in table))
        found: dict[str, list[Any]] = {"environment": [name for name, _ in picks]}
        for key in keys:
            found[key] = [tables[name][key][row] if key in tables[name] else None for name, row in picks]
        return found

    def _weighted(self, counts: Mapping[str, int], draw: random.Random) -> list[tuple[str, int]]:
        assert self._weights is not None
        total = sum(counts.values())
        picks = []
        for (name, count), weight in zip(counts.items(), self._weights, strict=True):
            wanted = round(total * weight)
            whole, rest = divmod(wanted, count)
            rows = list(range(count)) * whole + draw.sample(range(count), rest)
            picks += [(name, row) for row in rows]
        return picks


def _name(spec: Member) -> str:
    return spec.class_name.removeprefix("Environment_")
