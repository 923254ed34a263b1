"""What a lab says of itself: what there is, how daemons are, what happened. Changes nothing."""

import asyncio
from collections.abc import Mapping

import msgspec

from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab.inside import asking
from weft.lab.inside.cluster import World
from weft.lab.links import ITSELF
from weft.lab.report import InterfacesReport, LabReport, NewsReport, StatesReport


async def report(world: World) -> LabReport:
    """Return what there is."""
    store_state = await world.store.state()
    if store_state == "ready":
        await world.look_at_network()
    now = world.switch.now
    nodes = (running.report(world.inside, world.lab.families, now.link(name)) for name, running in world.nodes.items())
    return LabReport(
        name=world.lab.name,
        backend=world.backend,
        families=list(world.lab.families),
        store=world.store.where,
        store_state=store_state,
        # In the store it may stand in several lines, and an answer is one line.
        network=msgspec.Raw(msgspec.json.format(world.lab.network.encode(), indent=-1)),
        nodes=await asyncio.gather(*nodes),
        pods=[running.report() for running in world.in_order()],
        services=world.services.reports(),
        cuts=now.in_order(),
    )


async def states(world: World) -> StatesReport:
    """Return how the nodes' daemons are."""
    nodes = dict(world.nodes)  # one may go meanwhile
    found = await asyncio.gather(*(asking.state(world.inside, node.room) for node in nodes.values()))
    return StatesReport(states=dict(zip(nodes, found, strict=True)))


async def news(world: World, after: Mapping[str, int]) -> NewsReport:
    """Return what happened on the nodes since, and what is wrong with them."""
    nodes = dict(world.nodes)  # as above
    asked = (asking.news(world.inside, node.room, after.get(name, 0)) for name, node in nodes.items())
    found = dict(zip(nodes, await asyncio.gather(*asked), strict=True))
    return NewsReport(nodes=found, lab=world.history.told(after.get(ITSELF, 0)))


async def interfaces(world: World, where: str) -> InterfacesReport:
    """Return what the kernel has of the links of a node or a pod."""
    from weft.diag import look  # late: a lab starts without all that a diagnosis needs

    with await world.inside.run(world.place(where).room, Rtnl.open) as rtnl:
        return InterfacesReport(interfaces=look.interfaces(rtnl))
