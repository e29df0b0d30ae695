"""Sandboxes by bubblewrap, without a daemon: a back end, and the keeper, a process that makes them for it.

The keeper starts with nothing but the standard library: its modules import none from outside this package.
"""
