"""firewall's rules as elements of our own nf_tables sets. What table and elements are, `sets` decides."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from weft.cni.host import nftsets
from weft.cni.plugins.firewall import sets
from weft.cni.plugins.firewall.sets import TABLE
from weft.cni.sdk.host import Host
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.kernel.nftset import Add, Change, Delete, Element, replacing
from weft.model.net import Ip

_PODS: Final = ("pods4", "pods6")


def add(host: Host, addresses: Sequence[Ip], comment: str) -> None:
    """Let these addresses be forwarded to and from. May be repeated."""
    # An address is one pod's at a time: one that stands for another pod is left over from a dead one.
    nftsets.put(nftsets.opened(host), TABLE, sets.elements(addresses, comment), replacing, sets.frame)


def remove(host: Host, is_unwanted: Callable[[str], bool]) -> int:
    """Take away the addresses whose comment is unwanted. Returns how many there were."""
    return _remove(nftsets.opened(host), _PODS, lambda element: is_unwanted(element.comment))


def missing(host: Host, addresses: Sequence[Ip], comment: str) -> str:
    """Return the first thing that these addresses lack, in words; empty if nothing."""
    if not addresses:
        return ""
    nf = nftsets.opened(host)
    for element, address in zip(sets.elements(addresses, comment), addresses, strict=True):
        present = nf.element(TABLE, element.set, element.key)
        if present != element:
            found = f'found with comment "{present.comment}"' if present else "not found"
            return f"expected element {address} of set {element.set} in table {TABLE} {found}"
    lost = nftsets.missing_rule(nf, TABLE, sets.RULES)
    return f'expected rule "{lost.comment}" not found in chain {lost.chain} of table {TABLE}' if lost else ""


def guard(host: Host, bridge: str, *, isolated: bool) -> None:
    """Keep pods of other guarded bridges from this one's, and its own from each other if they are `isolated`.

    A bridge that is isolated once stays so, as with upstream: the stricter of two networks counts.
    """
    nf = nftsets.opened(host)
    look = partial(_guarding, nf, bridge, isolated=isolated)
    nftsets.change(nf, TABLE, look(), look, sets.frame)


def missing_guard(host: Host, bridge: str) -> str:
    """Return what keeps a bridge from being guarded; empty if nothing."""
    element = sets.guard(bridge)
    if nftsets.opened(host).element(TABLE, element.set, element.key) is not None:
        return ""
    return f"expected element {bridge} of set {element.set} in table {TABLE} not found"


def unguard(host: Host, is_gone: Callable[[str], bool]) -> None:
    """Take away what was made for bridges that are gone."""
    _remove(nftsets.opened(host), (sets.BRIDGES, sets.WITHIN), lambda element: is_gone(sets.bridge_of(element)))


def _remove(nf: NfSocket, names: Sequence[str], is_unwanted: Callable[[Element], bool]) -> int:
    return nftsets.remove(
        nf, TABLE, lambda: [one for name in names for one in nf.elements(TABLE, name) if is_unwanted(one)]
    )


def _guarding(nf: NfSocket, bridge: str, *, isolated: bool) -> list[Change]:
    guard, within = sets.guard(bridge), sets.allow_within(bridge)
    is_guarded = nf.element(TABLE, guard.set, guard.key) is not None
    changes: list[Change] = [] if is_guarded else [Add(guard)]
    if isolated or not is_guarded:
        present = nf.element(TABLE, within.set, within.key)
        if not isolated:
            changes += replacing(within, present)
        elif present is not None:
            changes.append(Delete(within))
    return changes
