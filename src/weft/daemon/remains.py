"""Removes at a start what back ends have left that no daemon runs any more."""

import logging
from pathlib import Path

from weft.daemon.commands import ours
from weft.daemon.disk import instance
from weft.daemon.planes.place import Place
from weft.daemon.world import World
from weft.desired.inputs import Inputs

log = logging.getLogger(__name__)


async def remove(world: World, directory: Path, inputs: Inputs) -> None:
    """Remove what nothing serves: a daemon that runs a back end has claimed its device.

    `directory` is this instance's. Networks of other instances here, and former ones, count as ours, too.
    """
    networks = (*inputs.netconf.networks, *inputs.former_networks)
    for name, undo in world.undo.items():
        if name != inputs.netconf.backend:
            await undo(Place(directory=directory, boot=world.boot))
    for device, remove_of in world.remains.items():
        if not instance.is_claimed(f"device/{device}"):
            for place in remove_of(lambda: (*networks, *ours.networks(directory.parent))):
                log.info("removed from %s what served %s", place, device)
