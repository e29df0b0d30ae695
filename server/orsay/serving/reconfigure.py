"""Live reload of a changed configuration, while sessions run.

Environments are added, replaced and removed, and changeable settings applied. An invalid configuration
changes nothing and is logged as one error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ..config import Configuration
from ..config.entries import Entry
from ..errors import ConfigError, LoadError, ShuttingDown
from ..logs import get_logger
from ..runtimes.router import Member, RouterRuntime
from ..settings import Settings
from .plan import RuntimeSpec, plan

__all__ = ["LIVE", "Hosting", "Reread"]

_log = get_logger(__name__)

LIVE = (
    "api_keys",
    "api_keys_file",
    "log_level",
    "runtime",
    "max_sessions",
    "max_sessions_per_key",
    "max_calls",
    "max_calls_per_key",
    "idle_limit_s",
    "lifetime_limit_s",
    "call_time_limit_s",
    "setup_time_limit_s",
    "teardown_time_limit_s",
    "client_grace_s",
    "shutdown_grace_s",
    "setup_wait_s",
    "workers",
    "max_workers",
    "sessions_per_worker",
    "threads_per_worker",
    "worker_memory_limit_mib",
    "worker_session_limit",
    "worker_start_limit_s",
    "worker_stall_s",
    "hash_seed",
)
"""Settings that apply to a running server; others need a restart."""


class Hosting:
    """A server's runtime, with its members by spec."""

    def __init__(self, specs: Sequence[RuntimeSpec]) -> None:
        self._members: list[tuple[RuntimeSpec, Member]] = [(spec, spec.member()) for spec in specs]
        self.runtime = RouterRuntime(member for _, member in self._members)

    def spec_of(self, key: str) -> RuntimeSpec:
        """The spec whose runtime has the environment of that key. Raises UnknownEnvironment."""
        wanted = self.runtime.member_of(key)
        return next(spec for spec, member in self._members if member is wanted)

    async def move(self, specs: Sequence[RuntimeSpec]) -> None:
        """Host these specs, keeping runtimes of equal ones. Raises LoadError, and changes nothing then."""
        left = dict(enumerate(self._members))
        members: list[tuple[RuntimeSpec, Member]] = []
        for spec in specs:
            kept = next((number for number, (known, _) in left.items() if known == spec), None)
            members.append((spec, spec.member() if kept is None else left.pop(kept)[1]))
        await self.runtime.replace([member for _, member in members])
        for spec, member in members:
            member.label = spec.title
        self._members = members


class Reread:
    """Reads the configuration again and applies it, on each call."""

    def __init__(
        self,
        read: Callable[[], Configuration],
        current: Configuration,
        hosting: Hosting,
        server_id: str,
        variables: Mapping[str, str],
        use: Callable[[Settings], None],
    ) -> None:
        self._read = read
        self._current = current
        self._hosting = hosting
        self._server_id = server_id
        self._variables = variables
        self._use = use

    async def __call__(self) -> None:
        old = self._current
        try:
            new = await asyncio.to_thread(self._read)
            different = _different(old.settings, new.settings)
            taken = [name for name in different if name in LIVE]
            settings = old.settings.updated(new.settings, taken)
            await self._hosting.move(plan(new.entries, settings, self._server_id, self._variables))
        except (ConfigError, LoadError, ValueError) as exc:
            _log.error("config_refused", file=str(old.file), error=str(exc), hint="nothing has changed")
            return
        except ShuttingDown:
            return
        self._use(settings)
        self._current = Configuration(settings, new.entries, new.origins, new.file)
        waiting = [name for name in different if name not in LIVE]
        if waiting:
            _log.warning("settings_need_a_restart", file=str(old.file), settings=waiting)
        _log.info("config_applied", file=str(old.file), settings=taken, **_changes(old.entries, new.entries))


def _different(old: Settings, new: Settings) -> list[str]:
    names = [name for name in Settings.model_fields if getattr(old, name) != getattr(new, name)]
    if old.keys != new.keys and not {"api_keys", "api_keys_file"} & set(names):
        names.append("api_keys_file")  # the same file with other keys
    return names


def _changes(old: Sequence[Entry], new: Sequence[Entry]) -> dict[str, list[str]]:
    before, after = ({entry.label: entry for entry in entries} for entries in (old, new))
    return {
        "added": [label for label in after if label not in before],
        "removed": [label for label in before if label not in after],
        "changed": [label for label in after if label in before and after[label] != before[label]],
    }
