"""Root file systems of sandboxes: layers over the machine's own system, or over an unpacked image.

All that is mounted here lies in a mount namespace of the sandbox alone, and is gone with it. There, ``PLACE``
is a small file system in which its parts have their places.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import linux
from .users import FIRST_ID

__all__ = [
    "HOST",
    "PLACE",
    "Parts",
    "assemble",
    "check_places",
    "hide_secrets",
    "name_machine",
    "prepare_host",
]

HOST = "host"
"""The image that is the machine's own system."""
PLACE = "/tmp"

_HOST_FOLDERS = ("usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_OWN_FOLDERS: Mapping[str, int] = {
    **dict.fromkeys(("home", "work", "opt", "srv", "mnt", "media", "run", "run/lock", "dev", "proc"), 0o755),
    **dict.fromkeys(("var", "var/cache", "var/lib", "var/log", "var/spool"), 0o755),
    **dict.fromkeys(("tmp", "var/tmp"), 0o1777),
    "root": 0o700,
}
_LINKS = {"var/run": "/run", "var/lock": "/run/lock"}
_SECRET = frozenset(
    {
        *(
            "shadow",
            "shadow-",
            "gshadow",
            "gshadow-",
            "sudoers",
            "sudoers.d",
            "ssh",
            "ssl/private",
            "krb5.keytab",
        ),
        *(
            "docker",
            "containerd",
            "crio",
            "kubernetes",
            "rancher",
            "cni",
            "pip.conf",
            "npmrc",
            "netrc",
            "wgetrc",
        ),
        *("gitconfig", "environment", "environment.d", "fstab", "crypttab", "exports", "mtab", "machine-id"),
        *("NetworkManager", "wireguard", "openvpn", "ipsec.conf", "ipsec.d", "ipsec.secrets", "ppp", "cloud"),
        *(
            "letsencrypt",
            "postgresql",
            "mysql",
            "redis",
            "rabbitmq",
            "ceph",
            "samba",
            "ldap",
            "vault",
            "consul.d",
        ),
        *(
            "apt/auth.conf",
            "apt/auth.conf.d",
            "apt/apt.conf.d/proxy.conf",
            "cron.d",
            "systemd",
            "cups",
            "boto.cfg",
        ),
    }
)
"""Of /etc, besides all that not everybody may read."""


def prepare_host(folder: Path, users: int | None) -> None:
    """Make what all sandboxes of the machine's own system share: its ``root``, and secrets of ``etc`` hidden.

    Owners are those that the user namespace shifts to. Raises OSError.
    """
    first = 0 if users is None else FIRST_ID
    hide_secrets(folder / "etc", first=first)
    _skeleton(folder / "root", first)


def hide_secrets(masks: Path, *, source: Path = Path("/etc"), first: int = 0) -> None:
    """Make the layer that hides secrets of ``source``: whiteouts of overlayfs, in folders like its own."""
    masks.mkdir(parents=True)
    _like(masks, source, first)
    for path in _secrets(source, source):
        for above in reversed(path.relative_to(source).parents):
            folder = masks / above
            if not folder.exists():
                folder.mkdir()
                _like(folder, source / above, first)
        os.mknod(masks / path.relative_to(source), stat.S_IFCHR | 0o600, os.makedev(0, 0))


