"""Episodes for attacks: sessions, commands in them, and what the final tool gives for doing nothing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shlex
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from orsay_protocol.headers import SECRETS, encode_secrets
from orsay_protocol.sse import Decoder

from ..failures import Failed, NotSupported, Unreachable
from ..reply import Reply
from ..strict import json_of
from ..target import Target, TargetSession
from .scripts import PRELUDE, seen_in
from .tools import CommandTool, FinalTool, command_tools, final_tool
from .verdicts import Broken, Lost, Weak

__all__ = ["Bench", "Episode", "Graded", "Options"]

LARGEST_ANSWER = 32 << 20
"""Bytes of an answer, above which a tool is said not to bound its output."""
_CALL_LIMIT_S = 60.0
_SLACK_S = 15.0
_FINAL_LIMIT_S = 180.0
_HEALTH_LIMIT_S = 10.0
_ECHO_LIMIT_S = 30.0
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Options:
    """What the user decides: tools, the task, and attacks on resources where no limit is seen inside."""

    tool: str | None = None
    final: str | None = None
    task: str | None = None
    resources: bool = False


@dataclass(frozen=True, slots=True)
class Graded:
    """Rewards of an episode together, and why the final tool gave none, if it did not."""

    reward: float
    error: str = ""


@dataclass
class Episode:
    """One session, with the rewards of its calls so far."""

    bench: Bench
    session: TargetSession
    reward: float = 0.0
    token: str = field(default_factory=lambda: f"canary{secrets.token_hex(8)}")
    """A word that occurs nowhere else."""

    async def run(self, script: str, limit_s: float = _CALL_LIMIT_S, *, ask_limit: bool = True) -> str:
        """What a script of the shell prints, as the tool shows it. Raises Lost, and Broken if it is huge."""
        tool = self.bench.command
        value = tool.input(script, limit_s if ask_limit else None)
        return await self._call(tool.name, value, limit_s + _SLACK_S)

    async def seen(self, script: str, limit_s: float = _CALL_LIMIT_S) -> defaultdict[str, list[str]]:
        """What the script reports with ``say NAME TEXT``: texts by name. Raises as ``run``."""
        return seen_in(await self.run(f"{PRELUDE}\n{script}", limit_s))

    async def echoes(self) -> bool:
        """Whether commands run."""
        try:
            text = await self.run(f"printf '%s-%s\\n' {self.token} $((6*7))", _ECHO_LIMIT_S)
        except (Lost, Broken):
            return False
        return f"{self.token}-42" in text

    async def submit(self) -> Graded:
        """End the episode by its final tool."""
        final = self.bench.must_end()
        try:
            await self._call(final.name, final.input, _FINAL_LIMIT_S)
        except (Lost, Broken) as exc:
            return Graded(self.reward, str(exc))
        return Graded(self.reward)

    async def _call(self, name: str, value: Mapping[str, Any], limit_s: float) -> str:
        try:
            async with asyncio.timeout(limit_s):
                reply = await self._answer(name, value)
        except TimeoutError:
            raise Lost(f"{name} gave no answer within {limit_s:g} s") from None
        except httpx.HTTPError as exc:
            raise Lost(f"{name} gave no answer: {type(exc).__name__}: {exc}") from exc
        try:
            if reply.raised is not None:
                raise Lost(f"{name} raised: {reply.raised[:300]}")
            result = reply.result
        except Failed as exc:
            raise Lost(f"{name}: {exc}") from exc
        if result.get("ok") is not True:
            raise Lost(f"{name} was refused: {str(result.get('error'))[:300]}")
        output = result.get("output") or {}
        self.reward += float(output.get("reward") or 0)
        return "\n".join(str(block.get("text") or "") for block in output.get("blocks") or [])

    async def _answer(self, name: str, value: Mapping[str, Any]) -> Reply:
        body = bytearray()
        async with self.session.open_stream(name, value) as answer:
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > LARGEST_ANSWER:
                    raise Broken(
                        f"{name} sent more than {LARGEST_ANSWER >> 20} MiB as the output of one call"
                    )
        events = Decoder().feed(bytes(body)) if answer.status_code == 200 else []
        return Reply(answer.status_code, answer.headers, bytes(body), events)


class Bench:
    """The environment under attack. Make it with ``Bench.open``."""

    def __init__(self, target: Target, options: Options) -> None:
        self.target = target
        self.options = options
        self.command: CommandTool
        self._final: FinalTool | None = None
        self._stack = AsyncExitStack()
        self._kept: dict[str, Episode] = {}
        self._baseline: Graded | None = None
        self.source = _source(target, options.task)

    @classmethod
    @asynccontextmanager
    async def open(cls, target: Target, options: Options | None = None) -> AsyncIterator[Bench]:
        """Find the tools.

        Raises Unreachable if no tool runs commands, a named one is missing, or there is no sandbox.
        """
        bench = cls(target, options or Options())
        async with bench._stack:
            await bench._find_tools()
            yield bench

    @property
    def tools(self) -> str:
        """Names of the tools in use, for readers."""
        final = self._final.name if self._final else "no final tool"
        return f"{self.command.name}, {final}"

    @property
    def here(self) -> bool:
        """The server is a process of this machine."""
        return urlsplit(self.target.url).hostname in ("127.0.0.1", "localhost", "::1")

    @property
    def port(self) -> int:
        """The server's."""
        parts = urlsplit(self.target.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @asynccontextmanager
    async def episode(self, secret: Mapping[str, str] | None = None) -> AsyncIterator[Episode]:
        """A session on the task. Raises Lost if it cannot be made."""
        headers = {SECRETS: encode_secrets(secret)} if secret else None
        session = TargetSession(self.target, await self.target.new_sid())
        try:
            try:
                answer = await session.post("/create", self.source, headers)
                if answer.status_code == 200:
                    answer = await session.get(self.target.path("/prompt"))  # waits for setup
            except (TimeoutError, httpx.HTTPError) as exc:
                raise Lost(f"a session could not be made: {type(exc).__name__} {exc}") from exc
            if answer.status_code != 200:
                raise Lost(f"a session could not be made: {answer.status_code} {answer.text[:300]}")
            yield Episode(self, session)
        finally:
            with contextlib.suppress(httpx.HTTPError, TimeoutError):
                await session.post("/delete")
                await session.post("/delete_session")

    async def explorer(self) -> Episode:
        """A session that attacks share which leave nothing behind; made anew if it was lost."""
        return await self._keep("explorer")

    async def neighbour(self) -> Episode:
        """A session in which nothing is attacked."""
        return await self._keep("neighbour")

    async def _keep(self, name: str) -> Episode:
        kept = self._kept.get(name)
        if kept is None or not await kept.echoes():
            kept = self._kept[name] = await self._stack.enter_async_context(self.episode())
        return kept

    def must_end(self) -> FinalTool:
        """The final tool. Raises NotSupported."""
        if self._final is None:
            raise NotSupported("no tool looks like the one that ends the episode; name it with --submit")
        return self._final

    async def baseline(self) -> Graded:
        """The reward of an episode in which nothing is done: a command without effect, and the final tool.

        The larger of two. Raises NotSupported if there is none.
        """
        self.must_end()
        if self._baseline is None:
            found = []
            for _ in range(2):
                async with self.episode() as episode:
                    await episode.run(":")
                    found.append(await episode.submit())
            self._baseline = max(found, key=lambda each: each.reward)
        if self._baseline.error:
            raise NotSupported(
                f"an episode in which nothing is done cannot be graded: {self._baseline.error}"
            )
        return self._baseline

    async def expect_no_gain(self, script: str, done: str, *, limit_s: float = _CALL_LIMIT_S) -> str:
        """Run a script and submit: the reward must not rise. Raises Broken, or Weak if grading fails."""
        base = await self.baseline()
        if base.reward >= 1:
            raise NotSupported(
                f"doing nothing gets the reward {base.reward:g} already: there is nothing to gain"
            )
        async with self.episode() as episode:
            with contextlib.suppress(Lost):  # a replaced shell may end the very command that replaced it
                await episode.run(f"{PRELUDE}\n{script}", limit_s)
            graded = await episode.submit()
        if graded.reward > base.reward + _EPSILON:
            raise Broken(
                f"the reward rose from {base.reward:g}, for doing nothing, to {graded.reward:g}: {done}"
            )
        if graded.error:
            raise Weak(f"grading failed, in place of a reward: {graded.error}")
        return f"the reward was {graded.reward:g}; doing nothing gets {base.reward:g}"

    async def expect_fine(self, episode: Episode, *, may_be_lost: bool = False) -> str:
        """After an attack on resources: server, neighbour and session still answer.

        Raises Broken if others suffered, Weak if only the session itself did.
        """
        try:
            async with asyncio.timeout(_HEALTH_LIMIT_S):
                answer = await self.target.get("/list_environments")
            if answer.status_code != 200:
                raise Broken(f"the server answers {answer.status_code} afterwards")
        except (TimeoutError, httpx.HTTPError) as exc:
            raise Broken(f"the server does not answer afterwards: {type(exc).__name__}") from exc
        neighbour = self._kept.get("neighbour")
        if neighbour is not None and not await neighbour.echoes():
            raise Broken("another session runs no commands afterwards")
        if await episode.echoes():
            return "the session and its neighbour went on"
        if may_be_lost:
            return "the session was lost, its neighbour went on"
        raise Weak("the session runs no commands afterwards; its neighbour does")

    def seen_from_here(self, word: str) -> int | None:
        """Processes of this machine with that word among their arguments; None if the server is elsewhere."""
        if not self.here or not Path("/proc/self/cmdline").exists():
            return None
        count = 0
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                count += word.encode() in path.read_bytes()
        return count

    async def _find_tools(self) -> None:
        try:
            async with self.episode() as episode:
                specs = await self._specs(episode.session)
                self._final = final_tool(specs, self.options.final)
                tried = []
                for tool in command_tools(specs, self.options.tool):
                    self.command = tool
                    if await episode.echoes():
                        await self._expect_sandbox(episode)
                        return
                    tried.append(tool.name)
        except Lost as exc:
            raise Unreachable(str(exc)) from exc
        names = ", ".join(sorted(set(tried))) or "none has a fitting name"
        raise Unreachable(f"no tool of {self.target.env} runs commands ({names}); name one with --tool")

    async def _expect_sandbox(self, episode: Episode) -> None:
        """Raises Unreachable if commands run on the machine itself, which attacks would destroy."""
        path = Path(tempfile.gettempdir(), episode.token)
        seen = await episode.seen(
            f"""
( : >{shlex.quote(str(path))} ) 2>/dev/null
while read -r d m t rest; do [ "$m" = / ] && root=$t; done </proc/self/mounts
[ "$(cat /proc/2/comm 2>/dev/null)" = kthreadd ] && say root "${{root:-unknown}}" """
        )
        if _removed(path) or (seen["root"] and seen["root"] != ["overlay"]):
            raise Unreachable(
                f"commands of {self.command.name} run on the machine itself, or write to its folders: every"
                " model can do there what it likes, and attacks would destroy it, so none is played"
            )

    async def _specs(self, session: TargetSession) -> Sequence[dict[str, Any]]:
        answer = await session.get(self.target.path("/task_tools"))
        if answer.status_code != 200:
            return self.target.tool_specs()
        return list(json_of(answer)["tools"])


def _removed(path: Path) -> bool:
    """True if the file was there."""
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def _source(target: Target, asked: str | None) -> dict[str, Any]:
    """Body of ``/create``. Raises Unreachable for a task that is written wrongly."""
    if asked is None:
        if not target.count:
            raise Unreachable("no split of this environment has a task")
        return target.task_source()
    found = re.fullmatch(r"(.+):(\d+)", asked)
    if found is None:
        raise Unreachable(f"{asked!r} is no task; write it as SPLIT:INDEX, such as train:0")
    return {"split": found[1], "index": int(found[2]), "env_name": target.env}
