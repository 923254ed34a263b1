"""firewall's rules in the form of iptables, upstream's to the letter (cni.md §6.3, C.4).

Text in, text out: `save` is what `iptables-save -t filter` prints, the answer is lines for `iptables-restore`.
`cni.firewalliptables` carries it out.
"""

from collections.abc import Collection, Sequence
from typing import Final

from weft.model.net import Ip

_FORWARD: Final = "CNI-FORWARD"
_STAGE_1: Final = "CNI-ISOLATION-STAGE-1"
_STAGE_2: Final = "CNI-ISOLATION-STAGE-2"

_RULES: Final = "CNI firewall plugin rules"
_OVERRIDES: Final = "CNI firewall plugin admin overrides"
_JUMP: Final = f'-m comment --comment "{_RULES}" -j {_FORWARD}'
_ANY_POLICY: Final = "same-bridge|isolated"


def additions(save: str, addresses: Sequence[Ip], admin_chain: str) -> list[str]:
    """Return the lines that let these addresses be forwarded to and from, as far as they are missing."""
    lines = [f"-N {chain}" for chain in (_FORWARD, admin_chain) if not _has_chain(save, chain)]
    if _JUMP not in _rules_of(save, "FORWARD"):
        lines.append(f"-I FORWARD 1 {_JUMP}")
    have = _rules_of(save, _FORWARD)
    if _overrides(admin_chain) not in have:
        lines.append(f"-I {_FORWARD} 1 {_overrides(admin_chain)}")
    wanted = dict.fromkeys(rule for address in addresses for rule in _accepts(address))
    return lines + [f"-A {_FORWARD} {rule}" for rule in wanted if rule not in have]


def removals(save: str, addresses: Sequence[Ip]) -> list[str]:
    """Return the lines that take back what was made for these addresses alone, as often as it is there."""
    unwanted = {rule for address in addresses for rule in _accepts(address)}
    return [f"-D {_FORWARD} {rule}" for rule in _rules_of(save, _FORWARD) if rule in unwanted]


def missing(save: str, addresses: Sequence[Ip], admin_chain: str) -> str:
    """Return what of `additions` is not there, in upstream's words; empty if nothing."""
    if _JUMP not in _rules_of(save, "FORWARD"):
        return f"expected FORWARD rule [{_plain(_JUMP)}] not found"
    have = _rules_of(save, _FORWARD)
    if _overrides(admin_chain) not in have:
        return f"expected {_FORWARD} rule [{_plain(_overrides(admin_chain))}] not found"
    wanted = (rule for address in addresses for rule in _accepts(address))
    return next((f"expected rule [{rule}] not found" for rule in wanted if rule not in have), "")


def isolation(save: str, bridge: str, policy: str) -> list[str]:
    """Return the lines that keep pods of other guarded bridges from this one's, as far as they are missing.

    With the policy `isolated`, pods of this bridge are kept from each other too, where bridged packets are filtered.
    """
    own, every = _comment(policy), _comment(_ANY_POLICY)
    first, second = _rules_of(save, _STAGE_1), _rules_of(save, _STAGE_2)
    lines = [f"-N {chain}" for chain in (_STAGE_1, _STAGE_2) if not _has_chain(save, chain)]
    # Older versions of upstream's comment otherwise: a rule that does the same is the same.
    if not _has(_rules_of(save, "FORWARD"), "", _STAGE_1):
        lines.append(f"-I FORWARD 1 {every} -j {_STAGE_1}")
    if not _has(first, f"-i {bridge} ! -o {bridge} ", _STAGE_2):
        lines.append(f"-I {_STAGE_1} 1 -i {bridge} ! -o {bridge} {own} -j {_STAGE_2}")
    if policy == "isolated" and not _has(first, f"-i {bridge} -o {bridge} ", "DROP"):
        lines.append(f"-I {_STAGE_1} 1 -i {bridge} -o {bridge} {own} -j DROP")
    if not _has(first, "", "RETURN"):
        lines.append(f"-A {_STAGE_1} {every} -j RETURN")
    if not _has(second, f"-o {bridge} ", "DROP"):
        lines.append(f"-I {_STAGE_2} 1 -o {bridge} {every} -j DROP")
    if not _has(second, "", "RETURN"):
        lines.append(f"-A {_STAGE_2} {every} -j RETURN")
    return lines


def guarded(save: str) -> set[str]:
    """Return the bridges that the rules of `isolation` name."""
    named = (_bridge_of(rule) for chain in (_STAGE_1, _STAGE_2) for rule in _rules_of(save, chain))
    return {bridge for bridge in named if bridge}


def isolation_removals(save: str, bridges: Collection[str]) -> list[str]:
    """Return the lines that take back what was made for these bridges. The chains stay, as upstream leaves them."""
    return [
        f"-D {chain} {rule}"
        for chain in (_STAGE_1, _STAGE_2)
        for rule in _rules_of(save, chain)
        if _bridge_of(rule) in bridges
    ]


def _bridge_of(rule: str) -> str:
    match rule.split():
        case ["-i" | "-o", bridge, *_]:
            return bridge
    return ""


def _accepts(address: Ip) -> tuple[str, str]:
    host = f"{address}/{address.max_prefixlen}"
    return f"-d {host} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", f"-s {host} -j ACCEPT"


def _overrides(admin_chain: str) -> str:
    return f'-m comment --comment "{_OVERRIDES}" -j {admin_chain}'


def _comment(policy: str) -> str:
    return f'-m comment --comment "{_RULES} (ingressPolicy: {policy})"'


def _plain(rule: str) -> str:
    return rule.replace('"', "")


def _has_chain(save: str, chain: str) -> bool:
    return f"\n:{chain} " in f"\n{save}"


def _rules_of(save: str, chain: str) -> list[str]:
    """Return what follows `-A CHAIN ` in iptables-save's text."""
    head = f"-A {chain} "
    return [line.removeprefix(head) for line in save.splitlines() if line.startswith(head)]


def _has(rules: Sequence[str], start: str, target: str) -> bool:
    return any(rule.startswith(start or "-m comment ") and rule.endswith(f" -j {target}") for rule in rules)
