"""firewall in our own nf_tables sets: the frame, and what stands in it for one attachment and for one bridge.

Upstream has no such backend; the rules mean what its iptables rules mean. A pod is one element for each address, so
that neither a packet nor a change gets slower with the number of pods. An accept ends only the table that it stands in:
what another table drops stays dropped.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from weft.cni.host import nftsets
from weft.cni.host.host import Host
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.kernel.nftset import Add, Change, Delete, Element, Table, replacing
from weft.model.net import Ip
from weft.wire.nft import Rule, add_rules

TABLE: Final = Table("inet", "weft-firewall")
BRIDGES: Final = "bridges"
WITHIN: Final = "within"

_IFNAMSIZ: Final = 16
_POLICY: Final = "ingress policy"
_SETS: Final = {
    "pods4": "ipv4_addr",
    "pods6": "ipv6_addr",
    BRIDGES: "ifname",
    # Pairs of a bridge with itself, between whose own pods packets may pass.
    WITHIN: "ifname . ifname",
}
# An administrator's own rules go into the chain `admin`, which is never emptied.
RULES: Final = tuple(
    Rule(chain="forward", text=text, comment=comment)
    for text, comment in (
        (f"iifname @{BRIDGES} oifname @{BRIDGES} iifname . oifname != @{WITHIN} drop", "between guarded bridges"),
        ("jump admin", "administrator's overrides"),
        ("ip daddr @pods4 ct state established,related accept", "answers to IPv4 pods"),
        ("ip saddr @pods4 accept", "from IPv4 pods"),
        ("ip6 daddr @pods6 ct state established,related accept", "answers to IPv6 pods"),
        ("ip6 saddr @pods6 accept", "from IPv6 pods"),
    )
)
_PODS: Final = ("pods4", "pods6")


def frame(present: Collection[str]) -> list[str]:
    """They fail as a whole when somebody else has made the table meanwhile."""
    if present:
        return []
    return [
        f'create table {TABLE} {{ comment "weft: what pods may forward"; }}',
        *(f"create set {TABLE} {name} {{ type {kind}; }}" for name, kind in _SETS.items()),
        f"create chain {TABLE} admin",
        f"create chain {TABLE} forward {{ type filter hook forward priority 0; policy accept; }}",
        *add_rules(TABLE, RULES),
    ]


def elements(addresses: Sequence[Ip], comment: str) -> tuple[Element, ...]:
    return tuple(
        Element(set=f"pods{address.version}", key=address.packed, comment=comment)
        for address in dict.fromkeys(addresses)
    )


def guard_element(bridge: str) -> Element:
    return Element(set=BRIDGES, key=_padded(bridge), comment=_POLICY)


def within_element(bridge: str) -> Element:
    return Element(set=WITHIN, key=_padded(bridge) * 2, comment=_POLICY)


def bridge_of(element: Element) -> str:
    return element.key[:_IFNAMSIZ].rstrip(b"\0").decode("utf-8", "surrogateescape")


def _padded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape").ljust(_IFNAMSIZ, b"\0")


def add(host: Host, addresses: Sequence[Ip], comment: str) -> None:
    # An address is one pod's at a time: one that stands for another pod is left over from a dead one.
    nftsets.put(nftsets.opened(host), TABLE, elements(addresses, comment), replacing, frame)


def remove(host: Host, is_unwanted: Callable[[str], bool]) -> int:
    return _remove(nftsets.opened(host), _PODS, lambda element: is_unwanted(element.comment))


def missing(host: Host, addresses: Sequence[Ip], comment: str) -> str:
    if not addresses:
        return ""
    nf = nftsets.opened(host)
    for element, address in zip(elements(addresses, comment), addresses, strict=True):
        present = nf.element(TABLE, element.set, element.key)
        if present != element:
            found = f'found with comment "{present.comment}"' if present else "not found"
            return f"expected element {address} of set {element.set} in table {TABLE} {found}"
    lost = nftsets.missing_rule(nf, TABLE, RULES)
    return f'expected rule "{lost.comment}" not found in chain {lost.chain} of table {TABLE}' if lost else ""


def guard(host: Host, bridge: str, *, isolated: bool) -> None:
    """A bridge that is isolated once stays so, as with upstream: the stricter of two networks counts."""
    nf = nftsets.opened(host)
    look = partial(_guarding, nf, bridge, isolated=isolated)
    nftsets.change(nf, TABLE, look(), look, frame)


def missing_guard(host: Host, bridge: str) -> str:
    element = guard_element(bridge)
    if nftsets.opened(host).element(TABLE, element.set, element.key) is not None:
        return ""
    return f"expected element {bridge} of set {element.set} in table {TABLE} not found"


def unguard(host: Host, is_gone: Callable[[str], bool]) -> None:
    _remove(nftsets.opened(host), (BRIDGES, WITHIN), lambda element: is_gone(bridge_of(element)))


def _remove(nf: NfSocket, names: Sequence[str], is_unwanted: Callable[[Element], bool]) -> int:
    return nftsets.remove(
        nf, TABLE, lambda: [one for name in names for one in nf.elements(TABLE, name) if is_unwanted(one)]
    )


def _guarding(nf: NfSocket, bridge: str, *, isolated: bool) -> list[Change]:
    guarding, within = guard_element(bridge), within_element(bridge)
    is_guarded = nf.element(TABLE, guarding.set, guarding.key) is not None
    changes: list[Change] = [] if is_guarded else [Add(guarding)]
    if isolated or not is_guarded:
        present = nf.element(TABLE, within.set, within.key)
        if not isolated:
            changes += replacing(within, present)
        elif present is not None:
            changes.append(Delete(within))
    return changes
