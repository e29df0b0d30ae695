"""``EnvironmentSpec``: an ORS environment, by URL or by its catalog name, in the slots of a TRL trainer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import weakref
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from orsay_client import errors

from .play.discovery import discover
from .play.episode import Episode, Rules, Tools, common_prompt
from .play.fault_budget import FaultWatch, TooManyFaults
from .play.parsing import guard
from .play.pool import Stage
from .play.reward import RewardPolicy, check_policy
from .play.source import ServerSource, Source, TaskRef
from .slots import DATASETS, Slots
from .trainer import dataset
from .trainer.async_worker import stay_until_heard
from .trainer.environment import RolloutEnvironment, environment_class
from .trainer.run_context import calling_player, is_trainer, run_name, starting_trainer, tokenizer_of

if TYPE_CHECKING:
    from .mixture import Mixture

__all__ = ["EnvironmentFactory", "EnvironmentSpec"]

_T = TypeVar("_T")
_USER = re.compile("//[^/]*@")  # of a URL, with the password
_LIVE = (*DATASETS, "environment_factory", "faults", "stage", "tools")


class EnvironmentSpec(Slots):
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
    sends nothing; it can be pickled, and the copy connects anew.

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

    Raises ValueError for arguments that cannot be meant.
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
        if "://" not in target and target.count("/") != 1:
            raise ValueError(f"target must be a URL or owner/name of the OpenReward catalog, not {target!r}")
        if "://" not in target and (headers or ca_file):
            raise ValueError("headers and ca_file are for a server by URL, not for the OpenReward catalog")
        if not 0 <= max_fault_share <= 1:
            raise ValueError(f"max_fault_share is a share, between 0 and 1, not {max_fault_share}")
        if terminal not in ("message", "tool"):
            raise ValueError(f"terminal must be 'message' or 'tool', not {terminal!r}")
        if min(retries, request_tries - 1, concurrency - 1) < 0:
            raise ValueError("retries must be at least 0, request_tries and concurrency at least 1")
        check_policy(reward)
        self.rules = Rules(
            reward=reward, unscored=unscored, images=images, retries=retries, call_timeout_s=call_timeout_s
        )
        self.success = success
        self.gives_reward = get_reward
        self.max_fault_share = max_fault_share
        self.terminal = terminal
        self.attach = attach
        self.run_name = run
        self._run_of_trainer: str | None = None
        self._day = time.strftime("%Y-%m-%d")
        self._place = _USER.sub("//", target)
        self.class_name = _class_name(env_name, self._place)
        self.metrics_prefix = "env/"
        self._target = target
        self._is_url = "://" in target
        self._num_tasks = num_tasks
        self._split = split
        self._indices = None if indices is None else list(indices)
        self._api_key = api_key
        self._headers = dict(headers or {})
        self._ca_file = ca_file
        self._secrets = dict(secrets) if secrets is not None else None
        self._env_name = env_name
        self._include_metadata = include_metadata
        self._discover_task_tools = discover_task_tools
        self._task_tools_discovery_index = task_tools_discovery_index
        self._eval_split = eval_split
        self._eval_num_tasks = eval_num_tasks
        self._seed = seed
        self._seed_field = seed_field
        self._concurrency = concurrency
        self._request_tries = request_tries
        self._leader: EnvironmentSpec | None = None

    def __repr__(self) -> str:
        name = f", env_name={self._env_name!r}" if self._env_name else ""
        return f"EnvironmentSpec({self._place!r}, split={self._split!r}{name})"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _LIVE}

    # What a trainer takes

    @cached_property
    def environment_factory(self) -> EnvironmentFactory:
        """Makes the places of a trainer's pool; can be pickled."""
        return EnvironmentFactory(self)

    @staticmethod
    def combine(
        *specs: EnvironmentSpec,
        names: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        seed: int = 0,
    ) -> Mixture:
        """Several environments in one run; ``weights`` are shares of the rows. See ``Mixture``."""
        from .mixture import Mixture

        return Mixture(specs, names=names, weights=weights, seed=seed)

    def members(self) -> Sequence[EnvironmentSpec]:
        """This one."""
        return [self]

    def member(self, row: Mapping[str, Any]) -> EnvironmentSpec:
        """This one."""
        return self

    def follow(self, leader: EnvironmentSpec) -> None:
        """Play on the event loop of ``leader``; for specs that are combined. Before anything was played."""
        self._leader = leader

    # Playing

    @cached_property
    def tools(self) -> Tools:
        """The environment's tools, asked for once."""
        return self.stage.run(
            discover(
                self.stage.source,
                self._split,
                self._probes() if self._discover_task_tools else (),
                terminal_as_tool=self.terminal == "tool",
            )
        )

    @property
    def stage(self) -> Stage:
        """The connection of this process, made when first needed."""
        stage: Stage | None = self.__dict__.get("stage")
        if stage is None or stage.pid != os.getpid():
            beside = self._leader.stage if self._leader is not None else None
            stage = Stage(self._make_source, concurrency=self._concurrency, beside=beside)
            self.__dict__["stage"] = stage
            weakref.finalize(self, stage.abandon).atexit = False  # at exit a stage ends by itself
        return stage

    @cached_property
    def faults(self) -> FaultWatch:
        """Counts what was lost, and stops training when that is too much."""
        return FaultWatch(self.max_fault_share)

    def episode(self, row: Mapping[str, Any]) -> Episode:
        """The episode of a row of the dataset, not yet open; its coroutines run on ``stage``."""
        spec = row.get("task_spec")
        task = TaskRef(
            split=str(row.get("task_split") or self._split),
            index=int(row.get("task_index") or 0),
            spec=json.loads(spec) if isinstance(spec, str) else spec,
        )
        labels: dict[str, str | int] = {}
        if (step := self.stage.step) is not None:
            labels["step"] = step
        if run := self.run_name or self._run_of_trainer:
            labels["run"] = run
        return Episode(self.stage.source, task, self.tools, self.rules, row=row, labels=labels)

    def serve_step(self, args: Any, step: int, model: Any) -> None:
        """Episodes that begin from now on belong to that step of the trainer with these arguments."""
        self.stage.step = step
        self.serve_run(args, model)

    def serve_run(self, args: Any, model: Any) -> None:
        """Episodes that begin from now on belong to the run of a trainer with these arguments."""
        self._run_of_trainer = run_name(args, model, self._day)

    def prepare(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        one_prompt_per_task: bool = False,
        groups: Sequence[int] | None = None,
    ) -> list[Episode]:
        """Open the episodes of these rows at the same time; ``begin`` then hands each out.

        With ``one_prompt_per_task`` an episode that a fault left without a prompt gets that of its group, and
        ValueError is raised when two episodes of one group began with different prompts: a trainer that sends
        each prompt of a group once would pair completions with wrong ones. ``groups`` numbers the group of
        each row; without it the rows of a task are one.
        """
        wanted = [(_key(row), self.episode(row)) for row in rows]
        opened = self.stage.prepare(wanted)
        if one_prompt_per_task:
            found: dict[Any, list[Episode]] = {}
            for place, (key, episode) in enumerate(wanted):
                found.setdefault(key if groups is None else groups[place], []).append(episode)
            for group in found.values():
                prompt = common_prompt([(e.began, e.observation) for e in group], group[0].task)
                for episode in group:
                    episode.show(prompt)
        return opened

    def begin(self, row: Mapping[str, Any]) -> Episode:
        """The open episode of a row: one that was prepared, or a new one."""
        episode = self.stage.take(_key(row))
        if episode is None:
            episode = self.episode(row)
            self.stage.run(self.stage.open(episode))
        return episode

    def release(self, episodes: Iterable[Episode]) -> None:
        """End the sessions of these episodes in the background."""
        self.stage.start(self.stage.close(list(episodes)))

    def wait(self, future: Future[_T]) -> _T:
        """The result of work that was begun on ``stage``; the wait is counted."""
        return self.run(_result(future))

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of ``work`` on the loop of ``stage``."""
        return self.stage.run(work)

    def watch(self, episodes: Sequence[Episode]) -> None:
        """Count faults one by one. Raises TooManyFaults."""
        try:
            self.faults.rolling(episodes)
        except TooManyFaults:
            stay_until_heard()
            raise

    def close(self) -> None:
        """End all sessions and the connection; the spec connects anew when it is used again."""
        stage: Stage | None = self.__dict__.pop("stage", None)
        if stage is not None:
            stage.shut()

    # Inside

    def _make_source(self) -> Source:
        if self._is_url:
            return ServerSource(
                self._target,
                env_name=self._env_name,
                api_key=self._api_key,
                headers=self._headers,
                ca_file=self._ca_file,
                secrets=self._secrets,
                tries=self._request_tries,
            )
        from .play.catalog import CatalogSource  # needs openreward

        return CatalogSource(
            self._target, env_name=self._env_name, api_key=self._api_key, secrets=self._secrets
        )

    def columns(self, which: Literal["train", "eval"]) -> dict[str, list[Any]]:
        """The columns of ``train_dataset`` or ``eval_dataset``, as lists."""
        if which == "train":
            split, num_tasks, indices = self._split, self._num_tasks, self._indices
        else:
            split, num_tasks, indices = self._eval_split, self._eval_num_tasks, None

        async def fetch() -> tuple[Sequence[int], list[Mapping[str, Any]] | None]:
            source = self.stage.source
            wanted: Sequence[int] | None = indices
            if wanted is None:
                count = await source.count(split)
                wanted = range(count if num_tasks is None else min(count, num_tasks))
            if not wanted:
                raise errors.BadRequest(f"split {split!r} of {self._place} has no tasks")
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

    def _probes(self) -> list[int]:
        if self._task_tools_discovery_index is not None:
            return [self._task_tools_discovery_index]
        return sorted(set(self._indices)) if self._indices is not None else [0]


class EnvironmentFactory:
    """Makes environments for a trainer's pool, all of one class in one process."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec

    def __call__(self) -> RolloutEnvironment:
        if (player := calling_player()) is not None:
            # A worker's loop writes the whole conversation anew each turn, a trainer adds to its tokens.
            guard(tokenizer_of(player), rendered=not is_trainer(player))
        return self._class(self.spec)

    def __getstate__(self) -> dict[str, Any]:
        # AsyncGRPO's rollouts are played by a process that knows nothing of the trainer.
        if (trainer := starting_trainer()) is not None:
            self.spec.serve_run(trainer.args, trainer.model)
        return {"spec": self.spec}

    @cached_property
    def _class(self) -> type[RolloutEnvironment]:
        return environment_class(self.spec, self.spec.tools)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    spec = row.get("task_spec")
    return (
        row.get("task_split"),
        row.get("task_index"),
        spec if spec is None or isinstance(spec, str) else json.dumps(spec, sort_keys=True),
    )


def _class_name(env_name: str | None, target: str) -> str:
    name = env_name or target.rstrip("/").rsplit("/", 1)[-1]
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name).strip("_")
    return f"Environment_{plain}"


async def _result(future: Future[_T]) -> _T:
    return await asyncio.wrap_future(future)
