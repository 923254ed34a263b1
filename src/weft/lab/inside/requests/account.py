"""What a lab says of itself. Changes nothing, but `traffic` has the switch count for half a minute."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Final

import msgspec

from weft.desired.policy import refusals
from weft.desired.policy.refusals import Held
from weft.diag.sight.interfaces import InterfaceState
from weft.kernel.netfilter import refused
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab.inside import control, underlay
from weft.lab.inside.cluster import World
from weft.lab.inside.underlay import mac, port
from weft.lab.links import ITSELF
from weft.lab.manifests import Manifest
from weft.lab.report import Carried, LabReport, NewsReport, RefusedReport, States, TrafficReport, WayReport
from weft.lab.spec import Lab
from weft.model.kernel.reported import Counters
from weft.model.value import replace

_MAC: Final = 6  # bytes; with its padding in a key of two 8
_FIELD: Final = 8


async def report(world: World) -> LabReport:
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
        pods=[running.report() for running in world.pods.in_order()],
        services=world.services.reports(),
        cuts=now.in_order(),
        behind_nat=sorted(world.lab.nat),
        outside=[str(underlay.address(family).ip) for family in world.lab.families],
        policies=_policies(world),
    )


def _policies(world: World) -> list[Manifest] | None:
    """Kubernetes' API has its own: of such a lab the list says no more than that nodes enforce them."""
    if world.pods.policies is not None:
        return list(world.pods.policies.objects.values())
    return None if world.lab.policies is None else []


async def states(world: World) -> States:
    nodes = dict(world.nodes)  # one may go meanwhile
    found = await asyncio.gather(*(control.state(world.inside, node.room, node.process) for node in nodes.values()))
    return dict(zip(nodes, found, strict=True))


async def denied(world: World) -> list[RefusedReport]:
    """Nodes without the table are left out."""
    names = {
        str(each.ip): f"{pod.spec.namespace}/{pod.spec.name}" for pod in world.pods.in_order() for each in pod.addresses
    }
    nodes = dict(world.nodes)  # as above
    looks = [await world.inside.run(node.room, _refused) for node in nodes.values()]
    return [
        RefusedReport(node=name, seen=refusals.refused(held, names))
        for name, held in zip(nodes, looks, strict=True)
        if held is not None
    ]


def _refused() -> Held | None:
    with closing(NfSocket.open()) as nf:
        return refused.look(nf)


async def news(world: World, after: Mapping[str, int]) -> NewsReport:
    nodes = dict(world.nodes)  # as above
    asked = (control.news(world.inside, node.room, node.process, after.get(name, 0)) for name, node in nodes.items())
    found = dict(zip(nodes, await asyncio.gather(*asked), strict=True))
    return NewsReport(nodes=found, lab=world.history.told(after.get(ITSELF, 0)))


async def description(world: World) -> Lab:
    """A lab that would be as this one, as far as can be told."""
    await world.look_at_network()
    now, apart = world.switch.now, world.lab.apart
    whole = apart <= now.cuts  # else some of it was healed, and only cuts can say the rest
    return replace(
        world.lab,
        pods=tuple(running.spec for running in world.pods.in_order()),
        services=world.services.services,
        policies=world.lab.policies if world.pods.policies is None else tuple(world.pods.policies.objects.values()),
        links=dict(now.links),
        topology=world.lab.topology if whole else (),
        cuts=tuple(cut for cut in now.in_order() if not whole or cut not in apart),
    )


async def traffic(world: World) -> TrafficReport:
    sent, lost = await world.switch.carried()
    names = {bytes(mac(node.spec)): name for name, node in world.nodes.items()}
    lost_by = {each.key: each.packets for each in lost}
    pairs = {each.key: each for each in (*lost, *sent)}  # of one that both have, what was sent
    ways = [
        WayReport(source=source, target=target, bytes=each.octets, packets=each.packets, lost=lost_by.get(key, 0))
        for key, each in pairs.items()
        if (source := names.get(key[:_MAC])) and (target := names.get(key[_FIELD : _FIELD + _MAC]))
    ]
    ports = {link.name: link.counted.reversed() for link in world.rtnl.counters()}
    nodes = [_carried(name, ports.get(port(node.spec.index), Counters())) for name, node in world.nodes.items()]
    ends = {
        (name, link.name): link.counted.reversed()
        for name, node in world.nodes.items()
        for link in node.rtnl.counters()
    }
    pods = [
        _carried(pod.spec.name, ends.get((pod.spec.node, pod.host_end), Counters()), pod.spec.node, pod.sandbox.id)
        for pod in world.pods.in_order()
    ]
    order = list(world.nodes)
    ways.sort(key=lambda way: (order.index(way.source), order.index(way.target)))
    return TrafficReport(seconds=time.monotonic(), nodes=nodes, pods=pods, ways=ways)


def _carried(name: str, counted: Counters, node: str = "", number: str = "") -> Carried:
    return Carried(
        name=name,
        node=node,
        id=number,
        sent_bytes=counted.sent_bytes,
        sent_packets=counted.sent_packets,
        received_bytes=counted.received_bytes,
        received_packets=counted.received_packets,
        lost=counted.sent_lost + counted.received_lost,
    )


async def interfaces(world: World, where: str) -> list[InterfaceState]:
    from weft.diag.sight import look  # late: a lab starts without all that a diagnosis needs

    with await world.inside.run(world.place(where).room, Rtnl.open) as rtnl:
        return look.interfaces(rtnl)
