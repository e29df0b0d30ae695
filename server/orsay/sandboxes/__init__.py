"""Sandboxes: machines of a session's own in which commands of a model run."""
