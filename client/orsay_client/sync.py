"""Synchronous client: the asynchronous client on a background thread, method for method.

Keep-alive pings run on that thread, so sessions stay open while the caller computes. Objects may be shared
between threads; each call blocks only its caller.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, overload

from orsay_protocol import (
    GroupCandidate,
    GroupScore,
    ImageBlock,
    JSONObject,
    ListToolsOutput,
    Message,
    Split,
    TerminalToolSpec,
    TextBlock,
    ToolOutput,
    ToolSpec,
)

from .client import AsyncClient
from .environments import AsyncEnvironment
from .formats import Format
from .labels import RunLabels
from .loop_thread import LoopThread
from .retry import Retry
from .sessions import AsyncSession
from .tasks import AsyncTasks, Task
from .transport import Verify

__all__ = ["Client", "Environment", "Session", "Tasks"]


class Client:
    """Blocking form of AsyncClient. Close it, or use it with ``with``."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        timeout_s: float = 600.0,
        silence_s: float = 30.0,
        keepalive_s: float = 10.0,
        close_timeout_s: float = 30.0,
        max_answer_bytes: int = 256 * 1024 * 1024,
        trust_env: bool = False,
        verify: Verify = True,
    ) -> None:
        self._async = AsyncClient(
            url,
            api_key=api_key,
            headers=headers,
            retry=retry,
            timeout_s=timeout_s,
            silence_s=silence_s,
            keepalive_s=keepalive_s,
            close_timeout_s=close_timeout_s,
            max_answer_bytes=max_answer_bytes,
            trust_env=trust_env,
            verify=verify,
        )
        self._thread = LoopThread("orsay-client")
        self._forget = weakref.finalize(self, _forget, self._async, self._thread)
        self._forget.atexit = False  # see _forget_all
        _alive.add(self)

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncClient", type(self).__name__)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End open sessions on the server and stop the thread; safe to call twice.

        A forgotten client is closed in the background. Raises RuntimeError on the client's own event loop.
        """
        self._thread.refuse_own_thread()
        if self._forget.detach() is None:
            return
        try:
            self._thread.run(self._async.aclose())
        finally:
            self._thread.stop()

    def environments(self) -> list[str]:
        """Names of the server's environments; the first is the default one."""
        return self._thread.run(self._async.environments())

    def environment(self, name: str | None = None) -> Environment:
        """One environment, by default the server's first. Sends nothing."""
        return Environment(self, self._async.environment(name), self._thread)

    def health(self) -> dict[str, Any]:
        """Answer of /health."""
        return self._thread.run(self._async.health())

    def version(self) -> str | None:
        """The server's version; None from a server that does not give one."""
        return self._thread.run(self._async.version())


_alive: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _forget_all() -> None:
    """Close all clients at the same time; ``loop_thread`` waits for it after.

    The exit handler of finalizers may have run already, after which calling one does nothing.
    """
    for client in list(_alive):
        if client._forget.detach() is not None:
            _forget(client._async, client._thread)


def _forget(client: AsyncClient, thread: LoopThread) -> None:
    thread.end_with(client.aclose(), thread.stop)


class Environment:
    """Blocking form of AsyncEnvironment."""

    def __init__(self, client: Client, environment: AsyncEnvironment, thread: LoopThread) -> None:
        self._client = client  # keeps the client alive, which closes itself when unreferenced
        self._async = environment
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncEnvironment", type(self).__name__)

    @property
    def name(self) -> str | None:
        return self._async.name

    def splits(self) -> list[Split]:
        return self._thread.run(self._async.splits())

    def tasks(self, split: str) -> Tasks:
        """The tasks of a split; sends nothing yet."""
        return Tasks(self._client, self._async.tasks(split), self._thread)

    def listing(self) -> ListToolsOutput:
        """The server's complete listing of the environment's tools."""
        return self._thread.run(self._async.listing())

    @overload
    def tools(self, format: None = None) -> list[ToolSpec]: ...
    @overload
    def tools(self, format: Format) -> list[dict[str, Any]]: ...

    def tools(self, format: Format | None = None) -> list[ToolSpec] | list[dict[str, Any]]:
        """The tools of every task; a session may have more."""
        if format is None:
            return self._thread.run(self._async.tools())
        return self._thread.run(self._async.tools(format))

    def terminal_tool(self) -> TerminalToolSpec | None:
        return self._thread.run(self._async.terminal_tool())

    def supports_score_group(self) -> bool:
        return self._thread.run(self._async.supports_score_group())

    def session(
        self,
        task: Task | None = None,
        *,
        split: str | None = None,
        index: int | None = None,
        task_spec: JSONObject | None = None,
        secrets: Mapping[str, str] | None = None,
        secrets_in_body: bool = False,
        toolset: str | None = None,
        run_labels: RunLabels | None = None,
        traceparent: str | None = None,
    ) -> Session:
        """A session, as AsyncEnvironment.session makes it."""
        session = self._async.session(
            task,
            split=split,
            index=index,
            task_spec=task_spec,
            secrets=secrets,
            secrets_in_body=secrets_in_body,
            toolset=toolset,
            run_labels=run_labels,
            traceparent=traceparent,
        )
        return Session(self._client, session, self._thread)


