"""What docs/configuration.md shows and lists is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from orsay.config import read
from orsay.config.entries import TABLES
from orsay.errors import ConfigError
from orsay.runtimes.docker.options import DockerOptions
from orsay.runtimes.remote.options import RemoteOptions
from orsay.serving.reconfigure import LIVE
from orsay.settings import Settings

from tests.support.documentation import ROOT, blocks, cells

from ..support.config_server import written

PAGE = ROOT / "docs" / "configuration.md"
SHOWN = [block for block in blocks() if block.page == PAGE and block.language == "toml"]
_CODE = re.compile(r"`([a-z_]+)`")


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_files_that_are_shown_are_right(
    block: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_KEY", "key")
    folder = tmp_path / "server"
    for each in ("src", "../shared"):
        (folder / each).mkdir(parents=True)
    (folder / "keys.txt").write_text("a-key\n")
    assert read(written(folder, getattr(block, "code")), {}).entries  # noqa: B009


def test_every_option_of_an_entry_is_documented_and_no_other() -> None:
    documented = {
        name
        for heading in ("## Environments", "### Classes and folders", "### Images", "### Other servers")
        for row in cells("configuration.md", heading)
        for name in _CODE.findall(row[0])
    }
    assert documented == {
        field.alias or name for kind in TABLES.values() for name, field in kind.model_fields.items()
    }


def test_defaults_of_containers_and_upstreams_are_documented_as_they_are() -> None:
    defaults = {
        **vars(DockerOptions(image="x")),
        **{name: getattr(RemoteOptions(), name) for name in RemoteOptions.__slots__},
    }
    words: dict[str, tuple[object, ...]] = {
        "none": (None, (), {}),
        "never": (None,),
        "of the image": (None,),
        "false": (False,),
    }
    for heading in ("### Images", "### Other servers"):
        for row in cells("configuration.md", heading):
            names, values = _CODE.findall(row[0]), row[1].split(", ")
            for name, value in zip(names, values, strict=len(values) > 1):
                if name in defaults:
                    text = value.strip("`")
                    right = words.get(text) or (
                        (defaults[name],) if text == _as_documented(defaults[name]) else ()
                    )
                    assert defaults[name] in right, (name, value, defaults[name])


def _as_documented(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_settings_that_change_at_once_are_documented() -> None:
    text = PAGE.read_text().partition("**Settings** that change at once")[2].partition("\n- ")[0]
    documented = {name for name in _CODE.findall(text) if name in Settings.model_fields}
    workers = {name for name in LIVE if "worker" in name}
    limits = {"call_time_limit_s", "setup_time_limit_s", "teardown_time_limit_s"}
    assert documented - {"host", "port"} == set(LIVE) - workers - limits - {"runtime", "api_keys"}
    assert not {"host", "port"} & set(LIVE)


def test_mistakes_that_are_documented_are_reported_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = [block.code for block in blocks() if block.page == PAGE and block.language == "text"]
    monkeypatch.chdir(tmp_path)
    lines = [""] * 8
    written(Path(), '[environments.mine]\nclass = "a:B"\n\nwokers = 1\n')
    with pytest.raises(ConfigError) as first:
        read(Path("orsay.toml"), {})
    written(Path(), "\n".join(lines) + '\nlog_level = "inof"\n')
    with pytest.raises(ConfigError) as second:
        read(Path("orsay.toml"), {})
    assert f"{first.value}\n{second.value}\n" == shown
