"""Generators of reasoning-gym: tasks that are computed, answers graded by the generator's own scorer."""

from __future__ import annotations

import dataclasses
import importlib
import re
import threading
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

from ..authoring.results import ToolOutput
from ..authoring.tools import terminal, tool
from ..errors import BadTask, LoadError
from ..suggest import did_you_mean
from .plain import plain
from .procedural import Adapted, Procedural, Seeds, changed, class_name, environment_name, origin
from .spelling import unknown_setting

__all__ = ["reasoning_gym_environment"]

_OWN = ("prompt", "name", "train_tasks", "test_tasks", "seed")
_PROMPT = "Give your final answer with the tool `answer`."
_MARKED = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)


class _Generator:
    """The datasets of one generator, a split each, made when first needed."""

    def __init__(self, name: str, seeds: Seeds, settings: Mapping[str, Any]) -> None:
        self._name = name
        self._seeds = seeds
        self._settings = settings
        self._datasets: dict[str, Any] = {}
        self._lock = threading.Lock()  # generators do not declare whether they are thread-safe

    def dataset(self, split: str) -> Any:
        found = self._datasets.get(split)
        if found is None:
            seeds = self._seeds.of(split)
            found = self._datasets[split] = _package().create_dataset(
                self._name, seed=seeds.start, size=len(seeds), **self._settings
            )
        return found

    def item(self, split: str, index: int) -> dict[str, Any]:
        with self._lock:
            item: dict[str, Any] = self.dataset(split)[index]
        return item

    def score(self, split: str, answer: str, item: dict[str, Any]) -> tuple[float, str]:
        """The score; and, for a 0 that stands for an exception of the scorer, that exception.

        Some scorers raise for an answer that they cannot read. That is a wrong answer, as long as the same
        scorer takes the right one; if it does not, the scorer is broken and raises here.
        """
        score = self.dataset(split).score_answer
        with self._lock:
            try:
                return float(score(answer=answer, entry=item)), ""
            except Exception as exc:
                score(answer=item["answer"], entry=item)
                return 0.0, f"{type(exc).__name__}: {exc}"


class _ReasoningGym(Procedural):
    """Base of the classes made below."""

    _generator: ClassVar[_Generator]
    _closing: ClassVar[str]

    def __init__(self, task_spec: Any = None, secrets: Mapping[str, str] | None = None) -> None:
        super().__init__(task_spec, secrets)
        split, index = self.task_spec.get("split"), self.task_spec.get("index")
        count = len(self._seeds.of(split)) if split in self._seeds.splits else 0
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
            raise BadTask(
                f'a task of {self._name!r} is {{"split": name, "index": number}}; '
                f"found {dict(self.task_spec)!r}"
            )
        self._split, self._index = str(split), index

    @classmethod
    def get_task(cls, split: str, index: int) -> dict[str, Any]:
        position = cls._position(split, index)
        return {"id": f"{split}-{position}", "split": split, "index": position}

    def setup(self) -> None:
        self._item = self._generator.item(self._split, self._index)

    def prompt(self) -> str:
        return f"{self._item['question']}\n\n{self._closing}".strip()

    @tool
    def answer(self, text: str) -> ToolOutput:
        """Give your final answer. There is one attempt.

        Args:
            text: The answer and nothing else.
        """
        return self._grade(text)

    @terminal
    @tool
    def last_message(self, text: str) -> ToolOutput:
        """Grade a message without a tool call: the text in <answer>…</answer>, else all of it."""
        marked = _MARKED.findall(text)
        return self._grade(marked[-1] if marked else text.strip())

    def _grade(self, text: str) -> ToolOutput:
        reward, unreadable = self._generator.score(self._split, text, self._item)
        details = {"answer": self._item.get("answer"), **(self._item.get("metadata") or {})}
        if unreadable:
            details["unreadable_answer"] = unreadable
        return ToolOutput(
            blocks=[f"Score: {reward:g}"], reward=reward, finished=True, metadata=plain(details)
        )


def reasoning_gym_environment(
    generator: str,
    *,
    prompt: str = _PROMPT,
    name: str | None = None,
    train_tasks: int = 10_000,
    test_tasks: int = 1_000,
    seed: int = 0,
    **settings: Any,
) -> type[Adapted]:
    """A generator of reasoning-gym, made with ``settings``, as a class with the tool ``answer``.

    A plain message ends the episode too, and is graded in the same way.

    prompt: follows the question, and describes how to answer.
    name: what clients ask for; ``generator`` by default.
    train_tasks, test_tasks, seed: a split is a dataset of that size. That of ``train`` has the seed ``seed``,
        that of ``test`` a seed a billion later; item ``index`` is computed from seed and index.

    Raises LoadError: reasoning-gym is missing; it knows no such generator or setting, or refuses a value.
    """
    seeds = Seeds.checked(train_tasks=train_tasks, test_tasks=test_tasks, seed=seed)
    package = _package()
    made = _Generator(generator, seeds, _checked(generator, settings))
    try:
        for split in seeds.splits:
            made.item(split, 0)
    except Exception as exc:
        raise LoadError(
            f"reasoning-gym:{generator} cannot be made with {settings}, {train_tasks} training and "
            f"{test_tasks} test tasks: {type(exc).__name__}: {exc}"
        ) from exc
    given = changed(
        prompt=(prompt, _PROMPT),
        name=(name, None),
        train_tasks=(train_tasks, 10_000),
        test_tasks=(test_tasks, 1_000),
        seed=(seed, 0),
    )
    members = {
        "__doc__": f"{generator} of reasoning-gym {getattr(package, '__version__', '')}".rstrip() + ".",
        "__module__": __name__,
        "_origin": origin("reasoning-gym", generator, {**given, **settings}),
        "_name": environment_name(name, generator),
        "_seeds": seeds,
        "_generator": made,
        "_closing": prompt,
    }
    return type(class_name(generator), (_ReasoningGym,), members)


def _checked(generator: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings, validated by the generator. Raises LoadError."""
    known: Mapping[str, tuple[Any, Any]] = importlib.import_module("reasoning_gym.factory").DATASETS
    if generator not in known:
        raise LoadError(f"reasoning-gym has no generator {generator!r}{did_you_mean(generator, known)}")
    fields = {field.name for field in dataclasses.fields(known[generator][1])}
    for key in settings:
        if key == "size":
            raise LoadError("size is the number of tasks: write train_tasks and test_tasks")
        if key not in fields:
            raise unknown_setting("reasoning-gym", generator, key, {*fields, *_OWN} - {"size"})
    if generator == "composite" and "datasets" in settings:
        spec = importlib.import_module("reasoning_gym.composite").DatasetSpec
        parts = [part if isinstance(part, spec) else spec(**part) for part in settings["datasets"]]
        return {**settings, "datasets": parts}
    return dict(settings)


def _package() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of packages that it imports
            return importlib.import_module("reasoning_gym")
    except ImportError as exc:
        raise LoadError(
            f"generators of reasoning-gym need the package reasoning-gym ({exc}): "
            "pip install 'orsay[reasoning-gym]'"
        ) from exc
