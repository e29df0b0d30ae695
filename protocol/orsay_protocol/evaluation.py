"""The report of an evaluation: its episodes and their summary.

Written as JSON by ``orsay eval``, and sent to the server's journal. A reader ignores unknown fields, so that
an older server accepts the report of a newer client.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

__all__ = [
    "Estimate",
    "EvaluatedEpisode",
    "EvaluationReport",
    "EvaluationSummary",
    "PassAtK",
    "Quantiles",
    "TokenCounts",
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Estimate(_Part):
    """A mean with its 95% confidence interval, clustered by task.

    The bounds are None where they cannot be estimated, as with a single task.
    """

    mean: FiniteFloat
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None


class PassAtK(Estimate):
    """The share of tasks that at least one of ``k`` attempts solves, as ``mean``."""

    k: int = Field(ge=1)


class Quantiles(_Part):
    """Distribution of a metric."""

    mean: FiniteFloat
    p50: FiniteFloat
    p95: FiniteFloat
    max: FiniteFloat


class TokenCounts(_Part):
    """Tokens as the model's endpoint counted them; 0 where it counts none."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Tokens of ``input`` that were read from the endpoint's cache."""
    reasoning: int = 0
    """Tokens of ``output`` that are reasoning, which is not shown."""


class EvaluatedEpisode(_Part):
    """One attempt at one task. An episode with a ``fault`` has no reward and takes part in no mean."""

    task: str
    """``split:index``; the same text for the same task in every report."""
    split: str
    index: int
    attempt: int = Field(ge=0)
    """Number of the attempt, from 0 to ``k - 1``."""
    reward: FiniteFloat | None = None
    """Reward of the episode: that of the calls, combined by the evaluation's policy."""
    reward_sum: FiniteFloat | None = None
    rewards: list[FiniteFloat] = Field(default_factory=list)
    """Rewards of the calls that were scored, in order."""
    finished: bool = False
    """True if the environment finished the episode."""
    success: bool | None = None
    fault: str | None = None
    """Class of the fault that ended the last of its tries, of the environment or of the model's endpoint."""
    fault_message: str = ""
    retried: list[str] = Field(default_factory=list)
    """Classes of the faults after which the episode was played again from its start."""
    stop: str = ""
    """Reason of the end: finished, no_tool_call, max_turns, length, fault, ..."""
    turns: int = 0
    """Answers of the model, or of the policy."""
    calls: int = 0
    refused: int = 0
    """Calls that the environment refused, or whose arguments were no JSON."""
    tokens: TokenCounts = TokenCounts()
    seconds: FiniteFloat = 0.0
    """Duration from the request for a session to the last result, retried faults included."""
    model_seconds: FiniteFloat = 0.0
    """Part of ``seconds`` spent waiting for the model."""
    started_at: FiniteFloat = 0.0
    sid: str = ""
    """The session's id on the server."""
    rollout: str = ""
    """The label ``rollout`` of its session."""
    trace: str = ""
    """W3C trace id, 32 hexadecimal digits."""


class EvaluationSummary(_Part):
    """Summary of the episodes. Means leave out episodes that were lost to faults."""

    n_tasks: int
    k: int
    """Number of attempts at each task."""
    episodes: int
    """Episodes that were played to an end, faults included."""
    planned: int
    """``n_tasks * k``; more than ``episodes`` when the evaluation was interrupted."""
    scored: int
    """Episodes without a fault."""
    mean_reward: Estimate | None = None
    """None if nothing was scored."""
    success: Estimate | None = None
    """The share of episodes whose reward reaches the threshold."""
    success_threshold: FiniteFloat = 1.0
    pass_at_k: list[PassAtK] = Field(default_factory=list)
    faults: dict[str, int] = Field(default_factory=dict)
    """Episodes lost, by the class of the fault."""
    retried: dict[str, int] = Field(default_factory=dict)
    """Faults after which an episode was played again, by class."""
    stops: dict[str, int] = Field(default_factory=dict)
    """Scored episodes, by stop reason."""
    tokens: TokenCounts = TokenCounts()
    turns: Quantiles | None = None
    latency: Quantiles | None = None
    """Seconds of an answer of the model."""
    seconds: Quantiles | None = None
    """Duration of an episode."""
    wall_seconds: FiniteFloat = 0.0
    """Duration of the whole evaluation, without the time between two parts of a resumed one."""


class EvaluationReport(_Part):
    """Report of one evaluation; ``settings`` never hold a key or a secret."""

    format: int = 1
    name: str
    run: str
    """The label of its sessions."""
    environment: str
    split: str
    model: str
    """Name of the model at its endpoint; of the policy where no model played."""
    settings: dict[str, Any] = Field(default_factory=dict)
    started_at: FiniteFloat
    """Seconds since 1970."""
    ended_at: FiniteFloat | None = None
    """None for an interrupted evaluation."""
    summary: EvaluationSummary
    episodes: list[EvaluatedEpisode] = Field(default_factory=list)
