"""Docker engine client: the only module that calls the Docker SDK, on threads, and translates its errors."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import ssl
import tarfile
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import IO, Any, TypeVar

from ...errors import ConfigError, EngineError, EngineRefused, ImageMissing, NotThere
from .own_thread import in_own_thread, start_thread
from .spec import ContainerSpec, ImageConfig, Pull

__all__ = ["Engine", "Event", "Stream"]

_KEPT_LINES = 20  # of a failed build step
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # the engine colours what a step writes to its standard error
_T = TypeVar("_T")
_THREADS = 8
_BAD_REQUEST = 400
_REMOVAL_TRIES, _REMOVAL_PAUSE_S = 200, 0.05
_ATTACHED = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
_DEFAULT_URL = "unix:///var/run/docker.sock"

Event = Mapping[str, Any]


def _sdk() -> Any:
    """The package ``docker``: optional, and slow to import."""
    try:
        import docker
        import docker.errors
        import docker.types
        import docker.utils
    except ImportError:
        docker = None
    # a folder named docker on sys.path looks like the package, but is empty
    if not hasattr(docker, "from_env"):
        raise ConfigError("containers need the Docker SDK: pip install 'orsay[docker]'")
    return docker


@contextlib.contextmanager
def _ours(sdk: Any, what: str) -> Iterator[None]:
    """Errors of the SDK, and of the HTTP library below it, as EngineError."""
    try:
        yield
    except sdk.errors.NotFound as exc:
        raise NotThere(f"{what}: {exc.explanation or exc}") from exc
    except sdk.errors.APIError as exc:
        kind = EngineRefused if exc.status_code == _BAD_REQUEST else EngineError
        raise kind(f"{what}: {exc.explanation or exc}") from exc
    except (sdk.errors.DockerException, OSError) as exc:  # what requests raises is an OSError too
        raise EngineError(f"{what}: the Docker engine does not answer: {exc}") from exc


class Stream:
    """A stream of the engine, until it ends or ``close`` is called."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close

    def close(self) -> None:
        """End the stream from our side; safe to call twice."""
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it has ended by itself
            self._close()


