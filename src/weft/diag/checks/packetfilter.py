"""What the firewall does with packets that pods need: asked of its rules, with packets that stand for all."""

from collections.abc import Iterator
from ipaddress import ip_address, ip_interface
from itertools import product
from typing import Final

from weft.diag.finding import Command, Finding, UndecidedError, Weight, check, finding
from weft.diag.owners import FIREWALLD, POLICY_TABLE, enforcer_in, owner_of
from weft.diag.rules.matching import SOME_PORT, Packet
from weft.diag.rules.ruleset import Name
from weft.diag.rules.verdict import Verdict, judge
from weft.diag.sight.node import Configured, Sight
from weft.diag.sight.peers import Peer, peers
from weft.diag.sight.routing import address_on, route_to
from weft.model.kernel.marks import ALIAS
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Ip, Net
from weft.model.value import replace

_HTTP: Final = 80
_OUTSIDE: Final = ip_address("192.0.2.1")  # RFC 5737
_PUBLISHED: Final = Command(
    ("iptables", "-I", "FORWARD", "-m", "conntrack", "--ctstate", "DNAT,RELATED,ESTABLISHED", "-j", "ACCEPT"),
    "accepts what is forwarded to published ports, and answers, until the next boot",
)
_HOST_PORTS, _FIREWALL = "weft-hostport", "weft-firewall"  # our plugins' tables
_DOES: Final = {"prerouting": "receiving", "input": "receiving", "output": "sending", "postrouting": "sending"}
_MOST: Final = 50  # peers that are asked about: rules that tell nodes apart are rare, and some have long lists


@check(
    "forward-rules",
    "the firewall forwards packets between pods of this node and of others",
    "rules",
    "networks",
    each_minute=True,
)
def _forwarded(sight: Sight) -> Iterator[Finding]:
    said, doubts = set[str](), list[str]()
    others = {place: chain for place, chain in sight.rules.chains.items() if place[1] != POLICY_TABLE}
    for packet in _between_pods(sight):
        verdict = judge(replace(sight.rules, chains=others), "forward", packet)
        if verdict.passes is False and verdict.by not in said:
            said.add(verdict.by)
            yield _dropped(packet, verdict, sight)
        elif verdict.passes is None:
            doubts.append(f"{packet}: {verdict.by}")
    if not said:
        _doubt(sight, doubts)


def _doubt(sight: Sight, doubts: list[str]) -> None:
    if sight.legacy_tables:
        doubts.append(f"the rules of iptables-legacy in {', '.join(sight.legacy_tables)} are not read")
    if doubts:
        raise UndecidedError(doubts[0])


def _between_pods(sight: Sight) -> Iterator[Packet]:
    if not sight.bridges:
        return
    bridge = sight.bridges[0].name
    for subnet in sight.subnets:
        other = next((peer for peer in peers(sight) if peer.subnet.version == subnet.version), None)
        if other is None:
            continue
        route = route_to(sight, _pod(other.subnet))
        link = None if route is None else sight.link(route.index)
        out = "" if link is None else link.name
        here, there = _pod(subnet), _pod(other.subnet)
        for source, target, iif, oif in ((here, there, bridge, out), (there, here, out, bridge)):
            yield Packet(
                source=source, target=target, protocol="tcp", iif=iif, oif=oif, source_port=SOME_PORT, target_port=_HTTP
            )


def _pod(subnet: Net) -> Ip:
    return subnet.network_address + 2  # the first that is a pod's


@check("bridge-rules", "the firewall forwards what pods of other networks' bridges need", "rules", "networks", "routes")
def _of_bridges(sight: Sight) -> Iterator[Finding]:
    """What flannel's networks need, its daemon has accepted."""
    away = next((route for route in sight.routes if route.dst.version == 4 and not route.dst.prefixlen), None)
    uplink = None if away is None else sight.link(away.index)
    for network in (*sight.networks, *_unlisted(sight)) if uplink is not None else ():
        for bridge in (link for link in sight.links if link.kind == "bridge" and link.name in network.bridges):
            pod = _pod_on(sight, bridge, known="firewall" in network.plugins)
            if uplink is not None and pod is not None and "flannel" not in network.plugins:
                yield from _held_up(sight, network, pod, bridge.name, uplink.name)


def _unlisted(sight: Sight) -> Iterator[Configured]:
    """Of bridges that our plugin has made and that no configuration here names."""
    listed = {name for network in sight.networks for name in network.bridges}
    tables = {table for _, table, _ in (*sight.rules.chains, *sight.rules.sets)}
    used = [plugin for plugin, table in (("portmap", _HOST_PORTS), ("firewall", _FIREWALL)) if table in tables]
    for link in sight.links:
        own = any(each.ip in subnet for each in sight.addresses_of(link.index) for subnet in sight.subnets)
        if link.kind == "bridge" and link.alias.startswith(ALIAS) and link.name not in listed and not own:
            plugins = ("bridge", *used)
            yield Configured(file="that network's configuration", name="", plugins=plugins, bridges=(link.name,))


def _pod_on(sight: Sight, bridge: LinkInfo, *, known: bool) -> Ip | None:
    """A pod that must be `known` is one that was seen there, as rules name it."""
    own = next((each for each in sight.addresses_of(bridge.index) if each.ip.version == 4), None)
    there = (each.ip for each in sight.neighbours if each.index == bridge.index and each.mac is not None)
    seen = next((ip for ip in there if ip.version == 4), None)
    if own is None or known or seen is not None:
        return seen
    hosts = ip_interface(f"{own.ip}/{own.prefixlen}").network.hosts()
    return next((ip for ip in hosts if ip != own.ip), None)


