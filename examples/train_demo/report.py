"""Report of a run: report.json for programs, report.md for readers, and the curve as reward.png."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .evaluation import Evaluation

__all__ = ["BEGIN_BELOW", "REACH", "Batch", "Report", "write"]

BEGIN_BELOW, REACH = 0.45, 0.8
"""A run shows learning when its first batch is below the one, and its end at or above the other."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of episodes and what was learned from it."""

    reward: float
    seconds: float
    environment_share: float
    """Spent waiting for the environment: of the batch's time; by rollout function, of an episode's."""


@dataclass(slots=True)
class Report:
    """One run."""

    seed: int
    path: str
    model_parameters: int
    versions: dict[str, str]
    warm_up_episodes: int
    warm_up_steps: int
    optimizer_steps: int
    episodes_per_batch: int
    warm_up_loss: list[float] = field(default_factory=list)
    """Loss at the first and at the last step."""
    batches: list[Batch] = field(default_factory=list)
    held_out_before: Evaluation | None = None
    held_out_after: Evaluation | None = None
    parity: float | None = None
    """Largest |logprob of the sampler - logprob of the trainer| in the run; by rollout function only."""
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    """CPU time of the trainer and of its servers."""

    @property
    def first_batch(self) -> float:
        return self.batches[0].reward

    @property
    def last_five(self) -> float:
        """Mean reward of the last five batches."""
        last = self.batches[-5:]
        return sum(batch.reward for batch in last) / len(last)

    @property
    def environment_share(self) -> float:
        """Mean over the batches; see ``Batch``."""
        return sum(batch.environment_share for batch in self.batches) / len(self.batches)

    @property
    def learned(self) -> bool:
        """True if the run shows that the model learned."""
        assert self.held_out_after is not None
        reached = min(self.held_out_after.reward, self.last_five) >= REACH
        return self.first_batch < BEGIN_BELOW and reached

    def to_json(self) -> str:
        """All fields, and the metrics that follow from them."""
        derived = ("first_batch", "last_five", "environment_share", "learned")
        return json.dumps(asdict(self) | {name: getattr(self, name) for name in derived}, indent=2) + "\n"

    def rows(self) -> list[tuple[str, str]]:
        """The metrics in words."""
        assert self.held_out_before is not None
        assert self.held_out_after is not None
        before, after = self.held_out_before, self.held_out_after
        return [
            (
                "held-out reward before",
                f"{before.reward:.3f} ({before.won} of {before.episodes} episodes won)",
            ),
            ("held-out reward after", f"{after.reward:.3f} ({after.won} of {after.episodes} episodes won)"),
            ("reward of the first batch", f"{self.first_batch:.3f}"),
            ("mean of the last five batches", f"{self.last_five:.3f}"),
            ("share of time in the environment", f"{self.environment_share:.1%}"),
            ("seconds", ", ".join(f"{name} {value:.0f}" for name, value in self.seconds.items())),
            ("CPU seconds", f"{self.cpu_seconds:.0f}"),
        ] + ([("largest difference of logprobs", f"{self.parity:.1e}")] if self.parity is not None else [])


def write(report: Report, folder: Path) -> None:
    """Write the three files into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(report.to_json())
    (folder / "report.md").write_text(_markdown(report))
    _plot(report, folder / "reward.png")


def _markdown(report: Report) -> str:
    verdict = "The model learned" if report.learned else "This run does not show that the model learned"
    lines = [
        f"# Doors, seed {report.seed}, by `{report.path}`",
        "",
        f"{verdict}: a run shows it when the first batch is below {BEGIN_BELOW}, and both the held-out "
        f"reward and the mean of the last five batches are {REACH} or more.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in report.rows()),
        f"| model | {report.model_parameters:,} parameters |",
        f"| warm-up | {report.warm_up_episodes} scripted episodes, {report.warm_up_steps} steps |",
        f"| training | {report.optimizer_steps} optimizer steps, {len(report.batches)} batches of "
        f"{report.episodes_per_batch} episodes |",
        f"| versions | {', '.join(f'{name} {version}' for name, version in report.versions.items())} |",
        "",
        "![reward](reward.png)",
        "",
        "| batch | reward | seconds | in the environment |",
        "|---|---|---|---|",
        *(
            f"| {number} | {batch.reward:.3f} | {batch.seconds:.1f} | {batch.environment_share:.1%} |"
            for number, batch in enumerate(report.batches, 1)
        ),
    ]
    return "\n".join(lines) + "\n"


def _plot(report: Report, path: Path) -> None:
    from matplotlib.figure import Figure  # the extra 'demo'

    assert report.held_out_before is not None
    assert report.held_out_after is not None
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    numbers = range(1, len(report.batches) + 1)
    axes.plot(
        numbers,
        [batch.reward for batch in report.batches],
        marker="o",
        markersize=3,
        label="training batches",
    )
    ends = [(1, report.held_out_before.reward), (len(report.batches), report.held_out_after.reward)]
    axes.plot(*zip(*ends, strict=True), "D", color="tab:orange", label="held-out tasks, before and after")
    axes.axhline(REACH, linestyle=":", color="gray")
    axes.set(
        xlabel="batch", ylabel="reward", ylim=(0, 1.05), title=f"doors, seed {report.seed}, {report.path}"
    )
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
