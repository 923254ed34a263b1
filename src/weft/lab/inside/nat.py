"""Routers with NAT, as homes have them: each is a network namespace between a segment's switch and the first one's."""

from collections.abc import Sequence

from weft.kernel.namespaces import CLONE_NEWNET, unshare
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab import spec
from weft.lab.inside import underlay
from weft.lab.inside.changes import rules
from weft.lab.inside.changes.rules import INSIDE, OUTSIDE
from weft.lab.inside.changes.switch import Switch
from weft.lab.inside.namespaces import Inside, Room
from weft.model.net import Family


async def make(inside: Inside, rtnl: Rtnl, switch: Switch, lab: spec.Lab, segment: int) -> Room:
    """A router, which is there as long as its namespaces are open; `rtnl` is the lab's."""
    families = lab.families
    room, own = await inside.run(None, lambda: _room(inside, families))
    with own:
        underlay.bring_up(own, "lo")
        beyond = [underlay.beyond(family, segment) for family in families]
        within = [underlay.address(family, segment=segment) for family in families]
        for link, to, addresses in ((OUTSIDE, 1, beyond), (INSIDE, segment, within)):
            port = rtnl.add_veth(f"nat{segment}-{link}", peer=link, peer_netns_fd=room.net, up=True)
            rtnl.set_link(port.index, master=rtnl.index_of(spec.switch(to)))
            underlay.add_addresses(own, underlay.bring_up(own, link), addresses)
        underlay.lead_out(own, families, OUTSIDE)
    underlay.lead_behind(rtnl, families, segment)
    nodes = [switch.place(node) for node in lab.nodes if node.segment == segment]
    await switch.load(rules.nat(lab.nat[segment], lab=switch.store.addresses, nodes=nodes), room)
    return room


def _room(inside: Inside, families: Sequence[Family]) -> tuple[Room, Rtnl]:
    unshare(CLONE_NEWNET)
    underlay.route_between(families)
    return Room.here(inside.proc), Rtnl.open()
