"""An attachment's ports as elements of our nf_tables maps, and the frame around them (cni.md §5, settled.md §8).

A mapping is one element, looked up by its port, so that neither a packet nor a change gets slower with the number of
pods. A comment says whose an element is, as in upstream's masquerading table.

Connections from the pod's subnet and from 127.0.0.1 are masqueraded, so that answers come back the way they went. A
mark says, on the first packet of a connection, that it came through one of our ports. Source and pod must match an
element: the source cut to the subnet's length, so that sets stay exact, with one set and rule for each length in use.
To delete from a set of intervals takes the kernel 6.7 ms with 1,000 pods, from an exact one 0.03 with any number (Linux
6.18).
"""

from collections.abc import Collection, Iterable
from ipaddress import ip_address, ip_network
from typing import Final

from weft.cni.plugins.portmap.conf import PROTOCOLS, Mapping, PortMap
from weft.model.attachment import Cidr, Result
from weft.model.kernel.marks import NFT_WORD
from weft.model.kernel.nftset import Change, Element, Table, field, replacing
from weft.model.net import Ip
from weft.wire.nft import Rule, add_rules

TABLE: Final = Table("inet", "weft-hostport")

# Bit 12. Upstream's portmap has 13, Kubernetes 14 and 15: a rule of theirs must not mistake our packets for its own.
_MARK: Final = "0x00001000"
_LOCALHOST: Final = ip_address("127.0.0.1")
_ADDRESS_TYPE: Final = {4: "ipv4_addr", 6: "ipv6_addr"}
_ADDRESS_BYTES: Final = {4: 4, 6: 16}
_HAS_PORTS: Final = f"meta l4proto {{ {', '.join(sorted(PROTOCOLS, key=PROTOCOLS.__getitem__))} }}"
_NAMES: Final = {number: name for name, number in PROTOCOLS.items()}

# After iptables' chains at -100, where Services come before host ports too; before its POSTROUTING at 100, as the
# first rule there is upstream's.
_HOOKS: Final = {
    "prerouting": "type nat hook prerouting priority -90; policy accept;",
    "output": "type nat hook output priority -90; policy accept;",
    "postrouting": "type nat hook postrouting priority 90; policy accept;",
}

_RULES: Final = (
    Rule(chain="ports", text=f"meta mark set meta mark | {_MARK}", comment="through a host port"),
    *(
        Rule(chain="ports", text=f"{_HAS_PORTS} {statement}", comment=comment)
        for family, prefix in NFT_WORD.items()
        for statement, comment in (
            (
                f"dnat {prefix} to {prefix} daddr . meta l4proto . th dport map @bound{family}",
                f"a port of one IPv{family} address",
            ),
            (
                f"meta nfproto ipv{family} dnat {prefix} to meta l4proto . th dport map @any{family}",
                f"a port of any IPv{family} address",
            ),
        )
    ),
    Rule(chain="ports", text=f"meta mark set meta mark & {int(_MARK, 16) ^ 0xFFFFFFFF:#010x}", comment="none"),
    Rule(chain="prerouting", text="fib daddr type local jump ports", comment="to this host"),
    Rule(chain="output", text="fib daddr type local jump ports", comment="from this host to itself"),
)


def container_addresses(result: Result, ifname: str) -> tuple[Cidr, ...]:
    """One that is known to belong elsewhere is none; one without an index may be the container's (cni.md §5.1)."""
    found: dict[int, Cidr] = {}
    for ip in result.ips:
        if ip.interface is not None and 0 <= ip.interface < len(result.interfaces):
            interface = result.interfaces[ip.interface]
            if interface.name != ifname or not interface.sandbox:
                continue
        found.setdefault(ip.address.version, ip.address)
    return tuple(found[family] for family in NFT_WORD if family in found)


def elements(wanted: PortMap, comment: str) -> tuple[Element, ...]:
    """Of mappings of the same port the first counts."""
    found: dict[tuple[str, bytes], Element] = {}
    for address in wanted.addresses:
        family = address.version
        made = [_port(mapping, address.ip, comment) for mapping in wanted.mappings_to(address)]
        if wanted.conf.snat and made:
            sources = [(ip_network((0 if family == 4 else "::", 0)) if wanted.conf.masq_all else address.network)]
            if family == 4 and not wanted.conf.masq_all:
                sources.append(ip_network(_LOCALHOST))
            made += [
                Element(
                    set=f"masq{family}-{source.prefixlen}",
                    key=source.network_address.packed + address.ip.packed,
                    comment=comment,
                )
                for source in sources
            ]
        for element in made:
            found.setdefault((element.set, element.key), element)
    return tuple(found.values())


