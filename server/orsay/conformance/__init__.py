"""Conformance suite of the Open Reward Standard: checks that run against any server by URL."""

from .check import Check, Group, Outcome, Status
from .failures import Failed, NotSupported, Unreachable, expect
from .probe import Roles
from .report import to_json, to_junit
from .suite import CHECKS, checks_named, run_check, run_suite
from .target import Target

__all__ = [
    "CHECKS",
    "Check",
    "Failed",
    "Group",
    "NotSupported",
    "Outcome",
    "Roles",
    "Status",
    "Target",
    "Unreachable",
    "checks_named",
    "expect",
    "run_check",
    "run_suite",
    "to_json",
    "to_junit",
]
