"""Export of the journal for training: conversations as JSON lines, Parquet, or a ``datasets.Dataset``.

from orsay.journal.export import to_dataset

SFTTrainer(model=..., train_dataset=to_dataset("journal.db", environment="guess", reward_min=1.0))
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json
from sqlalchemy import Connection, select

from ..errors import ConfigError
from .database import Store
from .options import JournalOptions, journal_url
from .read.chat import Arguments, conversation, functions, images_of
from .read.decode import as_json, read_tools
from .read.episodes import whole
from .read.filters import Filter
from .read.models import Summary, Trajectory
from .read.query import count, trajectories
from .schema import prompts, sessions, values
from .search.query import catch_up
from .write.wal import wait_for_living

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["Export", "Recipe", "dataset_of", "existing", "to_dataset"]

_PAGE = 200
_ROWS = 1000  # per Arrow table
_INDEX_S = 0.5
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Selection and form of an export.

    ``lost``: also episodes that ended in a fault. ``living``: also open sessions. ``full``: whole
    trajectories instead of conversations. Without ``images``, the text names them.
    """

    wanted: Filter = field(default_factory=Filter)
    lost: bool = False
    living: bool = False
    full: bool = False
    images: bool = True
    arguments: Arguments = "object"


class Export:
    """One pass over the journal, newest sessions first, a page at a time, so that no connection is held for
    long.

    ``seen`` counts sessions that were looked at, of ``total`` (known after the first page), ``written`` those
    that were given out, ``trials`` those left out as trials (known after the first page), ``silent`` those
    left out because their client never asked for a prompt,
    ``without_tools`` those exported although their tools are unknown. ``redact`` removes from a
    trajectory what the reader may not see.
    """

    def __init__(self, recipe: Recipe, *, redact: Callable[[Trajectory], Trajectory] | None = None) -> None:
        self.recipe = recipe
        self._redact = redact
        self.total: int | None = None
        self.seen = self.written = self.trials = self.silent = self.without_tools = self.unindexed = 0
        self.done = False
        self._before: str | None = None
        self._tools: dict[str, list[dict[str, Any]]] = {}

    def page(self, connection: Connection) -> list[dict[str, Any]]:
        """The next records, perhaps none; ``done`` is true after the last."""
        recipe = self.recipe
        if self.total is None:
            self.total = count(connection, recipe.wanted)
            self.trials = count(connection, replace(recipe.wanted, trials=True)) - self.total
        if recipe.wanted.text:
            self.unindexed = catch_up(connection, _INDEX_S)
            if self.unindexed:  # sessions that are not indexed yet cannot be found
                time.sleep(_PAUSE_S)  # another process may be indexing
                return []
        page = trajectories(connection, recipe.wanted, _PAGE, self._before)
        self._before = page.next
        self.done = page.next is None
        self.seen += len(page.items)
        ids = [int(each.id) for each in page.items if self._is_wanted(each)]
        found = [
            record
            for each in whole(connection, ids)
            if (record := self._record(connection, self._redact(each) if self._redact else each)) is not None
        ]
        self.written += len(found)
        return found

    def lines(self, connection: Connection) -> bytes:
        """The next page as JSON lines."""
        return b"".join(to_json(record) + b"\n" for record in self.page(connection))

    def _is_wanted(self, summary: Summary) -> bool:
        lost = summary.fault is not None and not summary.finished
        lives = summary.ended_at is None and not summary.finished
        return (self.recipe.lost or not lost) and (self.recipe.living or not lives)

    def _record(self, connection: Connection, played: Trajectory) -> dict[str, Any] | None:
        recipe = self.recipe
        if recipe.full:
            return played.model_dump()
        messages = conversation(played, arguments=recipe.arguments, images=recipe.images)
        if messages is None:
            self.silent += 1
            return None
        tools = functions(played.tools or self._tools_of(connection, played.environment))
        self.without_tools += not tools
        return {
            "messages": messages,
            "tools": tools,
            **{name: getattr(played, name) for name in _COLUMNS},
            "rewards": [step.reward for step in played.steps if not step.discarded],
        }

    def _tools_of(self, connection: Connection, environment: str) -> list[dict[str, Any]]:
        """Tools from the newest session of the environment that listed them."""
        if environment not in self._tools:
            query = (
                select(prompts.c.session, prompts.c.text)
                .join(sessions, sessions.c.id == prompts.c.session)
                .where(sessions.c.environment == environment, prompts.c.kind == "task_tools")
                .order_by(sessions.c.id.desc())
                .limit(1)
            )
            row = connection.execute(query).one_or_none()
            self._tools[environment] = [] if row is None else _listed(connection, row.session, row.text)
        return self._tools[environment]


