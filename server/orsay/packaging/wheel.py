"""Requirement for orsay inside an image: a release, or a wheel of the running code."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distribution
from pathlib import Path

from ..errors import ConfigError
from .names import secret_name

__all__ = ["Requirement", "requirement"]

_PACKAGES = ("orsay_protocol", "orsay", "orsay_client", "orsay_eval", "orsay_trl")
_METADATA = ("METADATA", "entry_points.txt")
# Reproducible: the same content gives the same wheel, so that the engine's layer cache works.
_TIME = (2020, 1, 1, 0, 0, 0)
_CREDENTIALS = re.compile(r"(?<!ssh)://[^/\s]*@")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\])?\s*([<>=!~@;(].*)?|https?://\S+")


@dataclass(frozen=True)
class Requirement:
    """``pip`` is the argument of ``pip install``; ``files`` must be in its working folder."""

    pip: str
    files: Mapping[str, bytes] = field(default_factory=dict)


def requirement(asked: str | Path | None = None) -> Requirement:
    """The requirement or wheel that was ``asked`` for, else the running code.

    A release from a package index is ``orsay==VERSION``. Any other installation (a checkout, a wheel from
    disk) is packed into a wheel. Raises ConfigError if ``asked`` is neither a requirement nor a wheel.
    """
    if asked is not None:
        return _asked(asked)
    installed = distribution("orsay")
    if installed.read_text("direct_url.json") is None:
        return Requirement(f"orsay=={installed.version}")
    return _beside(f"orsay-{installed.version}-py3-none-any.whl", _packed(installed))


def _asked(asked: str | Path) -> Requirement:
    text = str(asked)
    path = Path(text).expanduser()
    if _CREDENTIALS.search(text):
        raise ConfigError(
            "the address of that orsay holds a user name or a password, which everyone could read in the"
            " image: download the wheel and name its path"
        )
    if "://" in text and _REQUIREMENT.fullmatch(text):
        return Requirement(text)
    if text and path.is_dir():
        raise ConfigError(
            f"{text} is a folder: build a wheel of it (pip wheel --no-deps {text}) and name that"
        )
    if path.suffix == ".whl":
        try:
            return _beside(path.name, path.read_bytes())
        except OSError as exc:
            raise ConfigError(f"cannot read the wheel {text}: {exc.strerror or exc}") from exc
    if isinstance(asked, Path) or not _REQUIREMENT.fullmatch(text):
        raise ConfigError(f"{text!r} is no wheel and no requirement, such as orsay==0.1.0")
    return Requirement(text)


def _beside(name: str, data: bytes) -> Requirement:
    return Requirement(f"./{name}", {name: data})


def _packed(installed: Distribution) -> bytes:
    """A wheel of the importable packages, with their installed metadata."""
    folder = f"orsay-{installed.version}.dist-info"
    wheel = "Wheel-Version: 1.0\nGenerator: orsay\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    contents = {relpath: path.read_bytes() for package in _PACKAGES for relpath, path in _files(package)}
    contents[f"{folder}/WHEEL"] = wheel.encode()
    for name in _METADATA:
        contents[f"{folder}/{name}"] = (installed.read_text(name) or "").encode()
    record = [f"{relpath},sha256={_digest(data)},{len(data)}" for relpath, data in contents.items()]
    contents[f"{folder}/RECORD"] = "\n".join([*record, f"{folder}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for relpath, data in contents.items():
            entry = zipfile.ZipInfo(relpath, _TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _files(package: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"{package} of this installation cannot be found; name a wheel or a requirement instead"
        )
    folder = Path(spec.origin).parent
    for path in sorted(folder.rglob("*")):
        relpath = path.relative_to(folder).as_posix()
        clutter = "__pycache__" in path.parts or path.suffix == ".pyc"
        if not clutter and path.is_file() and not path.is_symlink() and secret_name(relpath) is None:
            yield f"{package}/{relpath}", path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
