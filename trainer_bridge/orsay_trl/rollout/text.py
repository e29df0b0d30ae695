"""Environments with one free-text action: a message for each observation, an action from the model's text.

``prompt_builder(observation, step, history)`` and ``action_parser(text)`` are those of Eval Protocol: steps
count from 1, and ``history`` has a line for each step before. No tool calls, so any chat template will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from orsay_protocol.texts import well_formed

from .loop import Dialogue, PlayedEpisode, StopReason, text_only
from .parse import TurnParser
from .tokens import Message

__all__ = ["ActionParser", "EpisodeGame", "Game", "PromptBuilder", "merged", "play_text"]

PromptBuilder: TypeAlias = Callable[[Any, int, list[str]], Any]
"""The message to the model, a text or content parts, from the observation, the step and the history."""

ActionParser: TypeAlias = Callable[[str], Any]
"""The action in the model's whole text, including reasoning. The model gets the text of a ValueError."""


class Game(Protocol):
    """Interface of an episode that is played one action at a time."""

    finished: bool
    fault: str | None
    observation: Any

    def check(self, action: Any) -> None:
        """Raises ValueError, with a message for the model, if ``action`` cannot be sent."""
        ...

    async def step(self, action: Any) -> float | None:
        """Take one step with ``action``; returns the reward, if any. A fault is recorded, not raised."""
        ...


class EpisodeGame:
    """An open episode of an ORS environment as a game.

    An action is the text for the one tool that takes a single text, or for the terminal tool; a mapping of
    arguments for the only tool; or ``(tool name, arguments)``.
    """

    def __init__(self, episode: PlayedEpisode) -> None:
        self.finished = False
        self.fault: str | None = None
        self.observation: Any = ""
        self._episode = episode

    def check(self, action: Any) -> None:
        """Accept any action: one that cannot be sent becomes a refused call."""

    async def step(self, action: Any) -> float | None:
        """Raises TypeError for an action that names no call."""
        episode: Any = self._episode
        answered = len(episode.rewards)
        if isinstance(action, str):
            parameter = self._text_parameter()
            if parameter is None:
                reply = await episode.say(action)
                if reply is None:
                    raise TypeError(
                        "the action is a text, and the environment has neither one tool that takes a single "
                        "text nor a terminal tool; let action_parser return (tool name, arguments)"
                    )
            else:
                reply = await episode.call(parameter[0], {parameter[1]: action})
        else:
            name, arguments = self._named(action)
            reply = await episode.call(name, arguments)
        self.fault, self.finished = episode.fault, bool(reply.finished)
        self.observation = text_only(reply.content)
        rewards: list[float | None] = episode.rewards[answered:]
        return rewards[-1] if rewards else None

    def _text_parameter(self) -> tuple[str, str] | None:
        """The only tool and parameter that accept a text."""
        found = []
        for tool in self._episode.tools:
            schema = tool["function"].get("parameters") or {}
            properties = schema.get("properties") or {}
            names = [name for name in schema.get("required") or properties if name in properties]
            if len(names) == 1 and properties[names[0]].get("type") == "string":
                found.append((tool["function"]["name"], names[0]))
        return found[0] if len(found) == 1 else None

    def _named(self, action: Any) -> tuple[str, Any]:
        """The tool and its arguments of any type: the environment refuses invalid ones."""
        if isinstance(action, tuple) and len(action) == 2 and isinstance(action[0], str):
            return action
        names = [tool["function"]["name"] for tool in self._episode.tools]
        if isinstance(action, Mapping) and len(names) == 1:
            return names[0], action
        raise TypeError(
            f"action_parser returned {action!r}; an action is a text, (tool name, arguments), or the "
            f"arguments alone where there is one tool (here: {', '.join(names) or 'none'})"
        )


async def play_text(
    game: Game,
    dialogue: Dialogue,
    parser: TurnParser,
    prompt_builder: PromptBuilder,
    action_parser: ActionParser,
) -> StopReason:
    """Play a game after its first observation. No tokens are added after its end."""
    history: list[str] = []
    for step in range(1, dialogue.limits.turns + 1):
        sample = await dialogue.turn()
        if sample is None:
            return "budget"
        try:
            action = action_parser(parser.plain(sample.token_ids))
            game.check(action)
        except (ValueError, RecursionError) as exc:  # RecursionError: deeply nested JSON
            dialogue.unreadable_calls += 1
            history.append(f"Step {step}: not understood")
            content = f"Error: {exc}"
        else:
            reward = await dialogue.wait(game.step(action))
            if game.fault is not None:
                return "fault"
            if game.finished:
                return "finished"
            history.append(_line(step, action, reward, game.observation))
            content = text_only(prompt_builder(game.observation, step + 1, list(history)))
        if step < dialogue.limits.turns and not dialogue.reply(
            [{"role": "user", "content": well_formed(content)}]
        ):
            return "budget"
    return "max_turns"


def merged(prompt: Any, observation: str) -> list[Message]:
    """The initial messages: those of the dataset, with the observation appended to the last user message.

    Many templates refuse two consecutive user messages. A prompt may be a plain text.
    """
    messages: list[Message] = (
        [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [_bare(one) for one in prompt]
    )
    if not messages or messages[-1]["role"] != "user":
        return [*messages, {"role": "user", "content": observation}]
    before = text_only(messages[-1]["content"] or "")
    parts = [part for part in (before, observation) if part]
    return [*messages[:-1], {**messages[-1], "content": "\n\n".join(parts)}]


def _bare(message: Mapping[str, Any]) -> Message:
    """The message without the fields of the task, and without the None values that a dataset adds."""
    return {key: value for key, value in message.items() if key != "task" and value is not None}


def _line(step: int, action: Any, reward: float | None, observation: Any) -> str:
    try:
        label = getattr(action, "action_str", None) or str(action)
    except (ValueError, RecursionError):  # arguments without a repr, which were refused
        label = type(action).__name__
    error = " ERROR" if getattr(observation, "last_action_error", False) else ""
    return f"Step {step}: {label} -> reward {reward or 0.0:+.2f}{error}"
