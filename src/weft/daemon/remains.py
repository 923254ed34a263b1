"""Removes at a start what back ends have left that no daemon runs any more."""

import logging
from collections.abc import Iterable
from pathlib import Path

from weft.daemon.commands import ours
from weft.daemon.disk import instance
from weft.daemon.world import World
from weft.model.net import Net

log = logging.getLogger(__name__)


def remove(world: World, state_dir: Path, networks: Iterable[Net]) -> None:
    """Remove what nothing serves: a daemon that runs a back end has claimed its device.

    `networks` are this daemon's, now and before; beside them those count that the state directory knows.
    """
    for device, remove_of in world.remains.items():
        if not instance.is_claimed(f"device/{device}"):
            for place in remove_of(lambda: (*networks, *ours.networks(state_dir))):
                log.info("removed from %s what served %s", place, device)
