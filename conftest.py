"""For all tests: hypothesis judges results, not the time that a shared machine takes for them, and servers
keep no journal unless a test asks for one."""

import os

from hypothesis import settings

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
os.environ.setdefault("ORSAY_JOURNAL", "off")
