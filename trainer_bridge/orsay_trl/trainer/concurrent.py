"""TRL's GRPO trainer with concurrent episodes and exact masks.

TRL's own trainer opens episodes and makes calls one after another, continues to generate after the end of an
episode, and includes rollouts lost to a fault in the loss, with advantage 0. This one opens a batch's
episodes and makes the calls of a turn concurrently, generates nothing after the end, and masks lost rollouts.
Sampling, tokenization and scoring are TRL's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
import trl
from trl.chat_template_utils import parse_response

from ..play.environment import LiveEnvironment
from ._trl import factory_of, label_sessions, mix_in, tokenizer_of, tool_schemas, tools_bound
from .callback import EnvironmentCallback
from .environment import BoundTool, EnvironmentFactory, RolloutEnvironment
from .groups import groups_of

__all__ = ["ConcurrentEnvironments", "GRPOTrainer", "attach", "attach_quietly"]

_log = logging.getLogger("orsay_trl")

_KEPT = "orsay_kept"  # share of the generation batch that was not lost
_MEANS_OVER_ROLLOUTS = ("grpo", "sapo", "dr_grpo", "luspo")  # the other losses are means over tokens


class _Turns:
    """State of the tool loop of one batch, observed from outside: generating and ended rollouts.

    TRL keeps its lists of rollouts in local variables but modifies the lists passed to it, which are read
    here.
    """

    def __init__(
        self,
        prompt_ids: Sequence[list[int]],
        completion_ids: Sequence[list[int]],
        completions: Sequence[list[dict[str, Any]]],
    ) -> None:
        self.prompt_ids = prompt_ids
        self.completion_ids = completion_ids
        self.completions = completions
        self.ended: set[int] = set()
        self.over: set[int] = set()
        self.iteration = 0

    def playing(self, prompts: Sequence[list[int]]) -> list[int] | None:
        """Positions of the rollouts that are about to generate; None if uncertain."""
        positions = [
            position
            for position, messages in enumerate(self.completions)
            if position not in self.ended and messages and messages[-1]["role"] == "tool"
        ]
        if len(positions) != len(prompts):
            return None
        for position, ids in zip(positions, prompts, strict=True):
            so_far = self.prompt_ids[position] + self.completion_ids[position]
            if ids[: len(so_far)] != so_far:
                return None
        return positions


class ConcurrentEnvironments:
    """Mixin before ``trl.GRPOTrainer`` among the bases of a class; see ``GRPOTrainer`` and ``attach``."""

    _orsay_turns: _Turns | None = None

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train as TRL does, then end all sessions, also after an error."""
        try:
            return super().train(*args, **kwargs)  # type: ignore[misc]
        finally:
            for live in _environments(self):
                live.pool.close_episodes()

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        environments = _environments(self)
        if not environments:
            return super()._generate_and_score_completions(inputs)  # type: ignore[misc, no-any-return]
        label_sessions(environments, state=self.state, args=self.args, model=self.model)  # type: ignore[attr-defined]
        try:
            self._orsay_open(inputs)
            output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        except BaseException:
            for live in environments:
                live.pool.close_episodes()
            raise
        held: list[Any] = self.environments or []  # type: ignore[attr-defined]
        played = [e if isinstance(e, RolloutEnvironment) and e.episode is not None else None for e in held]
        self._orsay_mask(output, self._orsay_lost(inputs))
        for live in environments:
            live.release([e.episode for e in played if e is not None and e.live is live and e.episode])
        return output  # type: ignore[no-any-return]

    def _orsay_open(self, inputs: Sequence[Mapping[str, Any]]) -> None:
        """Open the episodes of all rows at the same time."""
        rows: dict[int, tuple[LiveEnvironment, dict[int, Mapping[str, Any]]]] = {}
        for position, row in enumerate(inputs):
            factory = factory_of(self, row)
            if isinstance(factory, EnvironmentFactory):
                task = {key: value for key, value in row.items() if key != "environment"}
                rows.setdefault(id(factory.live), (factory.live, {}))[1][position] = task
        served = self.use_vllm and self.vllm_mode == "server"  # type: ignore[attr-defined]
        groups = groups_of(len(inputs), self) if served else None
        for live, tasks in rows.values():
            numbers = None if groups is None else [groups.number(position) for position in tasks]
            live.prepare(tasks.values(), one_prompt_per_task=served, groups=numbers)

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        """TRL's, without a reward for rollouts lost to faults, whatever other reward functions return."""
        found: torch.Tensor = super()._calculate_rewards(  # type: ignore[misc]
            inputs, prompts, completions, completion_ids_list
        )
        if not _environments(self) and getattr(self, "rollout_func", None) is None:
            return found
        lost = torch.tensor(self._orsay_lost(inputs), device=found.device)
        everybody = self.accelerator.gather(lost)  # type: ignore[attr-defined]
        return found.masked_fill(everybody.unsqueeze(1), torch.nan)

    def _orsay_lost(self, inputs: Sequence[Mapping[str, Any]]) -> list[bool]:
        """One flag for each rollout: lost to a fault. Those of a rollout function are in its columns."""
        held: list[Any] = self.environments  # type: ignore[attr-defined]
        if not held:
            return ["rollout_id" in row and row.get("fault") is not None for row in inputs]
        return [
            isinstance(e, RolloutEnvironment) and e.episode is not None and e.episode.fault is not None
            for e in held
        ]

    def _orsay_mask(self, output: dict[str, Any], lost: Sequence[bool]) -> None:
        """Take rollouts lost to faults out of the loss: no token of theirs counts, in no sum."""
        several = self.accelerator.num_processes > 1  # type: ignore[attr-defined]
        if not several and not any(lost):
            return
        completion_mask = output["completion_mask"]
        kept = torch.tensor([not gone for gone in lost], device=completion_mask.device)
        output["tool_mask"] = output.get("tool_mask", torch.ones_like(completion_mask)) * kept.unsqueeze(1)
        counted = (completion_mask * output["tool_mask"]).sum()
        output["num_items_in_batch"] = self.accelerator.gather(counted).sum()  # type: ignore[attr-defined]
        output[_KEPT] = self.accelerator.gather(kept.float()).mean()  # type: ignore[attr-defined]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        """TRL's, without lost rollouts in a loss that is a mean over rollouts."""
        loss = super()._compute_loss(model, inputs)  # type: ignore[misc]
        kept = inputs.get(_KEPT)
        if kept is None or self.loss_type not in _MEANS_OVER_ROLLOUTS:  # type: ignore[attr-defined]
            return loss
        return loss / torch.where(kept > 0, kept, 1.0)

    def _tool_call_loop(
        self,
        prompts: Any,
        prompt_ids: Any,
        completion_ids: Any,
        completions: Any,
        logprobs: Any,
        images: Any,
        multimodal_fields: Any,
    ) -> Any:
        turns = _Turns(prompt_ids, completion_ids, completions)
        simple = images is None and not multimodal_fields
        self._orsay_turns = turns if simple and _environments(self) else None
        try:
            if self._orsay_turns is not None:
                first = {position: messages[0] for position, messages in enumerate(completions)}
                self._orsay_call_ahead(turns, first)
            result = super()._tool_call_loop(  # type: ignore[misc]
                prompts, prompt_ids, completion_ids, completions, logprobs, images, multimodal_fields
            )
        finally:
            self._orsay_turns = None
        tool_mask, completions, completion_ids, logprobs, *rest = result
        for position in turns.over:
            _end_at_last_sample(position, tool_mask, completion_ids, logprobs)
        return (tool_mask, completions, completion_ids, logprobs, *rest)

    def _generate_single_turn(
        self,
        prompt_ids: Any,
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> Any:
        turns = self._orsay_turns
        positions = None
        if turns is not None and images is None and not has_tool_images:
            positions = turns.playing(prompt_ids)
        if turns is None or positions is None:
            self._orsay_turns = None  # followed no further in this batch
            return super()._generate_single_turn(  # type: ignore[misc]
                prompt_ids, images, multimodal_fields, num_generations, has_tool_images=has_tool_images
            )
        over = {position for position in positions if _is_over(self.environments[position])}  # type: ignore[attr-defined]
        # With several processes generation is collective: none may skip a turn.
        alone = self.accelerator.num_processes == 1  # type: ignore[attr-defined]
        asked = [j for j, position in enumerate(positions) if not alone or position not in over]
        ids: list[list[int]] = [[] for _ in positions]
        logprobs: list[list[float]] | None = [[] for _ in positions]
        if asked:
            sampled, scores = super()._generate_single_turn(  # type: ignore[misc]
                [prompt_ids[j] for j in asked],
                images,
                multimodal_fields,
                num_generations,
                has_tool_images=has_tool_images,
            )
            for at, j in enumerate(asked):
                if positions[j] not in over:
                    ids[j] = sampled[at]
                    if scores is not None and logprobs is not None:
                        logprobs[j] = scores[at]
            if scores is None:
                logprobs = None
        elif not self.use_vllm:  # type: ignore[attr-defined]
            logprobs = None
        turns.iteration += 1
        turns.over |= over
        self._orsay_after_turn(turns, positions, prompt_ids, ids)
        return ids, logprobs

    def _orsay_after_turn(
        self,
        turns: _Turns,
        positions: Sequence[int],
        prompts: Sequence[list[int]],
        sampled: Sequence[list[int]],
    ) -> None:
        """Parse the turn like TRL, and start the calls that it will make."""
        messages = {}
        for position, ids, new in zip(positions, prompts, sampled, strict=True):
            room = self.max_completion_length - (len(ids) - len(turns.prompt_ids[position]))  # type: ignore[attr-defined]
            kept = new[: max(room, 0)]
            if not kept:
                turns.ended.add(position)
                continue
            messages[position] = parse_response(
                tokenizer_of(self), kept, prefix=ids, tools=tool_schemas(self, position)
            )
        self._orsay_call_ahead(turns, messages)

    def _orsay_call_ahead(self, turns: _Turns, messages: Mapping[int, Mapping[str, Any]]) -> None:
        """Start the calls of all rollouts concurrently; TRL then reads their results one by one."""
        if turns.iteration >= self.max_tool_calling_iterations:  # type: ignore[attr-defined]
            return
        for position, message in messages.items():
            environment = self.environments[position]  # type: ignore[attr-defined]
            calls = message.get("tool_calls")
            if not calls:
                turns.ended.add(position)
                continue
            if isinstance(environment, RolloutEnvironment):
                environment._call_ahead(_callable(calls, tools_bound(self, position)))


class GRPOTrainer(ConcurrentEnvironments, trl.GRPOTrainer):  # type: ignore[misc]
    """``trl.GRPOTrainer`` that plays the episodes of a batch at the same time. Takes the same arguments."""


def attach(trainer: Any) -> Any:
    """Make a trainer, also of a custom class, play its episodes concurrently; returns it.

    It also ends all sessions when training ends. Safe to call twice. Raises TypeError for what is no
    ``trl.GRPOTrainer``, and RuntimeError for a release of TRL whose insides differ from those known here.
    """
    if not isinstance(trainer, trl.GRPOTrainer):
        raise TypeError(f"attach() takes a trl.GRPOTrainer, not {type(trainer).__name__}")
    if isinstance(trainer, ConcurrentEnvironments):
        return trainer
    mix_in(trainer, ConcurrentEnvironments)
    trainer.add_callback(EnvironmentCallback(_environments(trainer)))
    return trainer


def attach_quietly(trainer: Any) -> None:
    """``attach``, if possible."""
    if isinstance(trainer, trl.GRPOTrainer) and not isinstance(trainer, ConcurrentEnvironments):
        try:
            attach(trainer)
        except RuntimeError as exc:
            _log.warning("%s", exc)
        else:
            _log.info("episodes of a batch are played at the same time from now on")


def _environments(trainer: Any) -> list[LiveEnvironment]:
    factories = getattr(trainer, "environment_factories", None) or {}
    found = {id(f.live): f.live for f in factories.values() if isinstance(f, EnvironmentFactory)}
    return list(found.values())


def _is_over(environment: Any) -> bool:
    if not isinstance(environment, RolloutEnvironment) or environment.episode is None:
        return False
    return environment.episode.finished or environment.episode.fault is not None


def _callable(
    calls: Sequence[Mapping[str, Any]], bound: Mapping[str, Any]
) -> list[tuple[str, dict[str, Any]]]:
    """The calls that TRL will make of our tools, in order."""
    found = []
    for call in calls:
        with suppress(KeyError, TypeError):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if call["type"] == "function" and isinstance(bound.get(name), BoundTool):
                found.append((str(name), dict(**arguments)))
    return found


def _end_at_last_sample(
    position: int,
    tool_mask: Sequence[list[int]],
    completion_ids: Sequence[list[int]],
    logprobs: Sequence[list[float]] | None,
) -> None:
    """Drop tokens after the last sampled one: after the end of an episode the model reads nothing."""
    mask = tool_mask[position]
    length = len(mask)
    while length > 1 and mask[length - 1] == 0:
        length -= 1
    del mask[length:]
    del completion_ids[position][length:]
    if logprobs is not None:
        del logprobs[position][length:]
