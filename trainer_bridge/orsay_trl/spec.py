"""``EnvironmentSpec``: an ORS environment, by URL or by its catalog name, in the slots of a TRL trainer."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from orsay_client import errors
from orsay_eval.reward import RewardPolicy, check_reward

from . import slots
from .mixture import Mixture
from .play.environment import LiveEnvironment, PlayOptions
from .play.episode import Episode, Rules, Tools
from .play.pool import EpisodePool
from .play.target import Target
from .trainer import dataset
from .trainer.environment import EnvironmentFactory

if TYPE_CHECKING:
    from transformers import TrainerCallback

__all__ = ["EnvironmentSpec"]

_T = TypeVar("_T")
_NOT_PICKLED = (*slots.DATASETS, "environment_factory")


class EnvironmentSpec:
    """An environment in the slots of a TRL trainer::

        spec = EnvironmentSpec("http://127.0.0.1:8080", num_tasks=64)
        trainer = GRPOTrainer(
            model=...,
            args=...,
            train_dataset=spec.train_dataset,
            environment_factory=spec.environment_factory,
            reward_funcs=spec.reward_funcs,
        )

    Takes the arguments of ``trl.experimental.openreward.OpenRewardSpec`` and has its properties. Making one
    sends nothing; it can be pickled, and the copy connects again.

    Args:
        target: URL of any ORS server, or ``owner/name`` in the OpenReward catalog (needs ``openreward``).
        num_tasks: At most that many tasks, from the start of the split; None takes all. Not with ``indices``.
        split: Where training tasks come from.
        indices: The tasks to train on.
        api_key: The server's key, or the catalog's.
        headers: Sent with each request to a server by URL, such as ``Authorization`` for a proxy in front.
        ca_file: Certificates to trust in place of the usual ones, for a server by URL.
        secrets: Handed to each session's environment, and to nothing else.
        env_name: Which environment of the server; its first by default.
        include_metadata: Fields of the tasks become columns, so that reward functions can read them.
        discover_task_tools: Ask a session for its tools too, besides the environment's shared ones.
        task_tools_discovery_index: The one task to ask. By default each of ``indices``, or task 0.
        eval_split: Split of ``eval_dataset``; ``test`` by default.
        eval_num_tasks: At most that many tasks in ``eval_dataset``.
        reward: What the rewards of an episode's calls amount to: ``last``, ``sum``, ``max``, ``mean``,
            ``discounted(gamma)``, or a function of the ``Episode``.
        unscored: Reward of an episode in which no call was scored; None leaves it out of its group's
            statistics, with advantage 0.
        success: From which reward on an episode counts as solved, in the metrics.
        get_reward: Environments give their reward to the trainer by themselves. False leaves it to
            ``reward_funcs``, for functions of your own in place of ``spec.reward_funcs``.
        images: Show the model images; without it, their names in the text.
        terminal: How the model uses a terminal tool: ``message``, its last plain message is handed in, or
            ``tool``, offered beside the others (the way for trainers that keep messages to themselves).
        retries: How often an episode is played again on a fresh session after faults.
        request_tries: How often a request is sent to a server that does not answer before that is a fault;
            6 tries take about 15 s, and each more 8 s.
        max_fault_share: Training stops when more than this share of a batch was lost to faults.
        call_timeout_s: Limit for one call, besides the server's; a call over it is a fault.
        seed: Base of the seeds that ``seed_field`` hands out.
        seed_field: Field of the task's spec that takes a seed, one for each task and its whole group. For
            environments that are random otherwise: a group's rollouts must see one prompt.
        concurrency: Sessions opened, closed or asked at the same time.
        run: Name of this run, in the label that each request carries to the server. By default the trainer's
            ``run_name``, else the name of its ``output_dir``, else the model's name and the date.
        attach: From the second batch on the trainer plays a batch's episodes at the same time, by ``attach``.

    Raises ValueError for contradictory or invalid arguments.
    """

    def __init__(
        self,
        target: str,
        *,
        num_tasks: int | None = None,
        split: str = "train",
        indices: Sequence[int] | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        secrets: Mapping[str, str] | None = None,
        env_name: str | None = None,
        include_metadata: bool = True,
        discover_task_tools: bool = True,
        task_tools_discovery_index: int | None = None,
        eval_split: str = "test",
        eval_num_tasks: int | None = None,
        reward: RewardPolicy = "last",
        unscored: float | None = 0.0,
        success: float = 1.0,
        get_reward: bool = True,
        images: bool = True,
        terminal: Literal["message", "tool"] = "message",
        retries: int = 2,
        request_tries: int = 6,
        max_fault_share: float = 0.5,
        call_timeout_s: float | None = None,
        seed: int = 0,
        seed_field: str | None = None,
        concurrency: int = 128,
        run: str | None = None,
        attach: bool = True,
    ) -> None:
        if num_tasks is not None and indices is not None:
            raise ValueError("give num_tasks or indices, not both")
        if not 0 <= max_fault_share <= 1:
            raise ValueError(f"max_fault_share is a share, between 0 and 1, not {max_fault_share}")
        if terminal not in ("message", "tool"):
            raise ValueError(f"terminal must be 'message' or 'tool', not {terminal!r}")
        if min(retries, request_tries - 1, concurrency - 1) < 0:
            raise ValueError("retries must be at least 0, request_tries and concurrency at least 1")
        check_reward(reward)
        self._num_tasks = num_tasks
        self._split = split
        self._indices = None if indices is None else list(indices)
        self._include_metadata = include_metadata
        self._eval_split = eval_split
        self._eval_num_tasks = eval_num_tasks
        self._seed = seed
        self._seed_field = seed_field
        self.live = LiveEnvironment(
            Target(
                target,
                env_name=env_name,
                api_key=api_key,
                headers=dict(headers or {}),
                ca_file=ca_file,
                secrets=None if secrets is None else dict(secrets),
                request_tries=request_tries,
            ),
            PlayOptions(
                split=split,
                probes=_probes(self._indices, task_tools_discovery_index) if discover_task_tools else (),
                terminal=terminal,
                rules=Rules(
                    reward=reward,
                    unscored=unscored,
                    images=images,
                    retries=retries,
                    call_timeout_s=call_timeout_s,
                ),
                success=success,
                get_reward=get_reward,
                max_fault_share=max_fault_share,
                concurrency=concurrency,
                run=run,
                attach=attach,
            ),
        )

    def __repr__(self) -> str:
        target = self.live.target
        name = f", env_name={target.env_name!r}" if target.env_name else ""
        return f"EnvironmentSpec({target.address!r}, split={self._split!r}{name})"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _NOT_PICKLED}

    # Slots of a trainer

    train_dataset = cached_property(slots.train_dataset)
    eval_dataset = cached_property(slots.eval_dataset)
    rollout_dataset = cached_property(slots.rollout_dataset)
    rollout_eval_dataset = cached_property(slots.rollout_eval_dataset)
    reward_funcs = property(slots.reward_funcs)
    group_reward = property(slots.group_reward)

    @cached_property
    def environment_factory(self) -> EnvironmentFactory:
        """Maker of the environments in a trainer's pool; can be pickled."""
        return EnvironmentFactory(self.live)

    def callback(self) -> TrainerCallback:
        """Callback that labels sessions with the step, and ends them when training ends."""
        return slots.callback(self)

    @staticmethod
    def combine(
        *specs: EnvironmentSpec,
        names: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        seed: int = 0,
    ) -> Mixture:
        """Several environments in one run; ``weights`` are shares of the rows. See ``Mixture``."""
        return Mixture(specs, names=names, weights=weights, seed=seed)

    def columns(self, which: slots.Part) -> dict[str, list[Any]]:
        """The columns of ``train_dataset`` or ``eval_dataset``, as lists."""
        if which == "train":
            split, num_tasks, indices = self._split, self._num_tasks, self._indices
        else:
            split, num_tasks, indices = self._eval_split, self._eval_num_tasks, None

        async def fetch() -> tuple[Sequence[int], list[Mapping[str, Any]] | None]:
            source = self.pool.source
            wanted: Sequence[int] | None = indices
            if wanted is None:
                count = await source.count(split)
                wanted = range(count if num_tasks is None else min(count, num_tasks))
            if not wanted:
                raise errors.BadRequest(f"split {split!r} of {self.live.target.address} has no tasks")
            needed = self._include_metadata or self._seed_field is not None
            return wanted, await source.specs(split, wanted) if needed else None

        wanted, specs = self.run(fetch())
        return dataset.columns(
            split,
            wanted,
            specs,
            metadata=self._include_metadata,
            seed=self._seed,
            seed_field=self._seed_field,
        )

    # Episodes without a trainer

    @property
    def class_name(self) -> str:
        """Name of the class that TRL shows for this environment."""
        return self.live.class_name

    @property
    def rules(self) -> Rules:
        """Rules by which episodes are played and scored."""
        return self.live.options.rules

    @property
    def success(self) -> float:
        """The reward from which on an episode counts as solved."""
        return self.live.options.success

    @property
    def tools(self) -> Tools:
        """The environment's tools, asked for once."""
        return self.live.tools

    @property
    def pool(self) -> EpisodePool:
        """Connection and open episodes of this process, made when first needed."""
        return self.live.pool

    def episode(self, row: Mapping[str, Any]) -> Episode:
        """Episode of a row of the dataset, not yet open; its coroutines run on ``pool``."""
        return self.live.episode(row)

    def prepare(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        one_prompt_per_task: bool = False,
        groups: Sequence[int] | None = None,
    ) -> list[Episode]:
        """Open the episodes of these rows at the same time; see ``LiveEnvironment.prepare``."""
        return self.live.prepare(rows, one_prompt_per_task=one_prompt_per_task, groups=groups)

    def begin(self, row: Mapping[str, Any]) -> Episode:
        """Open episode of a row: one that was prepared, or a new one."""
        return self.live.begin(row)

    def release(self, episodes: Iterable[Episode]) -> None:
        """End the sessions of these episodes in the background."""
        self.live.release(episodes)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Result of ``work`` on the loop of ``pool``."""
        return self.live.run(work)

    def close(self) -> None:
        """End all sessions and the connection; the next use connects anew."""
        self.live.close()

    # Internals: the environments of a run, see ``Environments``

    def members(self) -> Sequence[LiveEnvironment]:
        """This specification alone."""
        return [self.live]

    def member(self, row: Mapping[str, Any]) -> LiveEnvironment:
        """This specification alone."""
        return self.live


def _probes(indices: Sequence[int] | None, one: int | None) -> tuple[int, ...]:
    if one is not None:
        return (one,)
    return (0,) if indices is None else tuple(sorted(set(indices)))
