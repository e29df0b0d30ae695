"""The journal: what was played, kept in a database.

Sessions, calls, prompts and group scores are rows (``schema``); ``write`` commits them in batches,
after a write-ahead log where that is faster; ``read``, ``search`` and ``export`` read them.
"""
