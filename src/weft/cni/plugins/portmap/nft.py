"""portmap by nft, with upstream's tables, rules and comments (cni.md §5.4): either can remove the other's.

A comment is the container's id and nothing else, as upstream looks for
it.
"""

from collections.abc import Collection
from typing import Final

from weft.cni.plugins.portmap.conf import PortMap, PortmapConf, target
from weft.model.kernel.marks import NFT_WORD
from weft.model.kernel.nftset import Table
from weft.model.net import Ip
from weft.wire import nft as text
from weft.wire.nft import Listing

_TABLE_COMMENT: Final = "CNI portmap plugin"
_PORTS: Final = "hostports"
_LEGACY: Final = "hostip_hostports"
_ALL: Final = "hostports_all"
_MASQUERADING: Final = "masquerading"
_HOOKS: Final = {
    "prerouting": "type nat hook prerouting priority -100;",
    "output": "type nat hook output priority -100;",
    _MASQUERADING: "type nat hook postrouting priority 100;",
}
_LOCALHOST: Final = "127.0.0.1"
# Where the rules of pods are, of this version of upstream's and of earlier ones.
PORT_CHAINS: Final = (_PORTS, _LEGACY)


def table_of(family: int) -> Table:
    return Table(NFT_WORD[family], "cni_hostport")


def rules_of(wanted: PortMap, family: int, comment: str) -> dict[str, list[str]]:
    address = next((each for each in wanted.addresses if each.version == family), None)
    if address is None:
        return {}
    prefix, conf = NFT_WORD[family], wanted.conf
    rules: dict[str, list[str]] = {_PORTS: []}
    for mapping in wanted.mappings_to(address):
        host = mapping.host_ip
        to_host = "" if host is None or host.is_unspecified else f"{prefix} daddr {host} "
        leads = target(address, mapping)
        rules[_PORTS].append(
            f'{to_host}{mapping.protocol} dport {mapping.host_port} dnat to {leads} comment "{comment}"'
        )
    if conf.snat:
        everything = "0.0.0.0/0" if family == 4 else "::/0"
        sources = [everything if conf.masq_all else f"{address.ip}"]
        if family == 4 and not conf.masq_all:
            sources.append(_LOCALHOST)
        rules[_MASQUERADING] = [
            f'{prefix} saddr {source} {prefix} daddr {address.ip} masquerade comment "{comment}"' for source in sources
        ]
    return rules


def base_rules(conf: PortmapConf, family: int) -> dict[str, list[str]]:
    conditions = "".join(f"{word} " for word in conf.conditions(family))
    local = f"{conditions}fib daddr type local jump {_ALL}"
    return {_LEGACY: [], _ALL: [f"jump {_LEGACY}", f"jump {_PORTS}"], "prerouting": [local], "output": [local]}


def additions(have: Listing, wanted: PortMap, family: int, comment: str) -> list[str]:
    """A shared chain is emptied and filled again only if it differs: that makes the kernel wait, 10 ms and more."""
    table = table_of(family)
    base, own = base_rules(wanted.conf, family), rules_of(wanted, family, comment)
    lines = [f'add table {table} {{ comment "{_TABLE_COMMENT}"; }}']
    for chain in dict.fromkeys([*own, *base]):
        hook = f" {{ {_HOOKS[chain]} }}" if chain in _HOOKS else ""
        lines.append(f"add chain {table} {chain}{hook}")
    for chain, rules in base.items():
        if rules and rules != text.rules_of(have, chain):
            lines += text.refill(table, chain, rules)
    for chain, rules in own.items():
        present = text.rules_of(have, chain)
        lines += [f"add rule {table} {chain} {rule}" for rule in rules if rule not in present]
    return lines


def removals(have: Listing, family: int, comment: str, *, ours: Collection[Ip] = ()) -> list[str]:
    """With `ours` only those of these addresses."""
    marks = [mark for ip in ours for mark in (f" dnat to {ip}:", f" dnat to [{ip}]:", f" daddr {ip} masquerade")]

    def is_unwanted(rule: str) -> bool:
        return rule.endswith(f' comment "{comment}"') and (not marks or any(mark in rule for mark in marks))

    return [
        line
        for chain in (_PORTS, _LEGACY, _MASQUERADING)
        for line in text.deletions(have, table_of(family), chain, is_unwanted)
    ]


def first_missing(have: Listing, wanted: PortMap, family: int, comment: str) -> str:
    """Upstream looks for the container's own rules alone. The shared ones have the conditions of the last ADD."""
    for chain, rules in rules_of(wanted, family, comment).items():
        present = text.rules_of(have, chain)
        if any(rule not in present for rule in rules):
            return chain
    for chain, rules in base_rules(PortmapConf(), family).items():
        present = text.rules_of(have, chain)
        if not all(any(each.endswith(rule) for each in present) for rule in rules):
            return chain
    return ""
