"""firewall's rules in the form of iptables, upstream's to the letter (cni.md §6.3, C.4)."""

from collections.abc import Collection, Sequence
from typing import Final

from weft.model.net import Ip
from weft.wire.iptables import Table, comment, leading, missing_chains

_FORWARD: Final = "CNI-FORWARD"
_STAGE_1: Final = "CNI-ISOLATION-STAGE-1"
_STAGE_2: Final = "CNI-ISOLATION-STAGE-2"

_RULES: Final = "CNI firewall plugin rules"
_OVERRIDES: Final = "CNI firewall plugin admin overrides"
_JUMP: Final = f"{comment(_RULES)} -j {_FORWARD}"
_COMMENTED: Final = "-m comment "
_ANY_POLICY: Final = "same-bridge|isolated"


def additions(have: Table, addresses: Sequence[Ip], admin_chain: str) -> list[str]:
    lines = missing_chains(have, (_FORWARD, admin_chain))
    if _JUMP not in have.get("FORWARD", ()):
        lines.append(f"-I FORWARD 1 {_JUMP}")
    present = have.get(_FORWARD, ())
    if _overrides(admin_chain) not in present:
        lines.append(f"-I {_FORWARD} 1 {_overrides(admin_chain)}")
    wanted = dict.fromkeys(rule for address in addresses for rule in _accepts(address))
    return lines + [f"-A {_FORWARD} {rule}" for rule in wanted if rule not in present]


def removals(have: Table, addresses: Sequence[Ip]) -> list[str]:
    unwanted = {rule for address in addresses for rule in _accepts(address)}
    return [f"-D {_FORWARD} {rule}" for rule in have.get(_FORWARD, ()) if rule in unwanted]


def first_missing(have: Table, addresses: Sequence[Ip], admin_chain: str) -> str:
    if _JUMP not in have.get("FORWARD", ()):
        return f"expected FORWARD rule [{_plain(_JUMP)}] not found"
    present = have.get(_FORWARD, ())
    if _overrides(admin_chain) not in present:
        return f"expected {_FORWARD} rule [{_plain(_overrides(admin_chain))}] not found"
    wanted = (rule for address in addresses for rule in _accepts(address))
    return next((f"expected rule [{rule}] not found" for rule in wanted if rule not in present), "")


def isolation(have: Table, bridge: str, policy: str) -> list[str]:
    """The policy `isolated` keeps pods of this bridge from each other too, where bridged packets are filtered."""
    own, every = _comment(policy), _comment(_ANY_POLICY)
    lines = missing_chains(have, (_STAGE_1, _STAGE_2))
    # Older versions of upstream's comment otherwise: a rule that does the same is the same.
    if not _has(have, "FORWARD", _COMMENTED, _STAGE_1):
        lines.append(f"-I FORWARD 1 {every} -j {_STAGE_1}")
    if not _has(have, _STAGE_1, f"-i {bridge} ! -o {bridge} ", _STAGE_2):
        lines.append(f"-I {_STAGE_1} 1 -i {bridge} ! -o {bridge} {own} -j {_STAGE_2}")
    if policy == "isolated" and not _has(have, _STAGE_1, f"-i {bridge} -o {bridge} ", "DROP"):
        lines.append(f"-I {_STAGE_1} 1 -i {bridge} -o {bridge} {own} -j DROP")
    if not _has(have, _STAGE_1, _COMMENTED, "RETURN"):
        lines.append(f"-A {_STAGE_1} {every} -j RETURN")
    if not _has(have, _STAGE_2, f"-o {bridge} ", "DROP"):
        lines.append(f"-I {_STAGE_2} 1 -o {bridge} {every} -j DROP")
    if not _has(have, _STAGE_2, _COMMENTED, "RETURN"):
        lines.append(f"-A {_STAGE_2} {every} -j RETURN")
    return lines


def guarded(have: Table) -> set[str]:
    named = (_bridge_of(rule) for chain in (_STAGE_1, _STAGE_2) for rule in have.get(chain, ()))
    return {bridge for bridge in named if bridge}


def isolation_removals(have: Table, bridges: Collection[str]) -> list[str]:
    """The chains stay, as upstream leaves them."""
    return [
        f"-D {chain} {rule}"
        for chain in (_STAGE_1, _STAGE_2)
        for rule in have.get(chain, ())
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
    return f"{comment(_OVERRIDES)} -j {admin_chain}"


def _comment(policy: str) -> str:
    return comment(f"{_RULES} (ingressPolicy: {policy})")


def _plain(rule: str) -> str:
    return rule.replace('"', "")


def _has(have: Table, chain: str, start: str, goal: str) -> bool:
    return any(rule.startswith(start) for rule in leading(have, chain, goal))
