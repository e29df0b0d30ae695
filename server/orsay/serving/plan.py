"""Plan of runtimes for a configuration: worker pools, containers and other servers, shared if possible.

A spec has everything that defines a runtime. Equal specs share one runtime: that is how a configuration that
is read again keeps unchanged runtimes.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import urlsplit

from ..config.entries import CodeOptions, Entry, ImageTable, Table, UpstreamOptions, UrlTable
from ..errors import LoadError
from ..logs import get_logger
from ..runtimes.base import Runtime
from ..runtimes.docker.options import DockerOptions
from ..runtimes.docker.sandboxes import SandboxAddress
from ..runtimes.execution.episode import Limits
from ..runtimes.loader import load
from ..runtimes.local import LocalRuntime
from ..runtimes.process.frames import WorkerConfig
from ..runtimes.process.pool import ProcessRuntime
from ..runtimes.remote.options import RemoteOptions
from ..runtimes.router import Member
from ..settings import SANDBOXES_URL, Settings, hash_seed_of_process, set_variables
from ..tracing import mark_log_records
from .data import NO_DATA, CodeData, data_of

__all__ = ["CodeSpec", "RuntimeSpec", "docker_options", "plan"]

_CODE_SETTINGS = (
    "workers",
    "max_workers",
    "sessions_per_worker",
    "threads_per_worker",
    "call_time_limit_s",
    "setup_time_limit_s",
    "teardown_time_limit_s",
    "max_result_bytes",
    "worker_memory_limit_mib",
    "worker_session_limit",
    "worker_start_limit_s",
    "worker_stall_s",
    "hash_seed",
    "stream_after_s",
)
_log = get_logger(__name__)
_NO_OPTIONS = frozenset({"targets", "directory"})
_MIB = 1024 * 1024
_HOOK_MARGIN_S = 60.0


class RuntimeSpec(Protocol):
    """Specification of the runtime for one entry, or for several; ``title`` names it in errors."""

    @property
    def title(self) -> str: ...

    def member(self) -> Member:
        """A member for a runtime that is started later. Raises LoadError."""


def plan(
    entries: Sequence[Entry],
    settings: Settings,
    server_id: str,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> list[RuntimeSpec]:
    """Runtime specs of all entries, in order; code without own options shares one spec.

    ``variables`` are additional environment variables of the code. Raises ConfigError for invalid container
    options.
    """
    specs: list[RuntimeSpec | None] = []
    shared: list[Entry] = []
    tables = [entry.table for entry in entries if isinstance(entry.table, UpstreamOptions)]
    hidden = tuple(table.api_key_variable for table in tables if table.api_key_variable is not None)
    for entry in entries:
        table = entry.table
        if isinstance(table, ImageTable):
            options = docker_options(table, settings)
            sandboxes = _sandboxes(settings, variables) if table.sandboxes else None
            specs.append(ImageSpec(entry.label, table, options, server_id, sandboxes, str(entry)))
            continue
        if isinstance(table, UrlTable):
            specs.append(UrlSpec(entry.label, table, _remote_options(table, settings), str(entry)))
            continue
        data = data_of(entry, settings.sandboxes_data)
        if table.model_fields_set - _NO_OPTIONS or data.folder or _hides(entry, shared):
            specs.append(_code([entry], table, settings, hidden, variables, data))
        else:
            if not shared:
                at = len(specs)
                specs.append(None)
            shared.append(entry)
    if shared:
        notes = [data_of(each, settings.sandboxes_data).note for each in shared]
        data = CodeData(note="; ".join(filter(None, notes)))
        specs[at] = _code(shared, CodeOptions(), settings, hidden, variables, data)
    return [spec for spec in specs if spec is not None]


def _hides(entry: Entry, others: Sequence[Entry]) -> bool:
    """True if a module of its folder has the same name as one of another folder in the same process."""
    names = _modules(entry)
    return any(other.folders != entry.folders and names & _modules(other) for other in others)


def _modules(entry: Entry) -> set[str]:
    return {module.name for module in pkgutil.iter_modules(entry.folders)} if entry.folders else set()


def _code(
    entries: Sequence[Entry],
    table: CodeOptions,
    settings: Settings,
    hidden_variables: tuple[str, ...],
    variables: Mapping[str, str],
    data: CodeData,
) -> CodeSpec:
    own = {name: getattr(table, name, None) for name in _CODE_SETTINGS}
    return CodeSpec(
        targets=tuple(target for entry in entries for target in entry.targets),
        folders=tuple(dict.fromkeys(folder for entry in entries for folder in entry.folders)),
        in_process=(table.runtime or settings.runtime) == "local",
        options={name: getattr(settings, name) if own[name] is None else own[name] for name in own},
        table=table,
        title=", ".join(map(str, entries)),
        labels=tuple(entry.label for entry in entries),
        hidden_variables=hidden_variables,
        variables=variables,
        data=data,
        data_path=settings.sandboxes_data_path,
        hidden=frozenset(key.get_secret_value() for key in settings.keys),
    )


def _sandboxes(settings: Settings, variables: Mapping[str, str]) -> SandboxAddress | None:
    """Where containers find the sandboxes; None unless a server is planned that has some."""
    port = urlsplit(variables.get(SANDBOXES_URL, "")).port
    return None if port is None else SandboxAddress(settings.host, port, settings.sandboxes_address)


def _member(title: str, table: Table, runtime: Runtime, **more: Any) -> Member:
    return Member(
        title,
        runtime,
        serve=table.names,
        max_sessions=table.max_sessions,
        call_time_limit_s=table.call_time_limit_s,
        setup_time_limit_s=table.setup_time_limit_s,
        sandboxes=isinstance(table, UpstreamOptions) and bool(table.sandboxes),
        **more,
    )


@dataclass(frozen=True)
class CodeSpec:
    """A pool of worker processes, or this process."""

    targets: tuple[str, ...]
    folders: tuple[str, ...]
    in_process: bool
    options: Mapping[str, Any]
    """Effective settings, by their names."""
    table: CodeOptions
    title: str = field(compare=False)
    labels: tuple[str, ...] = field(compare=False)
    hidden: frozenset[str] = field(compare=False, repr=False)
    """Arguments to remove from ``sys.argv`` of workers."""
    hidden_variables: tuple[str, ...] = field(compare=False)
    variables: Mapping[str, str] = field(compare=False, repr=False)
    """Additional environment variables of the code."""
    data: CodeData = NO_DATA
    data_path: str = ""

    def member(self) -> Member:
        runtime = self.runtime()
        retire = runtime.retire if isinstance(runtime, ProcessRuntime) else None
        return _member(self.title, self.table, runtime, retire=retire, metric_label=", ".join(self.labels))

    def runtime(self, classes: Sequence[type] = ()) -> LocalRuntime | ProcessRuntime:
        """Make the runtime; ``classes``, in this process only, replace the targets. Raises LoadError."""
        return self._local(classes) if self.in_process else self._process()

    def _import_path(self) -> list[str]:
        """Add the folders of the entries before the current one, which the loader would put first."""
        first = dict.fromkeys([*self.folders, os.getcwd()]) if self.folders else {}
        return [*first, *(each for each in sys.path if each not in first)]

    def _local(self, classes: Sequence[type]) -> LocalRuntime:
        sys.path[:] = self._import_path()
        limits = Limits(
            call_time_limit_s=self.options["call_time_limit_s"],
            setup_time_limit_s=self.options["setup_time_limit_s"],
            teardown_time_limit_s=self.options["teardown_time_limit_s"],
            max_result_bytes=self.options["max_result_bytes"],
            slow_after_s=self.options["stream_after_s"],
        )
        self._check_data()
        set_variables(self.variables)
        hash_seed = hash_seed_of_process()  # before author code can change the variable
        mark_log_records()  # author code may log as soon as it is imported
        loaded = classes or [cls for target in self.targets for cls in load(target)]
        threads = self.options["threads_per_worker"]
        return LocalRuntime(loaded, limits, threads=threads, hash_seed=hash_seed)

    def _check_data(self) -> None:
        """This process sees the machine as it is: its data must be there, as a link. Raises LoadError."""
        self._note_data()
        folder, path = self.data.folder, self.data_path
        if folder and os.path.realpath(path) != os.path.realpath(folder):
            text = (
                f"the runtime 'local' cannot show {folder} at {path}: use worker processes, or a link there"
            )
            if self.data.required:
                raise LoadError(f"{self.title}: {text}")
            _log.warning("data_not_shown", environments=self.title, folder=folder, path=path, reason=text)

    def _note_data(self) -> None:
        if self.data.note:
            _log.warning("data_not_shown", environments=self.title, reason=self.data.note)

    def _process(self) -> ProcessRuntime:
        self._note_data()
        options = self.options
        config = WorkerConfig(
            targets=list(self.targets),
            sys_path=self._import_path(),
            argv=[each for each in sys.argv if not {each, each.partition("=")[2]} & self.hidden],
            call_time_limit_s=options["call_time_limit_s"],
            setup_time_limit_s=options["setup_time_limit_s"],
            teardown_time_limit_s=options["teardown_time_limit_s"],
            max_result_bytes=options["max_result_bytes"],
            slow_after_s=options["stream_after_s"],
            threads=options["threads_per_worker"],
            hash_seed=options["hash_seed"],
            hidden_variables=list(self.hidden_variables),
            variables=dict(self.variables),
            folders={self.data_path: self.data.folder} if self.data.folder else {},
            folders_required=self.data.required,
        )
        memory = options["worker_memory_limit_mib"]
        return ProcessRuntime(
            config,
            workers=options["workers"],
            start_limit_s=options["worker_start_limit_s"],
            stall_s=options["worker_stall_s"],
            memory_limit_bytes=None if memory is None else memory * _MIB,
            session_limit=options["worker_session_limit"],
            sessions_per_worker=options["sessions_per_worker"],
            max_workers=options["max_workers"],
        )


@dataclass(frozen=True)
class UrlSpec:
    """Runtime for another server."""

    label: str
    table: UrlTable
    options: RemoteOptions
    title: str = field(compare=False)

    def member(self) -> Member:
        from ..runtimes.remote.runtime import RemoteRuntime  # loads an HTTP client

        runtime = RemoteRuntime(self.table.url, self.options, label=self.label)
        return _member(self.title, self.table, runtime, metric_label=self.label)


@dataclass(frozen=True)
class ImageSpec:
    """Runtime for containers of an image."""

    label: str
    table: ImageTable
    options: DockerOptions
    server_id: str
    sandboxes: SandboxAddress | None
    title: str = field(compare=False)

    def member(self) -> Member:
        from ..runtimes.docker.runtime import DockerRuntime  # needs the extra docker

        runtime = DockerRuntime(
            self.options, server_id=self.server_id, label=self.label, sandboxes=self.sandboxes
        )
        return _member(self.title, self.table, runtime, metric_label=self.label)


def docker_options(table: ImageTable, settings: Settings) -> DockerOptions:
    """Container options from the table. Raises ConfigError for invalid ones."""
    given = {
        name: value for name, value in table if value is not None and name not in UpstreamOptions.model_fields
    }
    return DockerOptions(**given, hash_seed=settings.hash_seed, remote=_remote_options(table, settings))


def _remote_options(table: UpstreamOptions, settings: Settings) -> RemoteOptions:
    names = UpstreamOptions.model_fields.keys() - Table.model_fields.keys()
    names -= {"api_key_variable", "api_key_file", "sandboxes"}  # read into api_key; of the member
    given = {name: value for name in names if (value := getattr(table, name)) is not None}
    return RemoteOptions(
        **given,
        hook_limit_s=(table.setup_time_limit_s or settings.setup_time_limit_s) + _HOOK_MARGIN_S,
        max_result_bytes=settings.max_result_bytes,
        slow_after_s=settings.stream_after_s,
    )
