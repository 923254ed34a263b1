"""The trials that a node makes alone, between its pods and itself and to other nodes, and what follows. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from itertools import chain, cycle, groupby, islice
from typing import Final, Literal

from weft.diag.check.causes import Cause, Place
from weft.diag.check.evidence import Evidence
from weft.diag.check.scenarios import BY_NAME, End, Scenario, Way, trials_of
from weft.diag.check.trial import Trial, Tried
from weft.diag.sight.node import Pod, Sight
from weft.diag.sight.peers import peers
from weft.model.errors import Problem
from weft.model.net import FAMILIES, Family, family_of
from weft.model.text import counted, some_of
from weft.model.value import replace

_NAMES: Final = (
    *("pod-loopback", "pod-itself", "pod-pod-same", "node-pod-same", "pod-node-same"),
    *("pod-peer", "pod-peer-mtu", "node-peer", "pod-node-other", "node-node"),
)
# A node need not let pods in at any port: of its own firewall only echo requests tell nothing wrong.
FROM_HERE: Final = tuple(
    replace(BY_NAME[name], protocols=("icmp",)) if name == "pod-node-same" else BY_NAME[name] for name in _NAMES
)
# Of a pod, in the kernel's one table for all namespaces: three are a check's, and the others' stay.
_NEIGHBOURS: Final = 8

_TWICE: Final = "One of them has it from elsewhere: 'weft ipam list' shows which container holds it."
_FEW: Final = 4  # a cause may name one in so many of all places


def ends(sight: Sight, name: str, pods: Sequence[Pod]) -> list[End]:
    """This node, its pods, and each address of other nodes that may answer.

    A pod is a place of its own here, as nodes are in a check of a lab: a cause may name it.
    """
    here = End(kind="node", name=name, node=name, addresses=_own(sight), mtu=sight.mtu)
    own = [
        End(
            kind="pod",
            name=pod.name,
            node=pod.name,
            addresses=pod.addresses,
            mtu=min(filter(None, (sight.mtu, pod.mtu)), default=0),
            number=number,
            bridge=_bridge(sight, pod),
        )
        for number, pod in enumerate(pods)
    ]
    return [here, *own, *_others(sight)]


def _bridge(sight: Sight, pod: Pod) -> int:
    """Return the index of the bridge whose network has the pod's first address, even if the pod is not on it; or 0."""
    address = ip_address(next(iter(pod.addresses.values())))
    own = ((each, bridge.index) for bridge in sight.bridges for each in sight.addresses_of(bridge.index))
    return next((index for each, index in own if address in ip_network(f"{each.ip}/{each.prefixlen}", strict=False)), 0)


def trials(everything: Sequence[End], most: int) -> list[Trial]:
    """All trials, by scenario: as many as pods and nodes, not as many as pairs of them.

    Each pod tries the next one on its bridge, `most` of them at most, and one other node; the first pod and the node
    itself try all other nodes.
    """
    return [
        trial for scenario in FROM_HERE for trial in trials_of(scenario, _pairs(scenario, everything, most), FAMILIES)
    ]


def few(own: Sequence[End], others: Sequence[End]) -> list[Trial]:
    """Echo requests in each family: what proves most by least.

    Each pod gets one from the node, and one from the pod before it on its bridge; `others` get one from pods in turn.
    """
    pods = [end for end in own if end.kind == "pod"]
    pairs = {
        "pod-pod-same": [pair for group in _together(pods) if len(group) > 1 for pair in _around(group)],
        "node-pod-same": [(node, pod) for node in filter(_is_here, own) for pod in pods],
        "pod-peer": [pair for family in FAMILIES for pair in _in_turn(_having(family, pods), _having(family, others))],
    }
    return [
        trial
        for name, asked in pairs.items()
        for trial in trials_of(replace(BY_NAME[name], protocols=("icmp",)), asked, FAMILIES)
    ]


def _having(family: Family, everything: Sequence[End]) -> list[End]:
    return [end for end in everything if family in end.addresses]


def _in_turn(ones: Sequence[End], others: Sequence[End]) -> Iterator[tuple[End, End]]:
    return islice(zip(cycle(ones), cycle(others), strict=False), max(len(ones), len(others)))


