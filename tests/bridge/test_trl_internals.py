"""TRL's private parts in the installed release: a release without them must be noticed here, not in a run."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import SimpleNamespace

import orsay_trl
import pytest
from orsay_trl.trainer import _trl

trl = pytest.importorskip("trl", reason="needs the extra 'trl'")

BRIDGE = Path(orsay_trl.__file__).parent


class Mixin:
    """In front of a trainer's class."""


def test_trl_has_the_methods_that_are_called_and_overridden() -> None:
    for name in _trl.METHODS:
        assert callable(getattr(trl.GRPOTrainer, name))
    found = {name: parameters_of(trl.GRPOTrainer, name) for name in _trl.OVERRIDDEN}
    assert found == _trl.OVERRIDDEN


def parameters_of(cls: type, name: str) -> list[str]:
    return list(inspect.signature(inspect.unwrap(getattr(cls, name))).parameters)


def test_every_override_of_ours_is_in_the_table() -> None:
    from orsay_trl.trainer.concurrent import ConcurrentEnvironments

    own = {name for name in vars(ConcurrentEnvironments) if hasattr(trl.GRPOTrainer, name)}
    private = {name for name in own if name.startswith("_") and not name.startswith("__")}
    assert private == set(_trl.OVERRIDDEN)
    for name, wanted in _trl.OVERRIDDEN.items():
        assert parameters_of(ConcurrentEnvironments, name) == wanted


def test_trl_sets_the_attributes_that_are_read() -> None:
    trainer = inspect.getsource(trl.GRPOTrainer)
    assert [name for name in _trl.ATTRIBUTES if f"self.{name} = " not in trainer] == []
    from trl.generation import vllm_generation

    engine = inspect.getsource(vllm_generation)
    assert [name for name in _trl.VLLM_ATTRIBUTES if f"self.{name} = " not in engine] == []


def test_the_process_of_async_grpo_has_the_known_name() -> None:
    from trl.experimental.async_grpo import async_rollout_worker

    assert f'name="{_trl.ROLLOUT_PROCESS}"' in inspect.getsource(async_rollout_worker)


def test_reward_functions_get_a_method_of_their_trainer() -> None:
    source = inspect.getsource(trl.GRPOTrainer._calculate_rewards)
    assert 'reward_kwargs["log_metric"] = self._log_metric' in source
    trainer = SimpleNamespace()
    assert _trl.trainer_of(trl.GRPOTrainer._log_metric.__get__(trainer)) is trainer
    assert _trl.trainer_of(lambda name, value: None) is None


def test_a_trainer_with_other_methods_is_left_as_it_is() -> None:
    class Other:
        def _compute_loss(self, model: object) -> None: ...

    trainer = Other()
    with pytest.raises(RuntimeError, match="has another _calculate_rewards"):
        _trl.mix_in(trainer, Mixin)
    assert type(trainer) is Other


def test_no_other_module_reaches_into_trl() -> None:
    """Names of the tables, frames, bound methods and classes of trainers occur in one module."""
    others = [path for path in sorted(BRIDGE.rglob("*.py")) if path.name != "_trl.py"]
    found = {(path.name, name) for path in others for name in private_names(path)}
    assert found == set()


def private_names(path: Path) -> set[str]:
    tables = {*_trl.METHODS, *_trl.ATTRIBUTES, *_trl.VLLM_ATTRIBUTES}
    private = {name for name in tables if name.startswith("_")} | {"__self__", "_getframe"}
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and node.value in ("__self__", _trl.ROLLOUT_PROCESS):
            found.add(str(node.value))
        if isinstance(node, ast.Attribute):
            # ``self`` is a trainer of TRL in one module; elsewhere the same names are our own.
            own = isinstance(node.value, ast.Name) and node.value.id == "self" and path.stem != "concurrent"
            if node.attr in private and not own:
                found.add(node.attr)
            if node.attr == "__class__" and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return found
