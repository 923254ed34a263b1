"""A policy's rules as the text of a chain, for each of the two directions.

What a policy says of pods is the name of a set; ports, ipBlocks and protocols are text.
"""

from collections.abc import Iterable, Iterator
from ipaddress import collapse_addresses
from typing import Any, Final

from weft.desired.policy.inputs import PolicySettings
from weft.desired.policy.names import ALL_PODS, MAP, PortName, first_two, in_namespace, peers_set, ports_set
from weft.model.kernel.marks import NFT_WORD
from weft.model.kernel.policytable import PolicyChain, named
from weft.model.net import Net
from weft.model.policy import PROTOCOLS, Direction, IpBlock, Namespace, PodPeer, Policy, Port, Rule
from weft.model.value import Value

_SIDE: Final[dict[Direction, str]] = {"ingress": "saddr", "egress": "daddr"}
_KEY: Final[dict[Direction, str]] = {"ingress": "from", "egress": "to"}


class Rendered(Value):
    """A policy in one direction: its chain, and the sets that the chain names."""

    chain: PolicyChain
    peers: frozenset[PodPeer]
    ports: frozenset[PortName]


class _Match(Value, kw_only=False):
    """Words of a rule. They are of one family, or of both: 0."""

    words: str
    family: int = 0
    where: str = ""


def rendered(policy: Policy, direction: Direction, settings: PolicySettings) -> Rendered:
    """The policy has to restrict the direction."""
    rules = policy.rules(direction) or ()
    text = tuple(
        line
        for index, rule in enumerate(rules)
        for line in _lines(rule, f"{direction}[{index}]", policy.namespace, direction, settings)
    )
    pods = (peer for rule in rules for peer in rule.peers or () if isinstance(peer, PodPeer))
    peers = (in_namespace(policy.namespace, peer) for peer in pods)
    ports = ((port.name, port.protocol) for rule in rules for port in rule.ports or () if port.name)
    return Rendered(
        chain=named(f"{MAP[direction]}/{policy.namespace}/{policy.name}", text),
        peers=frozenset(peers) - {ALL_PODS},
        ports=frozenset(ports),
    )


def namespaces_of(policy: Policy, namespaces: Iterable[Namespace]) -> frozenset[str] | None:
    """Those whose pods its rules can mean; None for all pods there are.

    A port by its name, in what may leave, is a port of whichever pod of the peers has one so named.
    """
    known, found = tuple(namespaces), set[str]()
    for rule, leaves in (
        *((rule, False) for rule in policy.ingress or ()),
        *((rule, True) for rule in policy.egress or ()),
    ):
        by_name = leaves and any(port.name for port in rule.ports or ())
        for peer in (ALL_PODS,) if rule.peers is None else rule.peers:
            meant = in_namespace(policy.namespace, peer) if isinstance(peer, PodPeer) else ALL_PODS
            if meant == ALL_PODS and by_name:
                return None
            if meant != ALL_PODS and meant.namespaces is not None:
                found.update(each.name for each in known if meant.namespaces.selects(each.labels))
    return frozenset(found)


def _lines(rule: Rule, path: str, namespace: str, direction: Direction, settings: PolicySettings) -> Iterator[str]:
    sources = (_Match(""),) if rule.peers is None else tuple(_peers(rule, path, namespace, direction, settings))
    ports = (_Match(""),) if rule.ports is None else tuple(_ports(rule.ports, settings))
    for source in sources:
        for port in ports:
            if not source.family or not port.family or source.family == port.family:
                words = (source.words, port.words, "counter accept", f'comment "{source.where or path}"')
                yield " ".join(word for word in words if word)


def _peers(rule: Rule, path: str, namespace: str, direction: Direction, settings: PolicySettings) -> Iterator[_Match]:
    side, nets = _SIDE[direction], list[Net]()
    for index, peer in enumerate(rule.peers or ()):
        where = f"{path}.{_KEY[direction]}[{index}]"
        if isinstance(peer, IpBlock):
            nets += peer.prefixes
            continue
        meant = in_namespace(namespace, peer)
        if meant == ALL_PODS:
            for net in settings.networks:
                yield _Match(_any_pod(net, side, settings.subnet_lens[net.version]), net.version, where)
        else:
            for family in settings.families:
                words = f"{NFT_WORD[family]} {side} @{peers_set(meant, family).name}"
                yield _Match(words, family, where)
    for family in settings.families:
        if found := sorted({net for net in nets if net.version == family}):
            yield _Match(_nets(found, side), family, f"{path}.{_KEY[direction]}")


def _any_pod(net: Net, side: str, length: int) -> str:
    """The kernel knows no pods of other nodes; a node's first two addresses of its subnet are no pod's."""
    ip = f"{NFT_WORD[net.version]} {side}"
    host, *nodes = first_two(net, length)
    return f"{ip} {net} {ip} & {host} != {{ {', '.join(map(str, nodes))} }}"


def _nets(nets: list[Net], side: str) -> str:
    version, given = nets[0].version, list[Any](nets)
    merged = list(collapse_addresses(given))
    if not merged[0].prefixlen:
        return f"meta nfproto ipv{version}"
    return f"{NFT_WORD[version]} {side} {_one_of(map(str, merged))}"


def _one_of(words: Iterable[str]) -> str:
    several = list(words)
    return several[0] if len(several) == 1 else f"{{ {', '.join(several)} }}"


def _ports(ports: tuple[Port, ...], settings: PolicySettings) -> Iterator[_Match]:
    for protocol in PROTOCOLS:
        mine = [port for port in ports if port.protocol == protocol]
        if any(not port.first and not port.name for port in mine):
            yield _Match(f"meta l4proto {protocol}")
            continue
        if ranges := _merged((port.first, port.last) for port in mine if port.first):
            numbers = (f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)
            yield _Match(f"{protocol} dport {_one_of(numbers)}")
        for name in sorted({port.name for port in mine if port.name}):
            for family in settings.families:
                ip, held = NFT_WORD[family], ports_set((name, protocol), family).name
                # A packet without ports has other bytes in their place.
                yield _Match(f"meta l4proto {protocol} {ip} daddr . meta l4proto . th dport @{held}", family)


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges that do not overlap: nft refuses others."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
