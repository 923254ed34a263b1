"""portmap by iptables, with upstream's chains, rules and comments (cni.md §5.3): either can remove the other's."""

from collections.abc import Collection, Iterable
from ipaddress import ip_network
from typing import Final

from weft.cni.attachment import owners
from weft.cni.plugins.portmap.conf import Mapping, PortMap, PortmapConf, target
from weft.model.attachment import Cidr
from weft.model.net import Ip
from weft.wire import iptables
from weft.wire.iptables import Table

ENTRY: Final = "CNI-HOSTPORT-DNAT"
_OLD_ENTRY: Final = "CNI-HOSTPORT-SNAT"
_SETMARK: Final = "CNI-HOSTPORT-SETMARK"
_MASQ: Final = "CNI-HOSTPORT-MASQ"
_CHAIN: Final = "CNI-DN-"
_OLD_CHAIN: Final = "CNI-SN-"
_CHAIN_HEX: Final = 21
_LONGEST_COMMENT: Final = 255
_PORTS_IN_A_RULE: Final = 15  # multiport's limit
_DEFAULT_BIT: Final = 13
_LOCALHOST: Final = ip_network("127.0.0.1/32")


def chain_of(network: str, container_id: str) -> str:
    return _CHAIN + owners.digest(network + container_id)[:_CHAIN_HEX]


def old_chain_of(chain: str) -> str:
    return _OLD_CHAIN + chain.removeprefix(_CHAIN)


def comment_of(network: str, container_id: str) -> str:
    comment = f'dnat name: "{network}" id: "{container_id}"'
    return comment if len(comment) <= _LONGEST_COMMENT else f"{comment[: _LONGEST_COMMENT - 2]}..."


def chain_rules(wanted: PortMap, family: int) -> list[str]:
    return [
        rule
        for address in wanted.addresses
        if address.version == family
        for mapping in wanted.mappings_to(address)
        for rule in _chain_rules(wanted.conf, mapping, address)
    ]


def _chain_rules(conf: PortmapConf, mapping: Mapping, address: Cidr) -> list[str]:
    host = mapping.host_ip
    to_host = "" if host is None or host.is_unspecified else f"-d {host}/{host.max_prefixlen} "
    base = f"{to_host}-p {mapping.protocol} -m {mapping.protocol} --dport {mapping.host_port}"
    rules = []
    if conf.snat:
        mark = f"{base} -j {conf.mark_chain or _SETMARK}"
        # iptables lists a match of everything as none.
        rules.append(mark if conf.masq_all else f"-s {address.network} {mark}")
        if address.version == 4 and not conf.masq_all:
            rules.append(f"-s {_LOCALHOST} {mark}")
    return [*rules, f"{base} -j DNAT --to-destination {target(address, mapping)}"]


def entry_rules(wanted: PortMap, family: int, *, chain: str, comment: str) -> list[str]:
    """Return the rules that lead to the container's chain: all ports of a protocol, those it skips too."""
    note = iptables.comment(comment)
    conditions = "".join(f"{iptables.quoted(word)} " for word in wanted.conf.conditions(family))
    ports: dict[str, list[str]] = {}
    for mapping in wanted.conf.mappings:
        ports.setdefault(mapping.protocol, []).append(str(mapping.host_port))
    return [
        f"-p {protocol} {note} -m multiport --dports {','.join(some)} {conditions}-j {chain}"
        for protocol, of_protocol in sorted(ports.items())
        for start in range(0, len(of_protocol), _PORTS_IN_A_RULE)
        for some in (of_protocol[start : start + _PORTS_IN_A_RULE],)
    ]


