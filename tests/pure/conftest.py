"""Properties draw other examples each run, in CI too, and have no deadline: other work on the machine is no failure."""

from hypothesis import settings

settings.register_profile("weft", settings.get_profile("default"), deadline=None, derandomize=False)
settings.load_profile("weft")
