"""The journal: a database record of sessions, calls and rewards.

Sessions, calls, prompts and group scores are rows (``schema``); ``write`` commits them in batches,
after a write-ahead log where that is faster; ``read``, ``search`` and ``export`` read them.
"""