class Tasks:
    """Blocking form of AsyncTasks; also a sequence with ``len`` and an index, fetched as it is used."""

    def __init__(self, client: Client, tasks: AsyncTasks, thread: LoopThread) -> None:
        self._client = client
        self._async = tasks
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncTasks", type(self).__name__)

    @property
    def split(self) -> str:
        return self._async.split

    def count(self) -> int:
        """Number of tasks in the split."""
        return self._thread.run(self._async.count())

    def get(self, index: int) -> Task:
        """One task; a negative index counts from the end where the environment allows it."""
        return self._thread.run(self._async.get(index))

    def range(self, start: int | None = None, stop: int | None = None) -> list[Task]:
        """The tasks of a half-open range, as a slice of Python takes them."""
        return self._thread.run(self._async.range(start, stop))

    def __len__(self) -> int:
        return self.count()

    def __getitem__(self, index: int) -> Task:
        return self.get(index)

    def __iter__(self) -> Iterator[Task]:
        pages = self._async.pages()
        while page := self._thread.run(anext(pages, [])):
            yield from page


class Session:
    """Blocking form of AsyncSession; use it with ``with``."""

    def __init__(self, client: Client, session: AsyncSession, thread: LoopThread) -> None:
        self._client = client
        self._async = session
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncSession", type(self).__name__)

    @property
    def sid(self) -> str:
        """The session's id on the server; "" before it is open."""
        return self._async.sid

    @property
    def trace(self) -> str:
        """Trace id of the session, as in AsyncSession.trace."""
        return self._async.trace

    @property
    def rewards(self) -> tuple[float, ...]:
        """Rewards of the calls so far, in the order in which they were received."""
        return self._async.rewards

    @property
    def reward(self) -> float | None:
        """The last reward so far, None before the first."""
        return self._async.reward

    @property
    def finished(self) -> bool:
        """True once a call has answered that the episode is over."""
        return self._async.finished

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Create the session on the server."""
        self._thread.run(self._async.open())

    def close(self) -> None:
        """End the session on the server; safe to call twice."""
        self._thread.run(self._async.close())

    def call(
        self, name: str, input: JSONObject | None = None, *, timeout_s: float | None = None
    ) -> ToolOutput:
        """Call a tool, as AsyncSession.call does."""
        return self._thread.run(self._async.call(name, input, timeout_s=timeout_s))

    def call_terminal(self, text: str = "", *, timeout_s: float | None = None) -> ToolOutput:
        """Call the terminal tool, as AsyncSession.call_terminal does."""
        return self._thread.run(self._async.call_terminal(text, timeout_s=timeout_s))

    def prompt(self) -> list[TextBlock | ImageBlock]:
        """First message to the model; waits until the environment's setup is done."""
        return self._thread.run(self._async.prompt())

    @overload
    def messages(self, format: None = None) -> list[Message]: ...
    @overload
    def messages(self, format: Literal["openai", "openai_chat"]) -> list[dict[str, Any]]: ...
    @overload
    def messages(self, format: Literal["anthropic"]) -> dict[str, Any]: ...

    def messages(self, format: Format | None = None) -> list[Message] | list[dict[str, Any]] | dict[str, Any]:
        """The prompt as messages, as in AsyncSession.messages."""
        if format is None:
            return self._thread.run(self._async.messages())
        if format == "anthropic":
            return self._thread.run(self._async.messages(format))
        return self._thread.run(self._async.messages(format))

    def listing(self) -> ListToolsOutput:
        """The server's complete listing of this session's tools."""
        return self._thread.run(self._async.listing())

    @overload
    def tools(self, format: None = None) -> list[ToolSpec]: ...
    @overload
    def tools(self, format: Format) -> list[dict[str, Any]]: ...

    def tools(self, format: Format | None = None) -> list[ToolSpec] | list[dict[str, Any]]:
        """The tools of this session, those of its task included."""
        if format is None:
            return self._thread.run(self._async.tools())
        return self._thread.run(self._async.tools(format))

    def terminal_tool(self) -> TerminalToolSpec | None:
        """The tool that takes the model's last plain message."""
        return self._thread.run(self._async.terminal_tool())

    def supports_score_group(self) -> bool:
        return self._thread.run(self._async.supports_score_group())

    def score_group(
        self,
        candidates: Sequence[GroupCandidate | Sequence[Message]],
        *,
        timeout_s: float | None = None,
    ) -> list[GroupScore]:
        """Score a group of rollouts, as AsyncSession.score_group does."""
        return self._thread.run(self._async.score_group(candidates, timeout_s=timeout_s))
