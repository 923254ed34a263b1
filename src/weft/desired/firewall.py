"""The rules of a node: which packets are masqueraded, which may be forwarded (flannel.md §8).

Both kinds are rendered from one table of rows, so that they cannot mean different things. (Upstream's nft
rules are written apart from its iptables rules and differ: flannel.md Q-51, Q-52.) Rule texts are exactly what
`iptables-save` and `nft -n list` print, because what is read back is compared as text.
"""

from collections.abc import Iterable
from typing import Final

from weft.desired.inputs import Inputs
from weft.model.kernel.marks import NFT_WORD
from weft.model.kernel.objects import Chain, KernelState, RuleSet
from weft.model.net import Net
from weft.model.value import Value

POSTRTG: Final = "FLANNEL-POSTRTG"
FWD: Final = "FLANNEL-FWD"

_MASQ_COMMENT: Final = '-m comment --comment "flanneld masq"'
_FORWARD_COMMENT: Final = '-m comment --comment "flanneld forward"'

# Numbers where nft also knows names (srcnat, filter), for `nft -n` prints numbers.
_NAT_HOOK: Final = "type nat hook postrouting priority 100; policy accept;"
_FILTER_HOOK: Final = "type filter hook forward priority 0; policy accept;"

_MULTICAST: Final = {4: "224.0.0.0/4", 6: "ff00::/8"}


class _Row(Value):
    """One rule: a verdict for packets by source and destination; `not_…` is everything outside the prefix.

    `marked` asks for the bit by which kube-proxy says that it masquerades the packet itself.
    """

    verdict: str
    src: str = ""
    dst: str = ""
    not_src: str = ""
    not_dst: str = ""
    marked: bool = False


def rule_sets(inputs: Inputs) -> KernelState:
    """List the rule sets of the configured kind, one for each family that is on.

    A family whose masquerade rules are wanted but whose own subnet is not known yet has none.
    """
    netconf = inputs.netconf
    families = (
        (4, netconf.v4.network if netconf.v4 else None, inputs.v4),
        (6, netconf.v6.network if netconf.v6 else None, inputs.v6),
    )
    found = (_rule_set(inputs, family, cluster, pods) for family, cluster, pods in families if cluster is not None)
    return frozenset(ruleset for ruleset in found if ruleset is not None)


def _rule_set(inputs: Inputs, family: int, cluster: Net, pods: Net | None) -> RuleSet | None:
    chains: list[Chain] = []
    nft = inputs.netconf.nftables
    if inputs.ip_masq:
        if pods is None:
            return None
        rows = _masquerade(str(cluster), str(pods), _MULTICAST[family])
        if inputs.netconf.relays:
            rows = (_Row(verdict="RETURN", src=str(cluster), dst=str(cluster)), *rows)
        chains.append(_nft_nat(rows, family, inputs) if nft else _iptables_nat(rows, inputs))
    rows = _forward(inputs, str(cluster), None if pods is None else str(pods))
    if rows:
        chains.append(_nft_forward(rows, family) if nft else _iptables_forward(rows))
    if not chains:
        return None
    return RuleSet(kind="nft" if nft else "iptables", family=family, chains=tuple(chains))


def _forward(inputs: Inputs, cluster: str, pods: str | None) -> tuple[_Row, ...]:
    """What pods send and get passes; but between two other nodes only where this one relays."""
    accepts = (_Row(verdict="ACCEPT", src=cluster), _Row(verdict="ACCEPT", dst=cluster)) if inputs.forward_rules else ()
    if inputs.relays or not inputs.netconf.relays or pods is None:
        return accepts
    own = (_Row(verdict="RETURN", src=pods), _Row(verdict="RETURN", dst=pods))
    if inputs.forward_rules:
        own = (_Row(verdict="ACCEPT", src=pods), _Row(verdict="ACCEPT", dst=pods))
    return (*own, _Row(verdict="DROP", src=cluster, dst=cluster), *accepts)


def _masquerade(cluster: str, pods: str, multicast: str) -> tuple[_Row, ...]:
    """The six rows of flannel.md §8.1: inside the network nothing is rewritten, what enters or leaves it is.

    Row 3 and 4 keep the sender's address for traffic towards our own pods. Row 6 is the node itself talking to
    pods of other nodes: they could not answer an address of the underlay over the overlay.
    """
    return (
        _Row(verdict="RETURN", marked=True),
        _Row(verdict="RETURN", src=pods, dst=cluster),
        _Row(verdict="RETURN", src=cluster, dst=pods),
        _Row(verdict="RETURN", not_src=cluster, dst=pods),
        _Row(verdict="MASQUERADE", src=cluster, not_dst=multicast),
        _Row(verdict="MASQUERADE", not_src=cluster, dst=cluster),
    )


def _iptables_nat(rows: Iterable[_Row], inputs: Inputs) -> Chain:
    random = " --random-fully" if inputs.random_fully else ""
    return Chain(
        name=POSTRTG,
        table="nat",
        rules=tuple(_iptables(row, _MASQ_COMMENT) + (random if row.verdict == "MASQUERADE" else "") for row in rows),
        jump_from="POSTROUTING",
        jump=f"{_MASQ_COMMENT} -j {POSTRTG}",
    )


def _iptables_forward(rows: Iterable[_Row]) -> Chain:
    return Chain(
        name=FWD,
        table="filter",
        rules=tuple(_iptables(row, _FORWARD_COMMENT) for row in rows),
        jump_from="FORWARD",
        jump=f"{_FORWARD_COMMENT} -j {FWD}",
    )


def _nft_nat(rows: Iterable[_Row], family: int, inputs: Inputs) -> Chain:
    random = " fully-random" if inputs.random_fully else ""
    return Chain(
        name="postrtg",
        hook=_NAT_HOOK,
        comment="chain to manage traffic masquerading by flannel",
        rules=tuple(_nft(row, family) + (random if row.verdict == "MASQUERADE" else "") for row in rows),
    )


def _nft_forward(rows: Iterable[_Row], family: int) -> Chain:
    return Chain(
        name="forward",
        hook=_FILTER_HOOK,
        comment="chain to accept flannel traffic",
        rules=tuple(_nft(row, family) for row in rows),
    )


def _iptables(row: _Row, comment: str) -> str:
    words = [
        "-m mark --mark 0x4000/0x4000" if row.marked else "",
        f"-s {row.src}" if row.src else "",
        f"! -s {row.not_src}" if row.not_src else "",
        f"-d {row.dst}" if row.dst else "",
        f"! -d {row.not_dst}" if row.not_dst else "",
        comment,
        f"-j {row.verdict}",
    ]
    return " ".join(word for word in words if word)


def _nft(row: _Row, family: int) -> str:
    ip = NFT_WORD[family]
    words = [
        "meta mark & 0x00004000 == 0x00004000" if row.marked else "",
        f"{ip} saddr {row.src}" if row.src else "",
        f"{ip} saddr != {row.not_src}" if row.not_src else "",
        f"{ip} daddr {row.dst}" if row.dst else "",
        f"{ip} daddr != {row.not_dst}" if row.not_dst else "",
        row.verdict.lower(),
    ]
    return " ".join(word for word in words if word)
