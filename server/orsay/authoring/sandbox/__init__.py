"""Sandboxes for authors: ``self.sandbox(...)`` of an environment, and ``orsay.sandbox(...)`` anywhere."""
