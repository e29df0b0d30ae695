"""Failure handling in the rollout process of TRL's AsyncGRPO: the trainer must be able to read the reason."""

from __future__ import annotations

import multiprocessing
import threading
import time

from ._trl import ROLLOUT_PROCESS

__all__ = ["outlive_failure"]


def outlive_failure() -> None:
    """Keep TRL's rollout process alive after a failure, until its trainer ends it or is itself gone.

    The trainer reads the failure and then sets an event; setting a shared event blocks forever if the waiting
    process has died. Does nothing in any other process.
    """
    parent = multiprocessing.parent_process()
    if parent is None or multiprocessing.current_process().name != ROLLOUT_PROCESS:
        return

    def stay() -> None:
        while parent.is_alive():
            time.sleep(0.5)

    threading.Thread(target=stay, name="orsay-trl-stay", daemon=False).start()
