"""Makes and removes firewall's rules by iptables.

One look and one commit per family, and only the programs of the families that are needed are started.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from weft.cni.host import programs
from weft.cni.host.host import Host
from weft.cni.plugins.firewall.chains import additions, first_missing, guarded, isolation, isolation_removals, removals
from weft.model.net import FAMILIES, Ip
from weft.wire.iptables import Table

_TABLE: Final = "filter"
# Upstream's plugin does not know it: what that does between look and commit makes the commit fail.
_LOCK: Final = "/firewall.lock"


def add(host: Host, addresses: Sequence[Ip], *, admin_chain: str) -> None:
    for family, own in _by_family(addresses):
        _change(host, family, partial(additions, addresses=own, admin_chain=admin_chain))


def remove(host: Host, addresses: Sequence[Ip]) -> None:
    for family, own in _by_family(addresses):
        _change(host, family, partial(removals, addresses=own))


def missing(addresses: Sequence[Ip], *, admin_chain: str) -> str:
    found = (
        first_missing(programs.iptables_table(family, _TABLE), own, admin_chain)
        for family, own in _by_family(addresses)
    )
    return next(filter(None, found), "")


def guard(host: Host, families: Sequence[int], bridge: str, policy: str) -> None:
    for family in families:
        _change(host, family, partial(isolation, bridge=bridge, policy=policy))


def missing_guard(families: Sequence[int], bridge: str, policy: str) -> str:
    for family in families:
        lines = isolation(programs.iptables_table(family, _TABLE), bridge, policy)
        if lines:
            return lines[0]
    return ""


def unguard(host: Host, is_gone: Callable[[str], bool]) -> None:
    def look(have: Table) -> list[str]:
        return isolation_removals(have, set(filter(is_gone, guarded(have))))

    for family in FAMILIES:
        _change(host, family, look)


def _change(host: Host, family: int, look: Callable[[Table], list[str]]) -> None:
    with host.state.lock(_LOCK):
        programs.change_iptables(family, look, _TABLE)


def _by_family(addresses: Sequence[Ip]) -> list[tuple[int, list[Ip]]]:
    found = [(family, [one for one in addresses if one.version == family]) for family in FAMILIES]
    return [(family, own) for family, own in found if own]
