"""Services as nft rules, in the form of kube-proxy's nftables mode (Kubernetes 1.31, pkg/proxy/nftables). Pure.

A map leads a packet to the Service's chain; there chance picks an endpoint's chain, which translates the destination.
Connection tracking translates later packets and the answers. A packet whose answer would not come back this way is
marked on its way in and gets the node's own address on its way out: one to a node's port, one from outside of the pod
network, and one that a pod sends to itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import Final

from weft.lab.services.choice import Endpoint, Served
from weft.model.kernel.marks import NFT_WORD, SERVICES_TABLE
from weft.model.kernel.nftset import Table
from weft.model.net import FAMILIES, Family, Net, with_port
from weft.wire import nft

_MARK: Final = "0x4000"  # kube-proxy's; flannel's rules leave what bears it alone (flannel.md §8.1)
_TYPE: Final[dict[Family, str]] = {4: "ipv4_addr", 6: "ipv6_addr"}
_LOOPBACK: Final[dict[Family, str]] = {4: "127.0.0.0/8", 6: "::1"}  # of its addresses no answer leaves the node
# Chains that are the same whatever Services there are; lookups stand where the destination may still be changed.
_LOOKUP: Final = "jump lookup"
_CHAINS: Final = {
    "prerouting": ("type nat hook prerouting priority -100;", (_LOOKUP,)),
    "output": ("type nat hook output priority -100;", (_LOOKUP,)),
    "postrouting": (
        "type nat hook postrouting priority 100;",
        (
            f"meta mark & {_MARK} == 0 return",
            f"meta mark set meta mark ^ {_MARK}",
            "masquerade fully-random",
        ),
    ),
    "mark-for-masquerade": ("", (f"meta mark set meta mark | {_MARK}",)),
}


def tables(services: Sequence[Served], networks: Iterable[Net]) -> str:
    """A transaction after which a node has these rules alone; `networks` are the pods'."""
    lines: list[str] = []
    for family in FAMILIES:
        table = Table(NFT_WORD[family], SERVICES_TABLE)
        lines += [f"add table {table}", f"delete table {table}"]
        for network in networks:
            if services and network.version == family:
                lines.append(f'add table {table} {{ comment "weft lab: Services"; }}')
                lines += [f"add {what} {table} {rest}" for what, rest in _content(services, family, network)]
    return nft.payload(lines)


def _content(services: Sequence[Served], family: Family, network: Net) -> Iterator[tuple[str, str]]:
    """Chains before the maps that lead to them, and maps before what looks them up."""
    word, kind = NFT_WORD[family], _TYPE[family]
    own = [_Of(each, family) for each in services]
    for name, (hook, _) in _CHAINS.items():
        yield "chain", f"{name} {{ {hook} }}" if hook else name
    for each in own:
        yield from each.chains(word, network)
    reached = [each for each in own if each.endpoints]
    yield "map", f"services {{ type {kind} . inet_proto . inet_service : verdict; }}"
    yield "map", "node-ports { type inet_proto . inet_service : verdict; }"
    yield "set", f"addresses {{ type {kind}; }}"
    yield from _elements("services", (each.by_address for each in reached))
    yield from _elements("node-ports", (each.by_node_port for each in reached if each.node_port))
    yield from _elements("addresses", (each.address for each in own))
    yield "chain", "lookup"
    yield "rule", f"lookup {word} daddr . meta l4proto . th dport vmap @services"
    local = f"fib daddr type local {word} daddr != {_LOOPBACK[family]}"
    yield "rule", f"lookup {local} meta l4proto . th dport vmap @node-ports"
    for name, (_, rules) in _CHAINS.items():
        yield from (("rule", f"{name} {rule}") for rule in rules)
    # What still has a Service's address behind the lookup is for a port that it has not, or no pod is behind it.
    for hook in ("forward", "output"):
        yield "chain", f"filter-{hook} {{ type filter hook {hook} priority 0; }}"
        yield "rule", f"filter-{hook} {word} daddr @addresses reject"


def _elements(name: str, elements: Iterable[str]) -> Iterator[tuple[str, str]]:
    found = ", ".join(elements)
    if found:
        yield "element", f"{name} {{ {found} }}"


class _Of:
    """A Service of one family."""

    def __init__(self, served: Served, family: Family) -> None:
        service = served.service
        self.endpoints = [each for each in served.endpoints if each.address.version == family]
        [self.address] = [text for text in service.addresses if ip_address(text).version == family]
        self.node_port = service.node_port
        self._name, self._protocol = service.name, service.protocol.lower()
        self._port, self._target_port = service.port, service.target_port

    @property
    def by_address(self) -> str:
        return f"{self.address} . {self._protocol} . {self._port} : goto service/{self._name}"

    @property
    def by_node_port(self) -> str:
        return f"{self._protocol} . {self.node_port} : goto node-port/{self._name}"

    def chains(self, word: str, network: Net) -> Iterator[tuple[str, str]]:
        """By port of a node, by address, and of each endpoint."""
        if not self.endpoints:
            return
        service, by_node_port = f"service/{self._name}", f"node-port/{self._name}"
        for endpoint in self.endpoints:
            chain, address = self._chain(endpoint), endpoint.address
            yield "chain", chain
            yield "rule", f"{chain} {word} saddr {address} jump mark-for-masquerade"
            to = with_port(address, self._target_port)
            yield "rule", f"{chain} meta l4proto {self._protocol} dnat to {to}"
        yield "chain", service
        yield "rule", f"{service} {word} saddr != {network} jump mark-for-masquerade"
        picked = ", ".join(f"{number} : goto {self._chain(each)}" for number, each in enumerate(self.endpoints))
        yield "rule", f"{service} numgen random mod {len(self.endpoints)} vmap {{ {picked} }}"
        if self.node_port:
            yield "chain", by_node_port
            yield "rule", f"{by_node_port} jump mark-for-masquerade"
            yield "rule", f"{by_node_port} goto {service}"

    def _chain(self, endpoint: Endpoint) -> str:
        return f"endpoint/{self._name}/{endpoint.pod}"
