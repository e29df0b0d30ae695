"""``create_openenv_vllm_rollout_func``: OpenEnv environments, by the arguments of Eval Protocol's function.

Code for that function works with current TRL: sampled ids are kept, logprobs are returned, tokens that the
model did not sample are masked, and a failing environment costs one rollout, not the run.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar

from orsay_client.loop_thread import LoopThread

from ..play.fault_budget import FaultBudget
from ..trainer.groups import groups_of
from .context import RolloutContext, RolloutDriver, RolloutSettings
from .evalprotocol import EvaluationTest
from .loop import Dialogue, Rollout, StopReason, text_only
from .openenv_client import ClientMaker, OpenEnvGame
from .rollout_func import RolloutFunction
from .sampling import Sampler
from .sync import DiskSync
from .text import ActionParser, PromptBuilder, merged, play_text
from .tokens import Message

__all__ = ["OpenEnvBackend", "create_openenv_vllm_rollout_func"]

_T = TypeVar("_T")
_EVAL_PROTOCOLS_MODEL = "Qwen/Qwen2.5-7B"  # the default there, where it was never used


def create_openenv_vllm_rollout_func(
    env_factory: Callable[[], Any] | None,
    prompt_builder: PromptBuilder,
    action_parser: ActionParser,
    vllm_base_url: str = "http://localhost:8000",
    vllm_model: str = _EVAL_PROTOCOLS_MODEL,
    max_steps: int = 8,
    *,
    completion_params: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    processor_cls: Any = None,
    processor_kwargs: Mapping[str, Any] | None = None,
    env_path: str | None = None,
    env_client_cls: type[Any] | None = None,
    tasks: Sequence[str] | None = None,
    task_var: str | None = None,
    miniwob_url: str | None = None,
    docker_image: str = "browsergym-env:latest",
    env_base_url: str | None = None,
    request_timeout_s: float = 15.0,
    default_headers: Mapping[str, str] | None = None,
    provider: Any = None,
    docker_port: int | None = None,
    env_vars: Mapping[str, str] | None = None,
    benchmark: str = "miniwob",
    headless: bool = True,
    viewport_width: int = 1280,
    viewport_height: int = 720,
    timeout_ms: int = 10000,
    sampler: Sampler | None = None,
    sync: DiskSync | Literal[False] | None = None,
    max_fault_share: float = 0.5,
) -> RolloutFunction:
    """A rollout function that plays one episode of an OpenEnv environment for each prompt.

    It returns what TRL asks for, and for reward functions ``env_reward`` (the sum of the steps' rewards),
    ``step_rewards`` and ``eval_score``. Put ``orsay_trl.reward_func`` among the reward
    functions, or one of your own.

    Args:
        env_factory: Makes a client of the environment, of OpenEnv's asynchronous or synchronous kind.
        prompt_builder: The message to the model, from the observation, the step (from 1) and the history.
        action_parser: The action, from the model's text. The model is shown a ValueError.
        vllm_base_url: Used where the trainer has no vLLM of its own (``use_vllm=True``) and no ``sampler`` is
            given; ``sync`` then brings it the weights.
        vllm_model: Its name for the model; the default takes what is served.
        max_steps: Steps of one episode.
        completion_params: ``temperature``, ``top_p``, ``top_k``, ``min_p``, ``max_tokens`` (in one turn) and
            ``system_prompt``; by default the trainer's. TRL assumes the trainer's temperature.
        concurrency: Episodes at the same time; by default all of a batch.
        processor_cls: Not supported: it would sample by messages. Leave it out.
        processor_kwargs: Replace arguments of these names from ``env_client_cls`` on.
        env_path: Module with an ``@evaluation_test`` of Eval Protocol (package ``eval-protocol``): it scores
            each episode (``eval_score``), and its environment is used where no other is given.
        env_client_cls: Class of a client, where there is no ``env_factory``.
        tasks: Handed to the environment in the variable ``task_var``: one for each group of a batch, and
            beginning with another for each batch.
        task_var: Name of that variable.
        docker_image: Started for each episode where there is no ``env_base_url``.
        env_base_url: A running server of the environment.
        request_timeout_s: Limit of one message to the environment.
        default_headers: For clients that take them.
        provider: OpenEnv's container provider.
        docker_port: Port of the container.
        env_vars: Variables of the container.
        miniwob_url, benchmark, headless, viewport_width, viewport_height, timeout_ms: Become BrowserGym's
            variables in a container whose image is one of BrowserGym.
        sampler: Anything that samples, instead of a server.
        sync: Brings weights to ``vllm_base_url``; False where something else does.
        max_fault_share: Training stops when more than this share of a batch was lost to faults.

    Raises ValueError for arguments that contradict each other, and ImportError for ``env_path`` without
    Eval Protocol.
    """
    if processor_cls is not None and processor_cls.__name__ != "OpenEnvRolloutProcessor":
        raise ValueError("processor_cls is not supported: rollouts are made of token ids, not of messages")
    test = EvaluationTest.load(env_path) if env_path else None
    made: dict[str, Any] = {
        "env_factory": env_factory,
        "env_client_cls": env_client_cls,
        "tasks": tasks,
        "task_var": task_var,
        "docker_image": docker_image,
        "env_base_url": env_base_url,
        "request_timeout_s": request_timeout_s,
        "default_headers": default_headers,
        "provider": provider,
        "docker_port": docker_port,
        "env_vars": env_vars,
        "browser": {
            "MINIWOB_URL": miniwob_url,
            "BROWSERGYM_BENCHMARK": benchmark,
            "BROWSERGYM_HEADLESS": str(headless).lower(),
            "BROWSERGYM_VIEWPORT_WIDTH": viewport_width,
            "BROWSERGYM_VIEWPORT_HEIGHT": viewport_height,
            "BROWSERGYM_TIMEOUT": timeout_ms,
        },
    }
    backend = OpenEnvBackend(
        ClientMaker(**{**made, **(test.environment(made) if test else {}), **(processor_kwargs or {})}),
        prompt_builder,
        action_parser,
        system_prompt=(completion_params or {}).get("system_prompt"),
        max_fault_share=max_fault_share,
        test=test,
    )
    drawn = {
        key: value
        for key, value in (completion_params or {}).items()
        if key in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    }
    settings = RolloutSettings(
        sampler=sampler,
        fallback_url=None if sampler is not None else vllm_base_url,
        model=None if vllm_model == _EVAL_PROTOCOLS_MODEL else vllm_model,
        sync=sync,
        max_turns=max_steps,
        max_tokens_per_turn=(completion_params or {}).get("max_tokens"),
        needs_calls=False,
        sampling=drawn,
    )
    return RolloutFunction(backend, settings, concurrency=concurrency, parity_rollouts=4)


class OpenEnvBackend:
    """Plays one episode of an OpenEnv environment for each prompt, on an event loop of its own."""

    def __init__(
        self,
        clients: ClientMaker,
        prompt_builder: PromptBuilder,
        action_parser: ActionParser,
        *,
        system_prompt: str | None = None,
        max_fault_share: float = 0.5,
        test: EvaluationTest | None = None,
    ) -> None:
        self.clients = clients
        self.prompt_builder = prompt_builder
        self.action_parser = action_parser
        self.system_prompt = system_prompt
        self.test = test
        self._faults = FaultBudget(max_fault_share)
        self._batches = 0

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_loop"}

    def drivers(self, prompts: Sequence[Any], trainer: Any) -> list[RolloutDriver]:
        groups = groups_of(len(prompts), trainer, may_end_early=True)
        found: list[RolloutDriver] = [
            _OpenEnvDriver(self, prompt, self.clients.task(groups.number(position), self._batches))
            for position, prompt in enumerate(prompts)
        ]
        self._batches += 1
        return found

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._loop.run(work)

    def judge(self, rollouts: Sequence[Rollout], log_metric: Callable[[str, float], None]) -> None:
        """Raises TooManyFaults."""
        for rollout in rollouts:
            log_metric("env/faults", float(rollout.fault is not None))
            if rollout.reward is not None:
                log_metric("env/reward", rollout.reward)
        self._faults.check_batch([rollout.episode for rollout in rollouts])

    @cached_property
    def _loop(self) -> LoopThread:
        return LoopThread("orsay-openenv")


class _OpenEnvDriver:
    """One episode."""

    def __init__(self, backend: OpenEnvBackend, prompt: Any, task: str | None) -> None:
        self.id = uuid.uuid4().hex
        self._backend = backend
        self._prompt = prompt
        self._task = task

    async def play(self, context: RolloutContext) -> Rollout:
        backend = self._backend
        game = OpenEnvGame()
        try:
            await game.open(backend.clients, self._task)
            built = "" if game.fault else text_only(backend.prompt_builder(game.observation, 1, []))
            dialogue = Dialogue(context.chat, context.sampler, context.limits, self._messages(built))
            reason: StopReason = "fault"
            if game.fault is None:
                reason = (
                    "finished"
                    if game.finished
                    else await play_text(
                        game, dialogue, context.parser, backend.prompt_builder, backend.action_parser
                    )
                )
            score = await self._score(game, dialogue, built, context)
            lost, transcript = game.fault is not None, dialogue.transcript
            if lost or not transcript.completion_ids:
                transcript = transcript.masked(context.filler)
            return Rollout(
                id=self.id,
                transcript=transcript,
                stop_reason="fault" if lost else reason,
                reward=None if lost else sum(game.rewards),
                fault=game.fault,
                turns=dialogue.turns,
                unreadable_calls=dialogue.unreadable_calls,
                sampling_s=dialogue.sampling_s,
                environment_s=dialogue.environment_s,
                episode=game,
                extra={"step_rewards": list(game.rewards) or [0.0], "eval_score": score},
            )
        finally:
            await asyncio.shield(game.close())

    async def _score(
        self, game: OpenEnvGame, dialogue: Dialogue, built: str, context: RolloutContext
    ) -> float | None:
        """Score by the evaluation test, else the sum of rewards; None after a fault, also of the score."""
        if game.fault is not None or not game.accepts(sum(game.rewards), "the episode"):
            return None
        if self._backend.test is None:
            return sum(game.rewards)
        text = context.parser.plain(dialogue.transcript.completion_ids)
        score = await self._backend.test.score(self.id, self._messages(built), text, game.rewards)
        return score if game.accepts(score, "the evaluation test") else None

    def _messages(self, built: str) -> list[Message]:
        messages = merged(self._prompt, built)
        system = self._backend.system_prompt
        if system and not any(message["role"] == "system" for message in messages):
            return [{"role": "system", "content": system}, *messages]
        return messages
