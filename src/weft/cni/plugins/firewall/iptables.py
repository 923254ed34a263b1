"""firewall's rules as upstream makes them, with the host's iptables programs: one look and one commit per family.

Only the programs of the families that are needed are started. What the rules are, `chains` decides.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from weft.cni.host import programs
from weft.cni.plugins.firewall import chains
from weft.cni.sdk.host import Host
from weft.model.net import Ip
from weft.wire.iptables import Table

_TABLE: Final = "filter"
# Upstream's plugin does not know it: what that does between look and commit makes the commit fail.
_LOCK: Final = "/firewall.lock"


def add(host: Host, addresses: Sequence[Ip], *, admin_chain: str) -> None:
    """Let these addresses be forwarded to and from. May be repeated."""
    for family, own in _by_family(addresses):
        _change(host, family, partial(chains.additions, addresses=own, admin_chain=admin_chain))


def remove(host: Host, addresses: Sequence[Ip]) -> None:
    """Take back what was made for these addresses. May be repeated."""
    for family, own in _by_family(addresses):
        _change(host, family, partial(chains.removals, addresses=own))


def missing(addresses: Sequence[Ip], *, admin_chain: str) -> str:
    """Return the first thing that these addresses lack, in words; empty if nothing."""
    found = (
        chains.missing(programs.iptables_table(family, _TABLE), own, admin_chain)
        for family, own in _by_family(addresses)
    )
    return next(filter(None, found), "")


def guard(host: Host, families: Sequence[int], bridge: str, policy: str) -> None:
    """Keep pods of other guarded bridges from this one's. May be repeated."""
    for family in families:
        _change(host, family, partial(chains.isolation, bridge=bridge, policy=policy))


def missing_guard(families: Sequence[int], bridge: str, policy: str) -> str:
    """Return the first rule of `guard` that is not there; empty if none."""
    for family in families:
        lines = chains.isolation(programs.iptables_table(family, _TABLE), bridge, policy)
        if lines:
            return lines[0]
    return ""


def unguard(host: Host, is_gone: Callable[[str], bool]) -> None:
    """Take back what was made for bridges that are gone."""
    for family in programs.FAMILIES:
        _change(host, family, partial(_of_gone, is_gone=is_gone))


def _of_gone(have: Table, is_gone: Callable[[str], bool]) -> list[str]:
    return chains.isolation_removals(have, {bridge for bridge in chains.guarded(have) if is_gone(bridge)})


def _change(host: Host, family: int, look: Callable[[Table], list[str]]) -> None:
    with host.state.lock(_LOCK):
        programs.change_iptables(family, look, _TABLE)


def _by_family(addresses: Sequence[Ip]) -> list[tuple[int, list[Ip]]]:
    found = [(family, [one for one in addresses if one.version == family]) for family in programs.FAMILIES]
    return [(family, own) for family, own in found if own]
