"""The process in which TRL's AsyncGRPO plays: when it fails, its trainer must be able to hear why."""

from __future__ import annotations

import multiprocessing
import threading
import time

__all__ = ["stay_until_heard"]

_NAME = "grpo-rollout-worker-child"  # TRL's, since 1.16


def stay_until_heard() -> None:
    """Keep TRL's rollout process alive, though it failed, until its trainer ends it or is itself gone.

    The trainer reads what failed and then sets an event; in a shared event of Python that waits for ever when
    the process that listened has died. Does nothing in any other process.
    """
    parent = multiprocessing.parent_process()
    if parent is None or multiprocessing.current_process().name != _NAME:
        return

    def stay() -> None:
        while parent.is_alive():
            time.sleep(0.5)

    threading.Thread(target=stay, name="orsay-trl-stay", daemon=False).start()
