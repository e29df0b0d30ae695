from __future__ import annotations

import pytest
from orsay.settings import Settings, available_cores
from pydantic import ValidationError


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("ORSAY_")]:
        monkeypatch.delenv(name)


def test_defaults_are_safe() -> None:
    settings = Settings()
    assert settings.loopback and settings.runtime == "process" and settings.workers == available_cores() >= 1


def test_variables_are_read_and_arguments_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORSAY_IDLE_LIMIT_S", "12.5")
    monkeypatch.setenv("ORSAY_API_KEYS", '["first-key", "second-key"]')
    settings = Settings(idle_limit_s=3)
    assert settings.idle_limit_s == 3 and Settings().idle_limit_s == 12.5
    assert [key.get_secret_value() for key in settings.api_keys] == ["first-key", "second-key"]
    assert "first-key" not in repr(settings)


def test_the_hash_seed_is_fixed_unless_it_is_configured_to_be_random(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().hash_seed == 0
    for value, seed in (("random", "random"), ("4294967295", 4294967295)):
        monkeypatch.setenv("ORSAY_HASH_SEED", value)
        assert Settings().hash_seed == seed
    monkeypatch.setenv("ORSAY_HASH_SEED", "4294967296")
    with pytest.raises(ValidationError, match="hash_seed"):
        Settings()


@pytest.mark.conformance("S2")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org"])
def test_binding_wider_needs_keys_or_a_word(host: str) -> None:
    with pytest.raises(ValidationError, match="allow-anonymous"):
        Settings(host=host)
    assert Settings(host=host, api_keys=("key",)).open_to_anyone is False
    assert Settings(host=host, allow_anonymous=True).open_to_anyone


@pytest.mark.conformance("S4")
def test_exceptions_are_shown_on_loopback_only_by_default() -> None:
    assert Settings().shows_exceptions
    assert not Settings(host="0.0.0.0", allow_anonymous=True).shows_exceptions
    assert Settings(host="0.0.0.0", allow_anonymous=True, error_detail="exception").shows_exceptions
    assert not Settings(error_detail="id").shows_exceptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 70000),
        ("workers", 0),
        ("idle_limit_s", 0),
        ("runtime", "cloud"),
        ("nonsense", 1),
        ("hash_seed", -1),
        ("hash_seed", "any"),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})  # type: ignore[arg-type]
