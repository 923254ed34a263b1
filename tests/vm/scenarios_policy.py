"""Network policies in the virtual machine, whose kernel is older: drawn worlds, by the packets that arrive."""

import random
from contextlib import ExitStack

from tests.support.policy.arriving import wrong
from tests.support.policy.site import Site
from tests.support.policy.worlds import drawn


def check_policies_between_bridged_pods() -> None:
    _agree("bridge", 3)


def check_policies_between_routed_pods() -> None:
    _agree("ptp", 2)


def _agree(links: str, worlds: int) -> None:
    """Each world replaces the one before; the seeds are the same each time, since the machine is slow."""
    with ExitStack() as stack:
        site = Site(links, stack)
        for seed in range(worlds):
            chance = random.Random(seed)
            found, _ = wrong(site, drawn(chance), chance, seconds=20)
            assert not found, seed