def _secrets(top: Path, folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            if str(path.relative_to(top)) in _SECRET:
                yield path
            elif entry.is_symlink():
                continue
            elif not _is_public(entry):
                yield path
            elif entry.is_dir():
                yield from _secrets(top, path)


def _is_public(entry: os.DirEntry[str]) -> bool:
    needed = stat.S_IROTH | stat.S_IXOTH if entry.is_dir() else stat.S_IROTH
    found = entry.stat(follow_symlinks=False).st_mode
    return found & needed == needed and (stat.S_ISREG(found) or stat.S_ISDIR(found))


def _like(folder: Path, model: Path, first: int) -> None:
    """Give a folder the mode of another, and its owner as a sandbox sees it, whose ids begin at ``first``."""
    found = model.stat()
    folder.chmod(stat.S_IMODE(found.st_mode))
    with contextlib.suppress(OSError):  # an owner who is unknown in our user namespace
        os.chown(folder, first + found.st_uid, first + found.st_gid)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a sandbox's root is made from."""

    image: str
    own: Path
    """Where its changes are kept, or mounted, in memory."""
    host: Path
    """What ``prepare_host`` has made, or makes, in memory."""
    agent: Path
    folders: Sequence[str] = ()
    kept: Path | None = None
    """The folder of snapshots."""
    snapshots: Sequence[str] = ()
    """Those that it begins with, the last one first."""


def assemble(parts: Parts, *, users: int | None, in_users: bool, memory_options: str | None) -> None:
    """Mount the parts of a sandbox below ``PLACE``: its ``root``, its ``agent``, and its folders by number.

    Its changes are in memory where there are options for that file system. ``users`` is the user namespace
    that owners of files are shifted for; ``in_users`` tells that this process is in one. Raises OSError.

    The layer of changes has shifted owners as it is: overlayfs makes files there with our own rights, for
    which a mount that shifts has no owner. So have snapshots.
    """
    linux.unshare(linux.NEW_MOUNTS)
    linux.private_mounts()
    own, host = parts.own, parts.host
    if memory_options is not None:
        linux.mount("tmpfs", str(own), memory_options)
        host = own / "host"
    if parts.image == HOST and not host.exists():
        prepare_host(host, users)
    lowers = _host_layers(host, users) if parts.image == HOST else {"all": [(Path(parts.image), users)]}
    for name, below in lowers.items():
        if parts.kept is not None and parts.snapshots:
            _writable(own / name, parts.kept / parts.snapshots[0] / name, 0)
        else:
            path, shifted = below[-1]
            _writable(own / name, path, 0 if shifted is None else FIRST_ID)
    trees = {"own": _tree(str(own), None)}
    for name, below in lowers.items():
        for number, (path, shifted) in enumerate(below):
            trees[f"lower-{name}-{number}"] = _tree(str(path), shifted)
    trees["agent"] = _tree(str(parts.agent), users)
    for number, source in enumerate(parts.folders):
        trees[f"folder-{number}"] = _folder(source, users)
    if parts.kept is not None:
        trees["kept"] = _tree(str(parts.kept), None)

    linux.mount("tmpfs", PLACE, "mode=755,size=1m")
    for name, tree in trees.items():
        place = f"{PLACE}/{name}"
        _place_for(tree, place)
        linux.attach(tree, place)
        os.close(tree)
    for number, snapshot in enumerate(parts.snapshots):  # by short names: options of a mount are a page
        os.symlink(f"kept/{snapshot}", f"{PLACE}/{number}")
    os.mkdir(f"{PLACE}/root")
    for name, below in lowers.items():
        kept = [f"{PLACE}/{number}/{name}" for number in range(len(parts.snapshots))]
        layers = ":".join([*kept, *(f"{PLACE}/lower-{name}-{number}" for number in range(len(below)))])
        upper = f"{PLACE}/own/{name}"
        options = f"lowerdir={layers},upperdir={upper}/upper,workdir={upper}/work,volatile"
        target = f"{PLACE}/root" if name in ("root", "all") else f"{PLACE}/root/{name}"
        linux.mount("overlay", target, options + (",userxattr" if in_users else ""))
        if os.statvfs(target).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, "the layer of changes cannot be written", target)


def _host_layers(host: Path, users: int | None) -> dict[str, list[tuple[Path, int | None]]]:
    """Folders below the changes of each part of the machine's own system, and whose owners they get."""
    layers: dict[str, list[tuple[Path, int | None]]] = {"root": [(host / "root", None)]}
    for name in _HOST_FOLDERS:
        theirs = Path("/", name)
        if theirs.is_dir() and not theirs.is_symlink():
            layers[name] = [(theirs, users)]
    layers["etc"].insert(0, (host / "etc", None))
    return layers


def _skeleton(root: Path, first: int) -> None:
    """The folders of a sandbox of the machine's own system."""
    root.mkdir(mode=0o755)
    os.chown(root, first, first)
    for name, mode in _OWN_FOLDERS.items():
        (root / name).mkdir()
        (root / name).chmod(mode)
        os.chown(root / name, first, first)
    for name, target in _LINKS.items():
        _link(root / name, target, first)
    for name in _HOST_FOLDERS:
        theirs = Path("/", name)
        if theirs.is_symlink():
            _link(root / name, os.readlink(theirs), first)
        elif theirs.is_dir():
            (root / name).mkdir()
            os.chown(root / name, first, first)


def _link(path: Path, target: str, first: int) -> None:
    path.symlink_to(target)
    os.lchown(path, first, first)


def _writable(folder: Path, lower: Path, first: int) -> None:
    (folder / "upper").mkdir(parents=True)
    (folder / "work").mkdir()
    _like(folder / "upper", lower, first)


def _tree(path: str, users: int | None) -> int:
    tree = linux.copy_tree(path, below=False)
    if users is not None:
        linux.map_ids(tree, users, below=False)
    return tree


def _folder(path: str, users: int | None) -> int:
    tree = linux.copy_tree(path, below=True)
    if users is not None:
        # File systems of other machines may not know this: then the files have owners unknown inside.
        with contextlib.suppress(OSError):
            linux.map_ids(tree, users, below=True)
    return tree


def _place_for(tree: int, place: str) -> None:
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        os.mkdir(place)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))


def check_places(paths: Sequence[str]) -> None:
    """Raise OSError where a link in the root is on the way to one of these: what runs inside has made it."""
    for path in paths:
        folder = os.open(f"{PLACE}/root", os.O_PATH | os.O_DIRECTORY)
        try:
            for part in filter(None, path.split("/")):
                try:
                    below = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
                except FileNotFoundError:
                    break
                os.close(folder)
                folder = below
                if stat.S_ISLNK(os.fstat(folder).st_mode):
                    raise OSError(errno.ELOOP, "a link is where a folder is to be", path)
        finally:
            os.close(folder)


def name_machine(files: Mapping[str, str]) -> None:
    """Write files of /etc in the root, as its user: links of the image must not lead our rights astray."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(f"{PLACE}/root/etc", 0o755)
    etc = os.open(f"{PLACE}/root/etc", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name, content in files.items():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=etc)
            file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=etc)
            with os.fdopen(file, "w") as opened:
                opened.write(content)
    finally:
        os.close(etc)
