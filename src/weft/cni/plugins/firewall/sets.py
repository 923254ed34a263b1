"""firewall in our own nf_tables sets: the frame, and what stands in it for one attachment and for one bridge.

Upstream has no such backend; the rules mean what its iptables rules mean. The frame is made once on a node. A pod is
one element for each address, so that neither a packet nor a change gets slower with the number of pods.

In nf_tables an accept ends only the table that it stands in: what another table drops stays dropped. Decides, and
touches nothing: `cni.plugins.firewall.nft` carries it out.
"""

from collections.abc import Collection, Sequence
from typing import Final

from weft.model.kernel.nftset import Element, Table
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


def frame(present: Collection[str]) -> list[str]:
    """Return nft's lines that make the table, none if there are sets of it.

    They fail as a whole when somebody else has made it meanwhile.
    """
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
    """Return what stands for the addresses of one attachment."""
    return tuple(
        Element(set=f"pods{address.version}", key=address.packed, comment=comment)
        for address in dict.fromkeys(addresses)
    )


def guard(bridge: str) -> Element:
    """Return what stands for a bridge with an ingress policy."""
    return Element(set=BRIDGES, key=_padded(bridge), comment=_POLICY)


def allow_within(bridge: str) -> Element:
    """Return what lets a bridge's own pods reach each other nevertheless."""
    return Element(set=WITHIN, key=_padded(bridge) * 2, comment=_POLICY)


def bridge_of(element: Element) -> str:
    """Return the bridge that `guard` or `allow_within` was made for."""
    return element.key[:_IFNAMSIZ].rstrip(b"\0").decode("utf-8", "surrogateescape")


def _padded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape").ljust(_IFNAMSIZ, b"\0")