def _port(mapping: Mapping, pod: Ip, comment: str) -> Element:
    key = field(bytes([PROTOCOLS[mapping.protocol]])) + field(mapping.host_port.to_bytes(2, "big"))
    host_ip = mapping.host_ip
    bound = host_ip is not None and not host_ip.is_unspecified
    if host_ip is not None and bound:
        key = host_ip.packed + key
    data = pod.packed + field(mapping.container_port.to_bytes(2, "big"))
    return Element(set=f"{'bound' if bound else 'any'}{pod.version}", key=key, data=data, comment=comment)


def pod_of(element: Element) -> Ip:
    size = _ADDRESS_BYTES[_family(element.set)]
    return ip_address(element.data[:size] or element.key[size:])


def port_of(element: Element) -> str:
    key = element.key[-8:]
    return f"{int.from_bytes(key[4:6], 'big')}/{_NAMES.get(key[0], key[0])}"


def describe(element: Element) -> str:
    size = _ADDRESS_BYTES[_family(element.set)]
    if not element.data:
        length = element.set.partition("-")[2]
        return f"masquerading from {ip_address(element.key[:size])}/{length} to {pod_of(element)}"
    where = f" of {ip_address(element.key[:size])}" if element.set.startswith("bound") else ""
    target, port = pod_of(element), int.from_bytes(element.data[size : size + 2], "big")
    leads = f"{target}:{port}" if target.version == 4 else f"[{target}]:{port}"
    return f"host port {port_of(element)}{where} to {leads}"


def _family(name: str) -> int:
    return int(name.partition("-")[0][-1])


def is_of(element: Element, owner: str) -> bool:
    """`owner` is how the comment begins."""
    return element.comment.startswith(owner)


def settle(wanted: Element, present: Element | None, owner: str, siblings: Collection[str]) -> tuple[Change, ...]:
    """Return what puts the wanted element in place of the one that its key has now.

    That stays if it is one of the `siblings`, given as owners: attachments of the same container. `Taken` if it is
    another attachment's, unless it leads to our own address: then that one is dead.
    """
    if present is not None:
        if any(is_of(present, sibling) for sibling in siblings):
            return ()
        if not is_of(present, owner) and pod_of(present) != pod_of(wanted):
            raise Taken(wanted, present)
    return replacing(wanted, present)


class Taken(Exception):
    def __init__(self, wanted: Element, holder: Element) -> None:
        super().__init__(f"{describe(wanted)}: taken by {holder.comment}")
        self.wanted = wanted
        self.holder = holder


def frame_rules(sets: Iterable[str]) -> tuple[Rule, ...]:
    return (*_RULES, *(_masq_rule(name) for name in sorted(sets) if name.startswith("masq")))


def frame(present: Iterable[str], needed: Iterable[str]) -> list[str]:
    """All of it without a set, else sets of masquerading. Fails as a whole when somebody else has made the same."""
    have = set(present)
    lines: list[str] = []
    if not have:
        lines.append(f'create table {TABLE} {{ comment "weft: host ports of pods"; }}')
        for family, address in _ADDRESS_TYPE.items():
            port = f"inet_proto . inet_service : {address} . inet_service"
            lines.append(f"create map {TABLE} bound{family} {{ type {address} . {port}; }}")
            lines.append(f"create map {TABLE} any{family} {{ type {port}; }}")
        lines.append(f"create chain {TABLE} ports")
        lines += [f"create chain {TABLE} {name} {{ {hook} }}" for name, hook in _HOOKS.items()]
        lines += add_rules(TABLE, _RULES)
    for name in sorted(set(needed) - have):
        if name.startswith("masq"):
            address = _ADDRESS_TYPE[_family(name)]
            lines.append(f"create set {TABLE} {name} {{ type {address} . {address}; }}")
            lines += add_rules(TABLE, [_masq_rule(name)])
    return lines


def _masq_rule(name: str) -> Rule:
    family, length = _family(name), int(name.partition("-")[2])
    prefix = NFT_WORD[family]
    mask = ip_network((0 if family == 4 else "::", length)).netmask
    cut = "" if length == mask.max_prefixlen else f" & {mask}"
    return Rule(
        chain="postrouting",
        text=f"meta mark & {_MARK} == {_MARK} {prefix} saddr{cut} . {prefix} daddr @{name} masquerade",
        comment=f"from IPv{family} subnets of /{length}",
    )
