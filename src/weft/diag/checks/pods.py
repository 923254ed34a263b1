"""The links of this node's pods: both ends, the port of the bridge between them, and the addresses.

A pod that its runtime does not remember from an ADD that has ended may be in the making.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from weft.diag.finding import Command, Finding, check, finding, link_up, mended
from weft.diag.sight.node import Attached, PodEnd, Sight
from weft.model.kernel.reported import FORWARDING, NO_CARRIER, NUD_PERMANENT, LinkInfo
from weft.model.net import Ip


def _pods(sight: Sight) -> Iterator[tuple[LinkInfo, PodEnd, Attached]]:
    """The node's end of each pod that was attached, its own end, and what is remembered of it."""
    known = {host: each for each in sight.attached for host in each.hosts}
    for link in sight.links:
        end, attached = sight.pods.get(link.name), known.get(link.name)
        if end is not None and attached is not None and end.link.name == attached.ifname:
            yield link, end, attached


@check("pods-links", "pods' links are up, and have the addresses that they were given", "links", "attached")
def _links(sight: Sight) -> Iterator[Finding]:
    for link, end, attached in _pods(sight):
        where = f"{end.link.name} of {attached}"
        lost = [ip for ip in attached.addresses if ip not in end.addresses]
        if not end.link.up:
            hint = "Something in the pod has set it down. Recreate the pod"
            yield finding("CHECK-001", where, "it is down", hint, expected="up")
        elif not link.up:
            seen = f"the node's end of it, {link.name}, is down"
            yield mended(link_up(link.name), "CHECK-001", where, seen, expected="up")
        elif off := _off_its_bridge(sight, link, attached):
            command = Command(("ip", "link", "set", link.name, "master", off), f"puts {link.name} on {off}")
            seen = f"the node's end of it, {link.name}, is on no bridge"
            yield mended(command, "CHECK-001", where, seen, expected=f"on {off}")
        elif lost:
            seen = f"it has {_listed(end.addresses) or 'no address'}"
            hint = "Something has changed it since the pod was made. Recreate the pod"
            yield finding("CHECK-001", where, seen, hint, expected=_listed(lost))


def _off_its_bridge(sight: Sight, link: LinkInfo, attached: Attached) -> str:
    """The bridge that an attachment was put on, if it is there and the link on none."""
    there = (bridge.name for bridge in sight.bridges if bridge.name in attached.hosts)
    return "" if link.master else next(there, "")


@check("pods-neighbours", "nobody has set wrong MACs of pods", "links", "neighbours")
def _neighbours(sight: Sight) -> Iterator[Finding]:
    """A permanent entry is never asked for again, whatever MAC the pod has."""
    bridges = {bridge.index: bridge for bridge in sight.bridges}
    macs = {ip: end.link.mac for end in sight.pods.values() for ip in end.addresses}
    for each in sight.neighbours:
        link, mac = bridges.get(each.index), macs.get(each.ip)
        if link is not None and each.state & NUD_PERMANENT and mac not in (None, each.mac):
            words = ("ip", "neighbour", "delete", str(each.ip), "dev", link.name)
            command = Command(words, f"has the kernel ask for the MAC of {each.ip}")
            where, seen = f"neighbour {each.ip} on {link.name}", f"a permanent entry has the MAC {each.mac}"
            yield mended(command, "NEIGH-002", where, seen, expected=f"{mac}, the pod's")


@check("pods-addresses", "no two pods have one address", "links", "attached")
def _addresses(sight: Sight) -> Iterator[Finding]:
    """Who was given the address has it rightly."""
    having: dict[Ip, list[tuple[PodEnd, Attached]]] = defaultdict(list)
    for _, end, attached in _pods(sight):
        for ip in end.addresses:
            having[ip].append((end, attached))
    for ip, pods in having.items():
        rightly = next((attached for _, attached in pods if ip in attached.addresses), None)
        for end, attached in pods:
            if rightly is not None and ip not in attached.addresses:
                seen = f"it has {ip}, which {rightly} was given"
                hint = f"Packets for {ip} reach one of the two, now this and now that. Take it off, or recreate the pod"
                yield finding("CHECK-001", f"{end.link.name} of {attached}", seen, hint)


@check("ports", "the ports of pods' bridges let packets pass", "links", "networks")
def _ports(sight: Sight) -> Iterator[Finding]:
    isolating = {name for network in sight.networks if network.isolated for name in network.bridges}
    bridges = {bridge.index: bridge for bridge in sight.bridges}
    for link in sight.links:
        bridge, port = bridges.get(link.master), link.port
        if bridge is None or port is None:
            continue
        where, words = f"{link.name} on {bridge.name}", ("bridge", "link", "set", "dev", link.name)
        if link.up and link.operstate not in NO_CARRIER and port.state != FORWARDING and bridge.up:
            command = Command((*words, "state", str(FORWARDING)), f"has the bridge forward packets by {link.name}")
            seen = f"the port is in state {port.state_words}"
            yield mended(command, "BRIDGE-007", where, seen, expected="forwarding")
        elif port.isolated and bridge.name not in isolating:
            does = f"lets the pod behind {link.name} reach other isolated ports"
            command = Command((*words, "isolated", "off"), does)
            seen = "the port is isolated, and no network's portIsolation asks for it"
            why = "Isolated ports of one bridge reach each other not"
            yield mended(command, "BRIDGE-007", where, seen, why=why, expected="isolated off")


def _listed(addresses: list[Ip] | tuple[Ip, ...]) -> str:
    return ", ".join(map(str, addresses))


CHECKS: Final = (_links, _neighbours, _addresses, _ports)