def reachable(sight: Sight) -> list[End]:
    """Peers, named by their subnets, without those that have not answered the node: pods' packets need not tell it.

    Nor those to which nothing of weft leads. One without a device in the pod network is asked at its pods' gateway.
    """
    silent = {each.peer for each in sight.probes if each.way == "overlay" and not each.answered}
    daemon = sight.daemon
    nowhere = daemon is not None and daemon.network is not None and daemon.network.backend == "alloc"
    leases = () if daemon is None else daemon.peers
    silent |= {net for each in leases if nowhere or each.trouble for net in each.subnets}
    found = list[End]()
    for name, peer in ((str(peer.subnet), peer) for peer in peers(sight)):
        address = peer.inner or peer.subnet.network_address + 1
        if name not in silent:
            own: dict[Family, str] = {family_of(address): str(address)}
            found.append(End(kind="peer", name=name, node=name, addresses=own, mtu=sight.mtu, afar=True))
    return found


def most_pairs(sight: Sight) -> int:
    """How many pods may try each other: each makes neighbours in the kernel's one table."""
    limits = (int(sight.settings.get(f"net/ipv{version}/neigh/default/gc_thresh3", 1024)) for version in (4, 6))
    return min(limits) // _NEIGHBOURS


def untried(sight: Sight, pods: Sequence[Pod]) -> list[str]:
    found = []
    bridges = {bridge.index for bridge in sight.bridges}
    ports = sum(link.master in bridges and link.peer_netns >= 0 for link in sight.links)
    if not pods and ports:
        said = f"the network namespaces behind {counted(ports, 'link')} are not visible from here"
        found.append(f"pods: {said}: run it in the host's PID and mount namespaces")
    elif not pods:
        found.append("pods: none of this node's has an address in its part of the network")
    if (most := most_pairs(sight)) < len(pods):
        found.append(f"pods to pods but for the first {most}: the kernel's neighbour table is bounded (gc_thresh3)")
    without = sorted(str(peer.subnet) for peer in peers(sight) if peer.inner is None)
    if without:
        found.append(f"the pod network to {some_of(without, 1)}: the back end has no device there that would answer")
    return found


def _pairs(scenario: Scenario, everything: Sequence[End], most: int) -> Iterator[tuple[End, End]]:
    pods = [end for end in everything if end.kind == "pod"]
    sources = pods if scenario.source == "pod" else list(filter(_is_here, everything))
    if scenario.where in ("loopback", "itself"):
        yield from zip(sources, sources, strict=True)
    elif scenario.where == "other":
        targets = [end for end in everything if end.kind == scenario.target and end.afar]
        yield from ((source, target) for source in sources[:1] for target in targets)
        yield from ((each, targets[number % len(targets)]) for number, each in enumerate(sources) if number and targets)
    elif scenario.source == scenario.target:
        for group in _together(pods[:most]):
            yield from _around(group) if len(group) > 1 else ()
    else:
        targets = [end for end in everything if end.kind == scenario.target and not end.afar]
        yield from ((source, target) for source in sources for target in targets)


def _is_here(end: End) -> bool:
    return end.kind == "node" and not end.afar


def _together(pods: Sequence[End]) -> Iterator[list[End]]:
    """The pods of each bridge."""
    for _, group in groupby(sorted(pods, key=lambda pod: pod.bridge), key=lambda pod: pod.bridge):
        yield list(group)


def _around(group: Sequence[End]) -> Iterator[tuple[End, End]]:
    """Each with the next one, and the last with the first."""
    return zip(group, [*group[1:], *group[:1]], strict=True)


def _own(sight: Sight) -> dict[Family, str]:
    """Addresses of the uplink come before others."""
    named = () if sight.daemon is None or sight.daemon.uplink is None else (sight.daemon.uplink.index,)
    default = (route.index for route in sight.routes if not route.dst.prefixlen)
    links = chain(named, sight.ways.values(), default, (bridge.index for bridge in sight.bridges))
    found: dict[Family, str] = {}
    for index in links:
        for address in sight.addresses_of(index):
            if not address.ip.is_link_local:
                found.setdefault(family_of(address.ip), str(address.ip))
    return found


def _others(sight: Sight) -> list[End]:
    known = () if sight.daemon is None else sight.daemon.peers
    names = {subnet: next(iter(peer.public), peer.id) for peer in known for subnet in peer.subnets}
    found: dict[tuple[Literal["node", "peer"], str], dict[Family, str]] = {}
    for peer in peers(sight):
        name = names.get(str(peer.subnet)) or str(peer.public or peer.subnet)
        if peer.public is not None:
            found.setdefault(("node", name), {})[family_of(peer.public)] = str(peer.public)
        if peer.inner is not None:
            found.setdefault(("peer", name), {})[family_of(peer.inner)] = str(peer.inner)
    return [
        End(kind=kind, name=name, node=name, addresses=addresses, mtu=sight.mtu, afar=True)
        for (kind, name), addresses in found.items()
    ]


