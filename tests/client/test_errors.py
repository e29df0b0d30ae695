from __future__ import annotations

import pickle
import re
from collections.abc import Iterator

import pytest
from orsay_client import errors
from orsay_protocol import FAULT_CLASSES, RETRYABLE


def _classes() -> Iterator[type[errors.OrsayClientError]]:
    found = [errors.OrsayClientError]
    while found:
        cls = found.pop()
        yield cls
        found += cls.__subclasses__()


SPECIAL = {
    errors.ToolRefused: {"reason": "input_validation"},
    errors.Overloaded: {"retry_after_s": 3.0, "id": "f1"},
    errors.ConnectionLost: {"may_have_run": True},
    errors.ServerError: {"status": 502, "retryable": True},
    errors.BadRequest: {"status": 422},
    errors.WorkerLost: {"id": "f2", "retryable": False},
}


@pytest.mark.parametrize("cls", list(_classes()), ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling_with_all_it_knows(cls: type[errors.OrsayClientError]) -> None:
    error = cls("what happened", **SPECIAL.get(cls, {}))  # type: ignore[arg-type]  # fields differ
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is cls
    assert str(back) == "what happened"
    assert vars(back) == vars(error)


@pytest.mark.parametrize("fault_class", FAULT_CLASSES)
def test_every_fault_class_of_the_wire_has_an_exception(fault_class: str) -> None:
    error = errors.fault(fault_class, "x", id="f1")
    assert type(error) is not errors.Fault
    assert (error.fault_class, error.id) == (fault_class, "f1")
    assert error.retryable or fault_class not in RETRYABLE


def test_a_fault_class_from_the_future_is_a_plain_fault() -> None:
    error = errors.fault("gremlins", "x", retryable=True)
    assert type(error) is errors.Fault and error.fault_class == "gremlins" and error.retryable


def test_a_lost_worker_is_a_lost_session_too() -> None:
    assert isinstance(errors.fault("worker_lost", "x"), errors.SessionLost)


def test_answers_and_faults_are_distinguished_by_type() -> None:
    assert not issubclass(errors.ToolRefused, errors.Fault)
    assert not issubclass(errors.RequestError, errors.Fault)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert errors.__doc__ is not None
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"^( +)((?:│   |    )*)((?:├|└)── )?(\w+)(?:  |$)", line)
        if found is None:
            continue
        depth = found.start(4)
        above = [entry for entry in above if entry[0] < depth]
        drawn[found[4]] = above[-1][1] if above else "Exception"
        above.append((depth, found[4]))
    assert drawn == {cls.__name__: cls.__base__.__name__ for cls in _classes() if cls.__base__}
