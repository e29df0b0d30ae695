"""Options of containers, and the errors of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from orsay.errors import ConfigError
from orsay.runtimes.docker.options import DockerOptions
from orsay.runtimes.docker.spec import Bind, ImageConfig


@pytest.mark.parametrize(
    ("text", "size"),
    [("512m", 512 << 20), ("2g", 2 << 30), ("1.5 GiB", 3 << 29), ("64MB", 64 << 20), ("8388608", 8 << 20)],
)
def test_memory_is_written_as_for_docker(text: str, size: int) -> None:
    assert DockerOptions(image="x", memory=text).memory_bytes == size


def test_volumes_and_secrets_become_binds() -> None:
    options = DockerOptions(
        image="x", volumes=("/data:/mnt/data", "/in:/in:ro"), secrets={"token": "/etc/orsay/token"}
    )
    assert options.binds == (
        Bind("/data", "/mnt/data"),
        Bind("/in", "/in", read_only=True),
        Bind("/etc/orsay/token", "/run/secrets/token", read_only=True),
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"image": ""}, "name of an image"),
        ({"replicas": 0}, "replicas must be at least 1"),
        ({"max_sessions_per_replica": 0}, "max_sessions_per_replica must be at least 1"),
        ({"memory": "lots"}, "no size"),
        ({"memory": "1k"}, "at least 6 MiB"),
        ({"cpus": 0}, "cpus must be at least 0.01"),
        ({"network": "host"}, "network 'host' cannot be used"),
        ({"network": ""}, "cannot be used"),
        ({"port": 70_000}, "port must be from 1 to 65535"),
        ({"volumes": ("data:/data",)}, "absolute paths"),
        ({"volumes": ("/data:/data:rx",)}, "'/data:/data:rx'"),
        ({"secrets": {"../etc/passwd": "/x"}}, "cannot be a file name"),
        ({"secrets": {"token": "relative"}}, "absolute path"),
        ({"variables": {"A=B": "x"}}, "cannot be the name of a variable"),
        ({"lease_s": 1}, "lease_s must be at least 3"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DockerOptions(**{"image": "hello", **wrong})
    assert words in str(caught.value)
    assert "image" in str(caught.value)


def test_an_image_without_settings_is_described_too() -> None:
    image = ImageConfig.of({"Id": "sha256:1", "Config": None})
    assert (image.command, image.ports, image.stop_signal) == ((), (), "SIGTERM")


def test_only_ports_of_tcp_are_listened_on() -> None:
    image = ImageConfig.of(
        {"Id": "sha256:1", "Config": {"ExposedPorts": {"9000/tcp": {}, "53/udp": {}, "8000/tcp": {}}}}
    )
    assert image.ports == (8000, 9000)
