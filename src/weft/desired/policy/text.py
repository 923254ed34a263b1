"""A policy's rules as the text of a chain, for each of the two directions.

What a policy says of pods is the name of a set; ports, ipBlocks and protocols are text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import collapse_addresses
from typing import Any, Final

from weft.desired.policy.inputs import PolicySettings
from weft.desired.policy.names import ALL_PODS, MAP, PortName, first_two, in_namespace, peers_set, ports_set
from weft.model.kernel.marks import NFT_WORD
from weft.model.kernel.policytable import PolicyChain, named, short
from weft.model.net import Net
from weft.model.policy import (
    PEERS_KEY,
    PROTOCOLS,
    Action,
    ClusterPolicy,
    Direction,
    IpBlock,
    Namespace,
    PodPeer,
    Policy,
    Port,
    Rule,
    Selector,
)
from weft.model.value import Value

_PEER_SIDE: Final[dict[Direction, str]] = {"ingress": "saddr", "egress": "daddr"}

_Ends = Mapping[Action, str]

_COMMENT: Final = 120  # letters of a rule's


class Rendered(Value):
    """A chain, and the sets that its text names."""

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
    text = tuple(_text(policy, direction, settings, {"Accept": "accept"}))
    chain = named(f"{MAP[direction]}/{policy.namespace}/{policy.name}", text)
    return Rendered(chain=chain, **_used((policy,), direction))


def admin(policies: Sequence[ClusterPolicy], direction: Direction, settings: PolicySettings, refused: str) -> Rendered:
    """The tier before NetworkPolicies, in its order. Pass returns to the class."""
    ends: _Ends = {"Accept": "accept", "Deny": f"goto {refused}", "Pass": "return"}
    text = tuple(line for policy in policies for line in _text(policy, direction, settings, ends))
    return Rendered(chain=named(f"{MAP[direction]}-admin", text), **_used(policies, direction))


def restricted(
    parts: Mapping[str, Rendered], direction: Direction, refused: str, tier: Rendered | None = None
) -> Rendered:
    """The class of pods that NetworkPolicies select: these decide finally. Nobody can keep a pod from itself.

    `parts` are by the policies' names. Those without rules have no chain by which one could tell who refuses, so a rule
    at the end names each: no packet gets beyond the first of these, and one comment has no room for all.
    """
    itself = (f"{ip} saddr . {ip} daddr @self{family} accept" for family, ip in NFT_WORD.items())
    jumps = (f"jump {each.chain.name}" for each in parts.values() if each.chain.rules)
    ends = [f'goto {refused} comment "{short(name, _COMMENT)}"' for name, each in parts.items() if not each.chain.rules]
    text = (*_first(tier), *itself, *jumps, *(ends or [f"goto {refused}"]))
    return Rendered(chain=named(MAP[direction], text), peers=frozenset(), ports=frozenset())


def unrestricted(
    baseline: Sequence[ClusterPolicy],
    direction: Direction,
    settings: PolicySettings,
    refused: str,
    tier: Rendered | None = None,
) -> Rendered:
    """The class of pods that no NetworkPolicy selects: the baseline tier is asked, and at the end all is allowed."""
    ends: _Ends = {"Accept": "accept", "Deny": f"goto {refused}", "Pass": "accept"}
    lines = (line for policy in baseline for line in _text(policy, direction, settings, ends))
    text = (*_first(tier), *lines, "accept")
    return Rendered(chain=named(MAP[direction], text), **_used(baseline, direction))


def _first(tier: Rendered | None) -> tuple[str, ...]:
    return (f"jump {tier.chain.name}",) if tier is not None and tier.chain.rules else ()


def _text(policy: Policy | ClusterPolicy, direction: Direction, settings: PolicySettings, ends: _Ends) -> Iterator[str]:
    of = str(policy) if isinstance(policy, ClusterPolicy) else ""
    for index, rule in enumerate(policy.rules(direction) or ()):
        for words, path in _matches(rule, f"{direction}[{index}]", policy.namespace, direction, settings):
            said = f"{short(of, _COMMENT - len(path) - 1)} {path}" if of else path
            yield f'{words}{" " if words else ""}counter {ends[rule.action]} comment "{said}"'


def _used(policies: Iterable[Policy | ClusterPolicy], direction: Direction) -> dict[str, Any]:
    """The sets that these policies' text names."""
    peers, ports = set[PodPeer](), set[PortName]()
    for policy in policies:
        for rule in policy.rules(direction) or ():
            peers.update(in_namespace(policy.namespace, peer) for peer in rule.peers or () if isinstance(peer, PodPeer))
            ports.update((port.name, port.protocol) for port in rule.ports or () if port.name)
    return {"peers": frozenset(peers - {ALL_PODS}), "ports": frozenset(ports)}


def namespaces_of(policy: Policy | ClusterPolicy, namespaces: Iterable[Namespace]) -> frozenset[str] | None:
    """Those whose pods its rules can mean; None for all pods there are.

    A port by its name, in what may leave, is a port of whichever pod of the peers has one so named.
    """
    selectors = set[Selector]()  # a policy of many rules has few
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
                selectors.add(meant.namespaces)
    known = tuple(namespaces)
    return frozenset(each.name for one in selectors for each in known if one.selects(each.labels))


def _matches(
    rule: Rule, path: str, namespace: str, direction: Direction, settings: PolicySettings
) -> Iterator[tuple[str, str]]:
    """Words that a packet has to meet, and the path of the part of the rule that they say."""
    sources = (_Match(""),) if rule.peers is None else tuple(_peers(rule, path, namespace, direction, settings))
    ports = (_Match(""),) if rule.ports is None else tuple(_ports(rule.ports, settings))
    for source in sources:
        for port in ports:
            if not source.family or not port.family or source.family == port.family:
                yield " ".join(words for words in (source.words, port.words) if words), source.where or path


def _peers(rule: Rule, path: str, namespace: str, direction: Direction, settings: PolicySettings) -> Iterator[_Match]:
    side, nets = _PEER_SIDE[direction], list[Net]()
    for index, peer in enumerate(rule.peers or ()):
        where = f"{path}.{PEERS_KEY[direction]}[{index}]"
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
            yield _Match(_nets(found, side), family, f"{path}.{PEERS_KEY[direction]}")


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