def additions(have: Table, wanted: PortMap, family: int, *, chain: str, comment: str) -> list[str]:
    shared = _shared_rules(wanted.conf)
    entries = entry_rules(wanted, family, chain=chain, comment=comment)
    chains = dict.fromkeys([*(name for name, _, _ in shared if name.startswith("CNI-")), ENTRY, chain])
    lines = iptables.missing_chains(have, chains)
    lines += [f"{action} {rule}" for name, action, rule in shared if rule not in have.get(name, ())]
    present = have.get(chain, ())
    lines += [f"-A {chain} {rule}" for rule in chain_rules(wanted, family) if rule not in present]
    led = [_ports_of(rule) for rule in iptables.leading(have, ENTRY, chain)]
    return lines + [f"-A {ENTRY} {rule}" for rule in entries if _ports_of(rule) not in led]


def _shared_rules(conf: PortmapConf) -> list[tuple[str, str, str]]:
    """Return chain, action and rule of what all attachments share (cni.md §5.3, 1 to 4)."""
    mark = f"{1 << (_DEFAULT_BIT if conf.mark_bit is None else conf.mark_bit):#x}"
    rules = []
    if conf.snat and not conf.mark_chain:
        note = '-m comment --comment "CNI portfwd masquerade mark"'
        jump = f'-m comment --comment "CNI portfwd requiring masquerade" -j {_MASQ}'
        rules += [
            (_SETMARK, f"-A {_SETMARK}", f"{note} -j MARK --set-xmark {mark}/{mark}"),
            (_MASQ, f"-A {_MASQ}", f"-m mark --mark {mark}/{mark} -j MASQUERADE"),
            ("POSTROUTING", "-I POSTROUTING 1", jump),
        ]
    local = f"-m addrtype --dst-type LOCAL -j {ENTRY}"
    return [*rules, ("PREROUTING", "-A PREROUTING", local), ("OUTPUT", "-A OUTPUT", local)]


def _ports_of(rule: str) -> tuple[str, str]:
    """The tool may list conditions otherwise than they were given."""
    words = rule.split()
    return _after(words, "-p"), _after(words, "--dports")


def _after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1] if option in words[:-1] else ""


def removals(have: Table, chain: str, *, ours: Collection[Ip] = ()) -> list[str]:
    """With `ours`: another attachment of the same container in this network shares the chain, and keeps it."""
    others = [rule for rule in have.get(chain, ()) if _dnat_target(rule)]
    if ours:
        heads = tuple(f"{ip}:" if ip.version == 4 else f"[{ip}]:" for ip in ours)
        mine = [rule for rule in others if _dnat_target(rule).startswith(heads)]
        if len(mine) < len(others):
            return [f"-D {chain} {rule}" for rule in mine]
    return iptables.removal(have, chain, ENTRY) + iptables.removal(have, old_chain_of(chain), _OLD_ENTRY)


def _dnat_target(rule: str) -> str:
    return rule.partition(" -j DNAT --to-destination ")[2]


def first_missing(have: Table, wanted: PortMap, family: int, *, chain: str, comment: str) -> str:
    """Upstream looks for the container's own rules alone."""
    if chain not in have:
        return f"chain {chain} not found in iptables table nat"
    needed = [(chain, rule) for rule in chain_rules(wanted, family)]
    needed += [(name, rule) for name, _, rule in _shared_rules(wanted.conf)]
    for name, rule in needed:
        if rule not in have.get(name, ()):
            return f"rule {rule} not found in chain {name} of iptables table nat"
    led = [_ports_of(rule) for rule in iptables.leading(have, ENTRY, chain)]
    for rule in entry_rules(wanted, family, chain=chain, comment=comment):
        if _ports_of(rule) not in led:
            return f"rule {rule} not found in chain {ENTRY} of iptables table nat"
    return ""


def gone(have: Table, network: str, valid: Iterable[str]) -> list[str]:
    comments = {f"{iptables.comment(comment_of(network, container))} " for container in valid}
    head = iptables.comment(comment_of(network, "")).removesuffix('\\""')
    found = []
    for rule in have.get(ENTRY, ()):
        chain = iptables.target(rule)
        if head in rule and chain.startswith(_CHAIN) and not any(comment in rule for comment in comments):
            found.append(chain)
    return list(dict.fromkeys(found))