def to_dataset(
    journal: str = "auto",
    *,
    environment: str | None = None,
    run: str | None = None,
    split: str | None = None,
    task: str | None = None,
    step: int | None = None,
    reward_min: float | None = None,
    reward_max: float | None = None,
    finished: bool | None = None,
    since: datetime | float | None = None,
    until: datetime | float | None = None,
    text: str | None = None,
    owner: str | None = None,
    faults: bool = False,
    living: bool = False,
    trials: bool = False,
    images: bool = True,
    arguments: Arguments = "object",
    progress: Callable[[Export], None] | None = None,
) -> Dataset:
    """Episodes as a ``datasets.Dataset`` of conversations, newest first, which TRL's SFTTrainer takes as it
    is.

    The columns are ``messages``, ``tools``, ``reward`` (of the last scored call), ``reward_sum``, ``rewards``
    (of each call), ``finished`` and what the session was. There is a column ``images`` only if there are
    images, since TRL takes a dataset with that column for one of pictures; ``images=False`` names them in the
    text instead.

    Args:
        journal: A path or URL as in the setting ``journal``; ``auto`` is ``.orsay/journal.db`` here.
        environment: Only of this environment; likewise ``run``, ``split``, ``task`` (as in ``train:17``) and
        ``step``. reward_min: Only with at least this reward of the last scored call; likewise ``reward_max``.
        finished: Only those whose environment finished the episode, or only the others.
        since: Only sessions that began then or later: a datetime, or seconds since 1970; likewise ``until``,
        before. text: Only sessions that contain this text.
        owner: Only those of this API key, by the name that the journal gives it.
        faults: Also episodes that a fault kept from their end.
        living: Also sessions that have not ended.
        trials: Also sessions of ``orsay check``, of ``orsay play`` and of the console's playground; one whose
        ``run`` is named is there without it.
        arguments: ``object`` as chat templates want the arguments of a call, or ``string`` as OpenAI's API
        has them. progress: Called after each page.

    Raises:
        ConfigError: There is no such journal.
        JournalDown: It cannot be read now.
        ImportError: ``datasets`` is not installed: ``pip install 'orsay[export]'``.
    """
    wanted = Filter(
        environment=environment,
        run=run,
        split=split,
        task=task,
        step=step,
        reward_min=reward_min,
        reward_max=reward_max,
        finished=finished,
        since=_seconds(since),
        until=_seconds(until),
        text=text,
        owner=owner,
        trials=trials,
    )
    export = Export(Recipe(wanted=wanted, lost=faults, living=living, images=images, arguments=arguments))
    with existing(JournalOptions(journal_url(journal))) as store:
        return dataset_of(export, store, progress)


def dataset_of(export: Export, store: Store, progress: Callable[[Export], None] | None = None) -> Dataset:
    """The whole export as a dataset; ``progress`` is called after each page. Raises what ``to_dataset``
    raises.
    """
    import datasets  # optional, and slow to import

    features = _features(datasets)
    parts: list[Any] = []
    has_images = False
    for rows in _in_rows(export, store, progress):
        has_images = has_images or any(row["images"] for row in rows)
        parts.append(datasets.Dataset.from_list(rows, features=features))
    if not parts:
        parts.append(datasets.Dataset.from_dict({name: [] for name in features}, features=features))
    found = datasets.concatenate_datasets(parts)
    return found if has_images else found.remove_columns("images")


@contextmanager
def existing(options: JournalOptions) -> Iterator[Store]:
    """Open an existing journal. Raises ConfigError if it does not exist, and JournalDown."""
    if options.path is not None and not options.path.is_file():
        raise ConfigError(
            f"there is no journal at {options.path}: name its file or URL, or start a server in this folder"
        )
    store = Store(options)
    store.open()
    if options.path is not None:
        wait_for_living(options.path)
    try:
        yield store
    finally:
        store.close()


def _in_rows(
    export: Export, store: Store, progress: Callable[[Export], None] | None
) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    while not export.done:
        with store.reading() as connection:
            rows += [_row(record) for record in export.page(connection)]
        if progress is not None:
            progress(export)
        if rows and (export.done or len(rows) >= _ROWS):
            yield rows
            rows = []


def _row(record: dict[str, Any]) -> dict[str, Any]:
    """Row with images in a column of their own, and a mark in the messages where each belongs."""
    images = [
        {"bytes": base64.b64decode(url.partition(",")[2]), "path": None}
        for url in images_of(record["messages"])
    ]
    messages = [
        {**message, "content": [_mark(part) for part in message["content"]]}
        if isinstance(message["content"], list)
        else message
        for message in record["messages"]
    ]
    return {**record, "messages": messages, "images": images}


def _mark(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "image"} if part["type"] == "image_url" else part


_COLUMNS = {
    "reward": "float64",
    "reward_sum": "float64",
    "finished": "bool",
    "environment": "string",
    "split": "string",
    "task_index": "int64",
    "task": "string",
    "run": "string",
    "step": "int64",
    "rollout": "string",
    "calls": "int64",
    "faults": "int64",
    "fault": "string",
    "end_reason": "string",
    "started_at": "float64",
    "ended_at": "float64",
    "id": "string",
    "sid": "string",
    "trace": "string",
}


def _features(datasets: Any) -> Any:
    """Column types: messages and tools have different fields in each row, which Arrow structs cannot."""
    return datasets.Features(
        {
            "messages": datasets.List(datasets.Json()),
            "tools": datasets.List(datasets.Json()),
            **{name: datasets.Value(kind) for name, kind in _COLUMNS.items()},
            "rewards": datasets.List(datasets.Value("float64")),
            "images": datasets.List(datasets.Image()),
        }
    )


def _listed(connection: Connection, session: int, text: str | None) -> list[dict[str, Any]]:
    beside = select(values.c.data).where(values.c.row == session, values.c.field == "task_tools")
    data = connection.execute(beside).scalar() if text is None else None
    large = {} if data is None else {(session, "task_tools"): data}
    return read_tools(as_json(text, large, session, "task_tools")) or []


def _seconds(moment: datetime | float | None) -> float | None:
    return moment.timestamp() if isinstance(moment, datetime) else moment
