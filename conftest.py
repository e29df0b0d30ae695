"""For all tests: hypothesis judges results, not the time that a shared machine takes for them."""

from hypothesis import settings

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