def _held_up(sight: Sight, network: Configured, pod: Ip, bridge: str, uplink: str) -> Iterator[Finding]:
    some = Packet(source=pod, target=_OUTSIDE, protocol="tcp", source_port=SOME_PORT, target_port=_HTTP)
    leaving = replace(some, iif=bridge, oif=uplink)
    coming = replace(some, source=_OUTSIDE, target=pod, iif=uplink, oif=bridge, translated=frozenset(("dnat",)))
    asked = [("what its pods send", leaving, f'add {{"type": "firewall"}} after the plugin bridge in {network.file}')]
    if "portmap" in network.plugins:
        asked.append(("what comes to its published ports", coming, str(_PUBLISHED)))
    which = f"network {network.name}" if network.name else "a network without a configuration here"
    for what, packet, means in asked:
        verdict = judge(sight.rules, "forward", packet)
        if verdict.passes is False:
            owner = None if verdict.place is None else owner_of(sight.rules.chains, verdict.place)
            whose = "" if owner is None else f", which is {owner.name}'s"
            yield finding(
                "FW-002",
                f"{which}, bridge {bridge}",
                f"{what} is dropped by {verdict.by}{whose}",
                f"The reference plugins have the same problem. To have it accepted: {means}",
                expected="accepted",
                weight="warning",
            )


def _dropped(packet: Packet, verdict: Verdict, sight: Sight) -> Finding:
    networks = ", ".join(map(str, sight.networks_of_pods))
    owner = None if verdict.place is None else owner_of(sight.rules.chains, verdict.place)
    code = "FW-001" if owner is FIREWALLD else "FW-002"
    where, seen = f"forwarding {packet}", f"dropped by {verdict.by}"
    fix: tuple[Command, ...] = ()
    hint = f"An accept in another chain does not help: find whose rule this is, and have that program accept {networks}"
    if owner is not None:
        fix = owner.mends(sight.networks_of_pods)
        seen, hint = f"{seen}, which is {owner.name}'s", f"{owner.hint}: {'; '.join(map(str, fix))}"
    return finding(code, where, seen, hint, expected="accepted", fix=fix)


@check("port-rules", "the firewall lets datagrams from and to the peers pass", "rules")
def _outer(sight: Sight) -> Iterator[Finding]:
    said, doubts = set[str](), list[str]()
    for peer, port in product(peers(sight)[:_MOST], sight.ports):
        for hook, packet, verdict in _judged_on_the_way(sight, peer, port):
            if verdict.passes is False and verdict.by not in said:
                said.add(verdict.by)
                owner = None if verdict.place is None else owner_of(sight.rules.chains, verdict.place)
                whose = "the program whose rule this is" if owner is None else owner.name
                hint = (
                    f"Packets between pods are dropped here. Have {whose} accept UDP port {port} from and to the nodes"
                )
                where, seen = f"{_DOES[hook]} {packet}", f"dropped by {verdict.by}"
                weight: Weight = "fault"
                if ": " in peer.way:
                    hint, weight = f"Packets between pods go another way now. {hint.partition('. ')[2]}", "warning"
                yield finding("REACH-001", where, seen, hint, expected="accepted", weight=weight)
            elif verdict.passes is None:
                doubts.append(f"{packet}: {verdict.by}")
    if not said:
        _doubt(sight, doubts)


def _judged_on_the_way(sight: Sight, peer: Peer, port: int) -> Iterator[tuple[str, Packet, Verdict]]:
    link = sight.link(sight.ways.get(str(peer.public), 0))
    own = None if link is None or peer.public is None else address_on(sight, link.index, peer.public.version)
    if peer.public is None or own is None or link is None:
        return
    some = Packet(source=own, target=peer.public, protocol="udp", source_port=SOME_PORT, target_port=port)
    coming = replace(some, source=peer.public, target=own, iif=link.name)
    leaving = replace(some, oif=link.name)
    for hook, packet in (("prerouting", coming), ("input", coming), ("output", leaving), ("postrouting", leaving)):
        yield hook, packet, judge(sight.rules, hook, packet)


@check("host-ports", "each published port leads to a pod", "dead_ports")
def _dead_ports(sight: Sight) -> Iterator[Finding]:
    for dead in sight.dead_ports:
        seen = f"{dead.rule} leads to {dead.address}, but no pod of this node has that address"
        hint = "'weft cni gc NETWORK' removes the rule, and so does the next pod that weft gives the port"
        yield finding("HOSTPORT-003", f"host port {dead.port}", seen, hint)


@check("one-enforcer", "no other program enforces policies beside weft", "rules")
def _enforced_once(sight: Sight) -> Iterator[Finding]:
    """Both are asked of a packet, so it passes only if both allow it."""
    tables = {table for _, table, _ in sight.rules.chains}
    if POLICY_TABLE not in tables:
        return
    theirs = dict[str, Name]()
    for place in sorted(sight.rules.chains):
        if place[1] != POLICY_TABLE and (program := enforcer_in(f"{place[1]} {place[2]}")):
            theirs.setdefault(program, place)
    for program, place in theirs.items():
        seen = f"it is of {program}, and weft enforces policies on this node, too: what either forbids is refused"
        hint = "Remove it and its rules, or start weftd with --network-policy=off"
        yield finding("POL-004", f"chain {' '.join(place)}", seen, hint)


CHECKS: Final = (_forwarded, _enforced_once, _of_bridges, _outer, _dead_ports)
