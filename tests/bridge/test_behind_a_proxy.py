"""``EnvironmentSpec`` towards a server behind something: TLS of one's own, a header to get in."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from orsay_client import errors
from orsay_trl import EnvironmentSpec

from tests.support.nginx import nginx

from ..support.bridge_server import serve_environments

pytest.importorskip("datasets", reason="needs the extra 'trl'")

pytestmark = pytest.mark.process


def test_a_header_that_lets_in_is_sent_with_each_request_and_shows_nowhere(tmp_path: Path) -> None:
    with serve_environments(tmp_path, "Words", api_keys='["hush-hush"]') as env_server:
        with pytest.raises(errors.Unauthorized):
            EnvironmentSpec(env_server.url).train_dataset  # noqa: B018
        spec = EnvironmentSpec(env_server.url, headers={"Authorization": "Bearer hush-hush"})
        environment: Any = pickle.loads(pickle.dumps(spec)).environment_factory()
        assert environment.reset(**spec.train_dataset[0])
        assert "hush-hush" not in repr(spec) + repr(environment) + repr(environment.episode)
        spec.close()


def test_a_certificate_of_ones_own_is_believed_when_it_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "nginx"
    folder.mkdir()
    with serve_environments(tmp_path, "Words") as env_server, nginx(env_server.url, folder) as proxy:
        with pytest.raises(errors.ConnectionLost, match="certificate"):
            EnvironmentSpec(proxy.url, request_tries=1).train_dataset  # noqa: B018
        spec = EnvironmentSpec(proxy.url, ca_file=str(proxy.certificate))
        environment: Any = spec.environment_factory()
        assert environment.reset(**spec.train_dataset[0])
        spec.close()


def test_the_catalog_takes_neither() -> None:
    for arguments in ({"headers": {"a": "b"}}, {"ca_file": "ca.pem"}):
        with pytest.raises(ValueError, match="server by URL"):
            EnvironmentSpec("owner/name", **arguments)