def placed(found: Sequence[Cause], name: str, tried: Sequence[Tried]) -> list[Cause]:
    """The causes of a node called `name`. One that is anywhere is there: all packets pass it.

    Where most packets of a cause passed, and a few places that nothing reaches explain all failures, these are the
    cause.
    """
    dead = _dead(found, name, tried) if any(cause.passed > cause.failed for cause in found) else ()
    if dead:
        examples = tuple(each for cause in found for each in cause.examples)
        place = Place(kind="some", nodes=tuple(dead))
        failed = sum(cause.failed for cause in found)
        return [Cause(fault=found[0].fault, place=place, traits=(), failed=failed, passed=0, examples=examples)]
    here = Place(kind="node", nodes=(name,))
    return [replace(cause, place=here) if cause.place.kind == "anywhere" else cause for cause in found]


def _dead(found: Sequence[Cause], name: str, tried: Sequence[Tried]) -> list[str]:
    """Places that nothing reaches and nothing leaves, if a few of many explain all failures."""
    leaving = [each for each in tried if BY_NAME[each.trial.scenario].between_ends]
    everywhere = {end for each in leaving for end in _ends(each)} - {name}
    alive = {end for each in leaving if not each.fault for end in _ends(each)}
    rest = [_ends(each) & (everywhere - alive) for cause in found for each in cause.examples]
    dead: list[str] = []
    while rest and all(rest):
        counts = Counter(end for each in rest for end in sorted(each))
        dead.append(max(counts, key=lambda end: counts[end]))
        rest = [each for each in rest if dead[-1] not in each]
    return [] if rest or len(dead) * _FEW > len(everywhere) else sorted(dead)


def _ends(tried: Tried) -> set[str]:
    return {tried.trial.source, tried.trial.target}


def without(tried: Sequence[Tried], ended: Collection[str]) -> tuple[list[Tried], list[str]]:
    """Leave out trials that prove nothing, with the reason: of pods that have `ended`, and of silent public IPs.

    A node that is reached through the pod network may keep its public IP from answering.
    """
    reached = {(_way(each), each.trial.target) for each in tried if not each.fault}
    left, why = list[Tried](), dict[str, None]()
    for each in tried:
        gone = sorted({each.trial.source, each.trial.target} & set(ended))
        why |= dict.fromkeys(f"{name}: it has ended meanwhile" for name in gone)
        target, silent = each.trial.target, each.trial.afar and _way(each) == "underlay"
        if silent and ("underlay", target) not in reached and ("overlay", target) in reached:
            why[f"{target}: it is reached through the pod network, and its public IP does not answer"] = None
        elif not gone:
            left.append(each)
    return left, list(why)


def _way(tried: Tried) -> Way:
    return BY_NAME[tried.trial.scenario].way


def given(sight: Sight, pods: Sequence[Pod]) -> dict[str, str]:
    """Which pod was given an address, as its runtime remembers."""
    names = {link.name: pod.name for pod in pods if (link := sight.link(pod.peer)) is not None}
    known = ((names[host], each) for each in sight.attached for host in each.hosts if host in names)
    return {str(ip): name for name, each in known for ip in each.addresses}


def shared(tried: Sequence[Tried], given: Mapping[str, str]) -> tuple[list[Tried], list[Evidence]]:
    """Give trials of an address that several pods have this fault; and say which pods these are.

    Where it is known who was `given` the address, the others are at fault. What was sent to the one proves nothing:
    any of them may have got it.
    """
    owners: dict[str, dict[str, None]] = {}
    for each in filter(_is_own, tried):
        owners.setdefault(each.trial.address, {})[each.trial.target] = None
    twice = {address: list(names) for address, names in owners.items() if len(names) > 1}
    rightly = {address: given[address] for address, names in twice.items() if given.get(address) in names}
    evidence = [
        Evidence(node=name, by="check", problem=_twice(address, name, names, rightly.get(address)))
        for address, names in twice.items()
        for name in names
        if name != rightly.get(address)
    ]
    found = [
        replace(each, fault="shared") if _is_own(each) and each.trial.address in twice else each
        for each in tried
        if each.trial.target != rightly.get(each.trial.address)
    ]
    return found, evidence


def _twice(address: str, name: str, names: Sequence[str], rightly: str | None) -> Problem:
    if rightly is None:
        return Problem("CHECK-001", address, f"pods {' and '.join(names)} have it", hint=_TWICE)
    return Problem("CHECK-001", f"pod {name}", f"it has {address}, which pod {rightly} was given", hint=_TWICE)


def _is_own(tried: Tried) -> bool:
    return "own-address" in BY_NAME[tried.trial.scenario].demands
