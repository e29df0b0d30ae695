"""The journal: what was played, kept in a database.

Sessions, calls, prompts and group scores are rows (``schema``); one thread writes them in groups
(``writer``); ``recorder`` is the face that sessions see. Everything else reads.
"""