class Engine:
    """A Docker engine that answers. ``async with`` it, or call ``close``.

    Every method that waits raises EngineError when the engine refuses or does not answer.
    """

    def __init__(self, sdk: Any, api: Any, url: str) -> None:
        self.url = url
        self._sdk = sdk
        self._api = api
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="orsay-docker")

    @classmethod
    async def connect(cls, *, timeout_s: float = 60) -> Engine:
        """The engine that DOCKER_HOST names, else the one of this machine.

        Raises ConfigError: the SDK is not installed, or no engine answers.
        """
        connecting = asyncio.get_running_loop().run_in_executor(None, cls._connect, timeout_s)
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            await asyncio.wait([connecting])
            if connecting.exception() is None:
                await connecting.result().close()
            raise

    @classmethod
    def _connect(cls, timeout_s: float) -> Engine:
        sdk = _sdk()
        url = _DEFAULT_URL
        try:
            url = sdk.utils.kwargs_from_env().get("base_url", url)
            client = sdk.from_env(timeout=timeout_s, max_pool_size=2 * _THREADS)
            client.ping()
        except (sdk.errors.DockerException, OSError) as exc:
            raise ConfigError(
                f"no Docker engine answers at {url}: start it, or set DOCKER_HOST; the user may need to be in"
                f" the group docker ({_reason(exc)})"
            ) from exc
        return cls(sdk, client.api, url)

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection to the engine; safe to call twice. Streams are closed by those who opened
        them.
        """
        self._pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._api.close)

    async def _do(
        self,
        what: str,
        call: Callable[[], _T],
        undo: Callable[[_T], Awaitable[None] | None] | None = None,
    ) -> _T:
        """Run ``call`` on a thread. A cancelled caller waits for its end, and undoes its effect."""

        def run() -> _T:
            with _ours(self._sdk, what):
                return call()

        doing = asyncio.get_running_loop().run_in_executor(self._pool, run)
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            await asyncio.wait([doing])
            if not doing.cancelled() and doing.exception() is None and undo is not None:
                undoing = undo(doing.result())
                if undoing is not None:
                    await undoing
            raise

    # images

    async def image(self, name: str, *, pull: Pull = "missing") -> ImageConfig:
        """Configuration of an image, fetched from its registry first, depending on ``pull``.

        Raises ImageMissing, with the remedy.
        """
        if pull == "always":
            await self._pull(name)
        try:
            found = await self._inspect_image(name)
        except NotThere as exc:
            if pull != "missing":
                raise ImageMissing(_how_to_get(name, "the Docker engine has no such image")) from exc
            await self._pull(name)
            found = await self._inspect_image(name)
        except EngineRefused as exc:
            raise ImageMissing(f"{name!r} cannot be an image: {exc}") from exc
        return ImageConfig.of(found)

    async def _inspect_image(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self._do(f"image {name}", lambda: self._api.inspect_image(name))
        return found

    async def _pull(self, name: str) -> None:
        def pull() -> str | None:
            repository, tag = self._sdk.utils.parse_repository_tag(name)
            with _ours(self._sdk, "it could not be pulled"):
                lines = self._api.pull(repository, tag=tag or "latest", stream=True, decode=True)
                with contextlib.closing(lines):
                    return next((str(line["error"]) for line in lines if "error" in line), None)

        try:
            problem = await in_own_thread(pull, name="orsay-docker-pull")
        except EngineError as exc:
            raise ImageMissing(_how_to_get(name, str(exc))) from exc
        if problem:
            raise ImageMissing(_how_to_get(name, f"it could not be pulled: {problem}"))

    async def build(
        self,
        context: IO[bytes],
        *,
        tag: str,
        dockerfile: str = "Dockerfile",
        buildargs: Mapping[str, str] | None = None,
        target: str | None = None,
        labels: Mapping[str, str] | None = None,
        no_cache: bool = False,
        on_line: Callable[[str], None] = lambda line: None,
    ) -> str:
        """Build an image from a tar of its context, and return its id; no limit in time.

        ``on_line`` gets each line of output. Raises EngineError with the last lines of the step that failed.
        When cancelled, the build ends with the step under way.
        """
        loop = asyncio.get_running_loop()
        given_up = threading.Event()

        def to_loop(line: str) -> None:
            loop.call_soon_threadsafe(on_line, line)

        def build() -> str:
            with _ours(self._sdk, f"cannot build {tag}"):
                events = self._api.build(
                    fileobj=context,
                    custom_context=True,
                    tag=tag,
                    dockerfile=dockerfile,
                    buildargs=dict(buildargs or {}),
                    target=target or "",
                    labels=dict(labels or {}),
                    nocache=no_cache,
                    rm=True,
                    forcerm=True,
                    decode=True,
                    timeout=None,
                )
                with contextlib.closing(events):  # its connection with it, also of a build that was given up
                    return _follow_build(events, tag, to_loop, given_up)

        try:
            return await in_own_thread(build, name="orsay-docker-build")
        finally:
            given_up.set()

    async def remove_image(self, name: str) -> None:
        """Raises NotThere."""
        await self._do(f"image {name}", lambda: self._api.remove_image(name, force=True))

    async def images(self, labels: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """Images that have all the labels: ``Id``, ``Labels``, ``RepoTags``."""
        found: list[Mapping[str, Any]] = await self._do(
            "cannot list images", lambda: self._api.images(filters={"label": _pairs(labels)})
        )
        return found

    async def remove_images(self, images: Sequence[Mapping[str, Any]]) -> None:
        """Remove all of them, some of which may be made from others; what is gone is no error."""
        for name in [name for each in images for name in each["RepoTags"] or ()] + [e["Id"] for e in images]:
            if name != "<none>:<none>":
                with contextlib.suppress(NotThere):  # without a name, it goes with what was made from it
                    await self.remove_image(name)

    async def commit(self, container: str, image: str, *, labels: Mapping[str, str]) -> None:
        """Make an image of a container's file system, whose processes wait meanwhile.

        It has the labels of the container and ``labels``.
        """
        repository, _, tag = image.partition(":")
        changes = [f"LABEL {json.dumps(name)}={json.dumps(value)}" for name, value in labels.items()]
        await self._do(
            "cannot make an image of it",
            lambda: self._api.commit(container, repository, tag, changes=changes),
            lambda _: self.remove_image(image),
        )

    # containers

    async def create(self, spec: ContainerSpec, *, name: str | None = None) -> str:
        """Make a container, not started yet, and return its id."""
        return await self._do("cannot make it", lambda: self._create(spec, name), self.remove)

    def _create(self, spec: ContainerSpec, name: str | None) -> str:
        api, types = self._api, self._sdk.types
        port = spec.published_port
        has_tmp = any(bind.target.rstrip("/") == "/tmp" for bind in spec.binds)
        host = api.create_host_config(
            init=spec.init,
            auto_remove=True,
            restart_policy={"Name": "no"},
            network_mode=spec.network,
            userns_mode="host" if spec.network == "host" else None,  # an engine may map users, but not there
            port_bindings={port: ("127.0.0.1", None)} if port else None,
            mounts=[types.Mount(b.target, b.source, type="bind", read_only=b.read_only) for b in spec.binds],
            nano_cpus=round(spec.cpus * 1e9) if spec.cpus else None,
            mem_limit=spec.memory_bytes,
            memswap_limit=spec.memory_bytes,
            pids_limit=spec.pids,
            security_opt=["no-new-privileges"],
            cap_drop=["ALL"],
            cap_add=list(spec.capabilities),
            read_only=spec.read_only,
            tmpfs={"/tmp": "rw,mode=1777"} if spec.read_only and not has_tmp else None,
            log_config=types.LogConfig(
                type="json-file", config={"max-size": str(spec.log_bytes), "max-file": "1"}
            )
            if spec.log_bytes
            else types.LogConfig(type="none"),
        )
        made = api.create_container(
            spec.image,
            list(spec.command) or None,
            name=name,
            entrypoint=list(spec.entrypoint) or None,
            environment=dict(spec.variables),
            labels=dict(spec.labels),
            user=spec.user,
            ports=[port] if port else None,
            detach=True,  # with it, stdin stays open after the attached client disconnects
            stdin_open=True,
            healthcheck={"test": ["NONE"]},  # the runtime probes the server itself, without a process for it
            host_config=host,
        )
        return str(made["Id"])

    async def start(self, container: str) -> None:
        """Raises NotThere, or EngineError when its command cannot be run."""
        await self._do("cannot start it", lambda: self._api.start(container))

    async def kill(self, container: str, signal: str = "SIGKILL") -> None:
        """Send a signal. Raises NotThere; EngineError also when it does not run."""
        await self._do("cannot signal the container", lambda: self._api.kill(container, signal))

    async def remove(self, container: str) -> None:
        """Kill it if it runs, and remove it with its anonymous volumes; returns when it is gone."""
        with contextlib.suppress(NotThere):
            try:
                await self._do(
                    "cannot remove the container",
                    lambda: self._api.remove_container(container, force=True, v=True),
                )
            except NotThere:
                raise
            except EngineError as exc:
                if "already in progress" not in str(exc):
                    raise
                await self._until_removed(container)  # the engine is removing it already

    async def _until_removed(self, container: str) -> None:
        """Raises NotThere when it is gone, EngineError when that takes too long."""
        for _ in range(_REMOVAL_TRIES):
            await self.inspect(container)
            await asyncio.sleep(_REMOVAL_PAUSE_S)
        raise EngineError("cannot remove the container: the engine has begun to, but does not finish")

    async def inspect(self, container: str) -> Mapping[str, Any]:
        """The engine's description of a container. Raises NotThere."""
        found: Mapping[str, Any] = await self._do("container", lambda: self._api.inspect_container(container))
        return found

    async def containers(self, labels: Mapping[str, str], *, sizes: bool = False) -> list[Mapping[str, Any]]:
        """Containers that have all the labels, running or not: ``Id``, ``Labels``, ``State``.

        ``sizes``: also ``SizeRw``, the bytes of their changes, for which the engine reads all of these.
        """
        found: list[Mapping[str, Any]] = await self._do(
            "cannot list containers",
            lambda: self._api.containers(all=True, size=sizes, filters={"label": _pairs(labels)}),
        )
        return found

    async def attach(
        self, container: str, *, on_data: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> tuple[Stream, Callable[[bytes], None]]:
        """Attach to its output and its standard input, best before it starts.

        ``on_data`` gets raw frames and ``on_end`` nothing, both on a thread. The function returned writes;
        it blocks and raises OSError when the connection is broken.
        """
        raw, sock = await self._attached(container)
        sock.settimeout(None)

        def read() -> None:
            try:
                while data := sock.recv(65536):
                    on_data(data)
            except (OSError, ValueError):
                pass  # closed by either side
            finally:
                _hang_up(raw)
                on_end()

        start_thread(read, "orsay-docker-attach")
        return Stream(lambda: sock.shutdown(2)), sock.sendall

    async def attach_protocol(self, container: str, protocol: asyncio.Protocol) -> None:
        """Attach as ``attach`` does, but on the event loop: ``protocol`` gets raw frames and writes input."""
        raw, sock = await self._attached(container)
        try:
            if isinstance(sock, ssl.SSLSocket):
                raise EngineError(f"cannot attach: the engine at {self.url} speaks TLS, sandboxes do not")
            own = sock.dup()
        finally:
            _hang_up(raw)
        await asyncio.get_running_loop().create_connection(lambda: protocol, sock=own)

    async def _attached(self, container: str) -> tuple[Any, Any]:
        """What ``attach_socket`` gives, and the socket below it. ``_hang_up`` closes both."""
        raw = await self._do(
            "cannot attach", lambda: self._api.attach_socket(container, params=_ATTACHED), _hang_up
        )
        return raw, getattr(raw, "_sock", raw)

    async def put(self, container: str, path: str, content: bytes, *, mode: int) -> None:
        """Write a file into a container, started or not; the folder exists."""
        folder, _, name = path.rpartition("/")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
        await self._do(
            "cannot copy into it", lambda: self._api.put_archive(container, folder or "/", packed.getvalue())
        )

    async def events(
        self,
        labels: Mapping[str, str],
        *,
        on_event: Callable[[Event], None],
        on_end: Callable[[], None],
        since: float | None = None,
    ) -> Stream:
        """Subscribe to events of containers with the labels; callbacks run on the event loop.

        ``since`` (seconds, by the clock of the engine) replays what happened from then on.
        """
        filters = {"type": "container", "label": _pairs(labels)}
        source = await self._do(
            "cannot receive events",
            lambda: self._api.events(filters=filters, decode=True, since=int(since) if since else None),
            lambda made: made.close(),
        )
        loop = asyncio.get_running_loop()

        def call_on_loop(callback: Callable[..., None], *values: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(callback, *values)

        def read() -> None:
            with contextlib.suppress(OSError, ValueError, self._sdk.errors.DockerException):
                for event in source:
                    call_on_loop(on_event, event)
            stream.close()
            call_on_loop(on_end)

        stream = Stream(source.close)
        start_thread(read, "orsay-docker-events")
        return stream

    # networks

    async def create_network(
        self, name: str, *, labels: Mapping[str, str], interface: str, internal: bool = True
    ) -> str:
        """A network without traffic between its members; ``internal``: no route out. Returns its id.

        ``interface`` is the name of the bridge on the engine's machine, 15 characters at most.
        """
        options = {
            "com.docker.network.bridge.name": interface,
            "com.docker.network.bridge.enable_icc": "false",
        }

        def make() -> str:
            made = self._api.create_network(
                name,
                driver="bridge",
                internal=internal,
                options=options,
                labels=dict(labels),
                check_duplicate=True,
            )
            return str(made["Id"])

        return await self._do(f"cannot make network {name}", make, self.remove_network)

    async def has_network(self, name: str) -> bool:
        """True where there is a network of that name or id."""
        try:
            await self._do(f"network {name}", lambda: self._api.inspect_network(name))
        except NotThere:
            return False
        return True

    async def gateway(self, name: str) -> tuple[str | None, bool]:
        """The engine's own address in a network, if it has one; and True if no route leads out of it."""
        found = await self._do(f"network {name}", lambda: self._api.inspect_network(name))
        addresses = [each.get("Gateway") for each in found["IPAM"].get("Config") or ()]
        # podman and some networks write the prefix behind it
        known = [each.partition("/")[0] for each in addresses if each and ":" not in each]
        return next(iter(known), None), bool(found.get("Internal"))

    async def networks(self, labels: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """Networks that have all the labels: ``Id``, ``Name``, ``Labels``."""
        found: list[Mapping[str, Any]] = await self._do(
            "cannot list networks", lambda: self._api.networks(filters={"label": _pairs(labels)})
        )
        return found

    async def remove_network(self, network: str) -> None:
        """Remove a network, if it exists. Raises EngineError while a container is in it."""
        with contextlib.suppress(NotThere):
            await self._do("cannot remove the network", lambda: self._api.remove_network(network))


def _hang_up(raw: Any) -> None:
    """Close the layers of ``attach_socket``, outermost first: a response needs its socket to close."""
    sock = getattr(raw, "_sock", raw)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        raw._response.close()
    raw.close()
    sock.close()


def _pairs(labels: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in labels.items()]


def _reason(error: BaseException) -> str:
    """Error text of the operating system, from the causes of a library's exception."""
    reason = str(error)
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror:
            reason = below.strerror
        below = below.__cause__ or below.__context__
    return reason


def _how_to_get(name: str, why: str) -> str:
    return (
        f"no image {name}: {why}; build it with `orsay build ENV_DIR --tag {name}`, or fetch it with"
        f" `docker pull {name}`"
    )


def _follow_build(
    events: Iterator[Mapping[str, Any]], tag: str, on_line: Callable[[str], None], given_up: threading.Event
) -> str:
    """Image id from the events of a build. Raises EngineError with the output of the failed step."""
    step: deque[str] = deque(maxlen=_KEPT_LINES)
    image = rest = problem = ""
    for event in events:
        if given_up.is_set():
            raise EngineError(f"the build of {tag} was given up")
        if "error" in event:
            lines_of_step = "".join(f"\n  {line}" for line in [*step, rest] if line)
            problem = f"{str(event['error']).strip()}{lines_of_step}"
        image = (event.get("aux") or {}).get("ID", image)
        *lines, rest = (rest + _COLOUR.sub("", str(event.get("stream", "")))).split("\n")
        for line in filter(str.strip, lines):
            if line.startswith("Step "):
                step.clear()
            step.append(line.rstrip())
            on_line(line.rstrip())
    if problem or not image:
        raise EngineError(f"cannot build {tag}: {problem or 'the engine named no image at the end'}")
    return image
