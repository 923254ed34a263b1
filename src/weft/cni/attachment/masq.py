"""ipMasq: what a pod sends beyond its subnet leaves with the node's address (cni.md §3.4).

Names, rules and comments are upstream's, so that either can remove what the other has made.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from weft.cni.attachment import owners
from weft.cni.host import programs
from weft.cni.host.programs import NFTABLES
from weft.cni.sdk.startup import Call
from weft.model.attachment import Attachment, Cidr
from weft.model.kernel.nftset import Table
from weft.model.net import FAMILIES
from weft.wire import cni, iptables, nft
from weft.wire.iptables import leading, missing_chains, removal, target

_MULTICAST: Final = {4: "224.0.0.0/4", 6: "ff00::/8"}
_CHAIN_PREFIX: Final = "CNI-"
_CHAIN_HEX: Final = 24

_TABLE: Final = Table("inet", "cni_plugins_masquerade")
_TABLE_COMMENT: Final = "Masquerading for plugins from github.com/containernetworking/plugins"
_CHECKS: Final = "masq_checks"
_CHECKS_COMMENT: Final = "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet"
_BASE_RULES: Final = ("ip daddr 224.0.0.0/4 return", "ip6 daddr ff00::/8 return", f"goto {_CHECKS}")


def add(attachment: Attachment, kind: str, addresses: Sequence[Cidr]) -> None:
    if kind == NFTABLES:
        programs.change_nft(_TABLE, partial(nft_change, attachment=attachment, addresses=addresses))
        return
    chain = chain_of(attachment.network, attachment.container_id)
    comment = comment_of(attachment.network, attachment.container_id)
    for family in FAMILIES:
        of_family = [address for address in addresses if address.version == family]
        if of_family:
            programs.change_iptables(family, partial(additions, chain=chain, comment=comment, addresses=of_family))


def remove(attachment: Attachment, kind: str, addresses: Sequence[Cidr]) -> None:
    """Without any address all iptables rules of the (network, container) go."""
    if kind == NFTABLES:
        programs.change_nft(_TABLE, partial(nft_change, attachment=attachment, addresses=()))
        return
    chain = chain_of(attachment.network, attachment.container_id)
    for family in FAMILIES:
        of_family = [address for address in addresses if address.version == family]
        if of_family or not addresses:
            programs.change_iptables(family, partial(removals, chain=chain, addresses=of_family))


def collect(call: Call, kind: str, gone: Mapping[Attachment, Sequence[Cidr]]) -> None:
    """A chain that a valid container shares with a `gone` interface of it only loses the addresses of that."""
    valid = cni.valid_attachments(call.config)
    if kind == NFTABLES:
        programs.change_nft(_TABLE, partial(nft_leftovers, is_lost=owners.lost(call.network, valid)))
        return
    chains = {chain_of(call.network, container_id) for container_id, _ in valid}
    for family in FAMILIES:
        lost = {
            chain_of(one.network, one.container_id): [address for address in addresses if address.version == family]
            for one, addresses in gone.items()
        }
        programs.change_iptables(family, partial(leftovers, network=call.network, valid=chains, lost=lost))


def is_there(attachment: Attachment, kind: str, address: Cidr) -> bool:
    if kind == NFTABLES:
        mark = f' comment "{owners.owner_of(attachment)}'
        match = f"{_nft_match(address)} masquerade "
        rules = nft.rules_of(programs.nft_table(_TABLE), _CHECKS)
        return any(match in rule and mark in rule for rule in rules)
    chain = chain_of(attachment.network, attachment.container_id)
    jumps = leading(programs.iptables_table(address.version), "POSTROUTING", chain)
    return any(rule.startswith(f"-s {_host(address)} ") for rule in jumps)


def chain_of(network: str, container_id: str) -> str:
    return f"{_CHAIN_PREFIX}{owners.digest(network + container_id)[:_CHAIN_HEX]}"


def comment_of(network: str, container_id: str) -> str:
    return f'name: "{network}" id: "{container_id}"'


def additions(have: iptables.Table, chain: str, comment: str, addresses: Sequence[Cidr]) -> list[str]:
    note = iptables.comment(comment)
    present = have.get(chain, ())
    lines = missing_chains(have, [chain])
    # Before the masquerade rule, which ends the chain: upstream appends here too, and a second subnet of one
    # attachment is never reached.
    local = dict.fromkeys(f"-d {address.network} {note} -j ACCEPT" for address in addresses)
    lines += [f"-I {chain} 1 {rule}" for rule in local if rule not in present]
    masquerade = f"! -d {_MULTICAST[addresses[0].version]} {note} -j MASQUERADE"
    if masquerade not in present:
        lines.append(f"-A {chain} {masquerade}")
    jumps = [f"-s {_host(address)} {note} -j {chain}" for address in addresses]
    present = leading(have, "POSTROUTING", chain)
    return lines + [f"-A POSTROUTING {jump}" for jump in jumps if jump not in present]


def removals(have: iptables.Table, chain: str, addresses: Sequence[Cidr]) -> list[str]:
    """Another attachment of the container and network shares the chain, which goes with the last jump."""
    jumps = leading(have, "POSTROUTING", chain)
    sources = tuple(f"-s {form} " for address in addresses for form in (_host(address), address.network))
    ours = [rule for rule in jumps if rule.startswith(sources)] if addresses else jumps
    if len(ours) == len(jumps):
        return removal(have, chain, "POSTROUTING")
    return [f"-D POSTROUTING {rule}" for rule in ours]


def leftovers(
    have: iptables.Table, network: str, valid: Collection[str], lost: Mapping[str, Sequence[Cidr]]
) -> list[str]:
    """A chain in `valid` only loses the jumps of the addresses that it has `lost`."""
    mark = iptables.comment(comment_of(network, "")).removesuffix('\\""')
    found = [
        target(rule) if chain == "POSTROUTING" else chain
        for chain, rules in have.items()
        for rule in rules
        if mark in rule
    ]
    lines = []
    for chain in dict.fromkeys(name for name in found if name.startswith(_CHAIN_PREFIX)):
        if chain not in valid:
            lines += removals(have, chain, ())
        elif lost.get(chain):
            lines += removals(have, chain, lost[chain])
    return lines


def _host(address: Cidr) -> str:
    return f"{address.ip}/{address.max_prefixlen}"


def nft_change(have: nft.Listing, attachment: Attachment, addresses: Sequence[Cidr]) -> list[str]:
    comment, mark = owners.comment_of(attachment), f' comment "{owners.owner_of(attachment)}'
    stale = nft.deletions(have, _TABLE, _CHECKS, lambda rule: mark in rule)
    fresh = [f'add rule {_TABLE} {_CHECKS} {_nft_match(one)} masquerade comment "{comment}"' for one in addresses]
    return [*(_nft_frame(have) if fresh else ()), *stale, *fresh]


def nft_leftovers(have: nft.Listing, is_lost: Callable[[str], bool]) -> list[str]:
    return nft.deletions(have, _TABLE, _CHECKS, lambda rule: is_lost(rule.partition(' comment "')[2]))


def _nft_frame(have: nft.Listing) -> list[str]:
    """The base chain is only filled again if it is not as it should be."""
    frame = [
        f'add table {_TABLE} {{ comment "{_TABLE_COMMENT}"; }}',
        f'add chain {_TABLE} {_CHECKS} {{ comment "{_CHECKS_COMMENT}"; }}',
        f"add chain {_TABLE} postrouting {{ type nat hook postrouting priority 100; policy accept; }}",
    ]
    if nft.rules_of(have, "postrouting") != list(_BASE_RULES):
        frame += nft.refill(_TABLE, "postrouting", _BASE_RULES)
    return frame


def _nft_match(address: Cidr) -> str:
    family = "ip" if address.version == 4 else "ip6"
    return f"{family} saddr {address.ip} {family} daddr != {address.network}"
