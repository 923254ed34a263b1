"""The kernel's own settings and limits, and other programs that manage this node's network."""

from collections.abc import Iterator
from typing import Final

from weft.diag.finding import Command, Finding, Weight, check, finding, mended, setting
from weft.diag.sight.node import Sight
from weft.model.kernel.marks import BRIDGE_NETFILTER, FORWARDING, NFT_WORD, SERVICES_TABLE
from weft.model.kernel.reported import NUD_NOARP, NUD_PERMANENT
from weft.model.text import counted

_FULL: Final = 0.9  # of a table
_UNMOVED: Final = NUD_PERMANENT | NUD_NOARP  # the table's limit does not count them
_NEVER: Final = "8"  # of arp_ignore: no address is answered for (Documentation/networking/ip-sysctl.rst)
_MANY_REFUSED: Final = 100  # connections: a few races are usual
# Where rules of Services are: kube-proxy's chain in iptables mode, its table in nftables mode, and a lab's own.
_SERVICES: Final = frozenset(("KUBE-SERVICES", "kube-proxy", SERVICES_TABLE))


@check("forwarding", "the kernel forwards pods' packets", "settings", each_minute=True)
def _forwarding(sight: Sight) -> Iterator[Finding]:
    bridges = {bridge.index for bridge in sight.bridges}
    routed = (a for a in sight.addresses if a.index in bridges and a.scope == 0)
    for version in sorted({address.ip.version for address in routed}):
        name = FORWARDING[version]
        if sight.settings.get(name) == "0":
            command = setting(name, "1", "turns forwarding on, until something turns it off again")
            seen, expected = "it is 0, so this machine forwards no packet of pods", "1"
            hint = f"Find what sets it ('sysctl --system' names the files); for now: {command}"
            yield finding("KERN-002", f"sysctl {name}", seen, hint, expected=expected, fix=(command,))
    for link in (*sight.devices, *sight.bridges):
        name = f"net/ipv4/conf/{link.name}/forwarding"
        if sight.settings.get(name) == "0" != sight.settings.get(FORWARDING[4]):
            command = setting(name, "1", f"has packets that come through {link.name} forwarded")
            seen = f"it is 0, so packets that come through {link.name} are not forwarded, although the machine forwards"
            yield mended(command, "KERN-002", f"sysctl {name}", seen, expected="1")


@check("arp", "the kernel tells pods and peers its MACs", "settings", "links")
def _unanswered(sight: Sight) -> Iterator[Finding]:
    """A packet of the node itself tells the other end its MAC, so that what is lost now may arrive a moment later."""
    uplinks = {link.index: link.name for link in sight.links if link.index in sight.ways.values()}
    names = dict.fromkeys(["all", *(bridge.name for bridge in sight.bridges), *uplinks.values()])
    for name in (f"net/ipv4/conf/{each}/arp_ignore" for each in names):
        if sight.settings.get(name) == _NEVER:
            command = setting(name, "0", "has the kernel answer ARP for its addresses")
            seen = f"it is {_NEVER}: who asks this node for the MAC of its address gets no answer, and sends nothing"
            yield mended(command, "KERN-004", f"sysctl {name}", seen, expected="0, 1 or 2")


@check(
    "bridge-netfilter",
    "packets between pods of this node pass the rules of Services, if there are any",
    "settings",
    "rules",
)
def _bridge_netfilter(sight: Sight) -> Iterator[Finding]:
    families = {word: version for version, word in NFT_WORD.items()}
    places = (place for place in sight.rules.chains if place[0] in families)
    kept = {families[family] for family, table, chain in places if not _SERVICES.isdisjoint((table, chain))}
    bridges = {bridge.index for bridge in sight.bridges}
    pods = {address.ip.version for address in sight.addresses if address.index in bridges and address.scope == 0}
    for version in sorted(kept & pods):
        name = BRIDGE_NETFILTER[version]
        if sight.settings.get(name) != "1":
            commands: tuple[Command, ...] = (setting(name, "1", "has packets of bridges pass the rules of Services"),)
            seen = "it is 0"
            if name not in sight.settings:
                seen = "it does not exist, because the module br_netfilter is not loaded"
                load = Command(("modprobe", "br_netfilter"), "loads the kernel's bridge netfilter")
                commands = (load, *commands)
            run = "; ".join(map(str, commands))
            hint = f"Packets between pods of this node bypass the rules of Services. Run: {run}"
            yield finding("KERN-001", f"sysctl {name}", seen, hint, expected="1", fix=commands)


@check("neighbours", "the neighbour tables have room", "neighbours", each_minute=True)
def _neighbours(sight: Sight) -> Iterator[Finding]:
    for version in (4, 6):
        name = f"net/ipv{version}/neigh/default/gc_thresh3"
        limit = int(sight.settings.get(name, "0"))
        used = sum(each.ip.version == version and not each.state & _UNMOVED for each in sight.neighbours)
        if limit and used > limit * _FULL:
            command = setting(name, str(limit * 4), "makes the neighbour table four times as large")
            why = "Past this limit, packets to new neighbours are dropped"
            seen = (
                f"{used} of {limit} IPv{version} neighbour entries are used,"
                " and those inside pods' namespaces come on top"
            )
            yield mended(command, "NEIGH-001", f"sysctl {name}", seen, why=why, weight="warning")


@check("neighbours-before", "the neighbour tables have not been full", "counters")
def _overflown(sight: Sight) -> Iterator[Finding]:
    for version in (4, 6):
        times = sight.counters.get(f"Neighbours{version}.table_fulls", 0)
        if times:
            name = f"sysctl net/ipv{version}/neigh/default/gc_thresh3"
            often = counted(times, "time")
            seen = f"the neighbour table was full {often} since the boot, and packets to new neighbours were dropped"
            hint = "The kernel's log has 'neighbor table overflow'. If the message still appears, raise this limit"
            yield finding("NEIGH-001", name, seen, hint, weight="warning")


@check("connections", "connection tracking has room", "settings", each_minute=True)
def _conntrack(sight: Sight) -> Iterator[Finding]:
    count, limit = (int(sight.settings.get(f"net/netfilter/nf_conntrack_{word}", "0")) for word in ("count", "max"))
    if limit and count > limit * _FULL:
        command = setting("net/netfilter/nf_conntrack_max", str(limit * 2), "makes the table twice as large")
        seen, why = f"{count} of {limit} entries are used", "Past this limit, new connections are dropped"
        weight: Weight = "fault" if count >= limit else "warning"
        yield mended(command, "CT-001", "connection tracking", seen, why=why, weight=weight)


@check("connections-before", "connection tracking has refused few connections", "counters")
def _refused(sight: Sight) -> Iterator[Finding]:
    refused = sight.counters.get("Conntrack.insert_failed", 0)
    if refused >= _MANY_REFUSED:
        seen = (
            f"{refused} new connections were dropped since the boot,"
            " because connection tracking already had an entry with the same addresses and ports"
        )
        hint = (
            "If 'conntrack -S' shows insert_failed rising while DNS takes 5 s: packets of one socket race through"
            " NAT. A DNS cache on the node ends it, or 'options single-request-reopen' in resolv.conf"
        )
        yield finding("CT-001", "connection tracking", seen, hint, weight="warning")


@check("checksums", "datagrams come with right checksums", "counters")
def _checksums(sight: Sight) -> Iterator[Finding]:
    wrong = sight.counters.get("Udp.InCsumErrors", 0)
    if wrong and any(link.kind == "vxlan" for link in sight.devices):
        seen = f"{wrong} datagrams came with a wrong checksum since the boot"
        hint = (
            "If 'nstat -az UdpInCsumErrors' rises while pods talk, then on the peers:"
            " ethtool -K DEVICE tx-checksum-ip-generic off"
        )
        yield finding("CSUM-001", "UDP on this node", seen, hint, weight="warning")


@check("one-iptables", "one kind of iptables has rules", "rules", "legacy_tables")
def _two_firewalls(sight: Sight) -> Iterator[Finding]:
    by_nft = any(name in ("FORWARD", "POSTROUTING") for _, _, name in sight.rules.chains)
    if sight.legacy_tables and by_nft:
        seen = f"iptables-legacy has rules in {', '.join(sight.legacy_tables)}, and iptables-nft has rules as well"
        hint = (
            "Each command lists only its own rules; the kernel applies both."
            " Use only one: update-alternatives --config iptables"
        )
        yield finding("NFT-001", "iptables", seen, hint, weight="warning")


CHECKS: Final = (
    _forwarding,
    _unanswered,
    _bridge_netfilter,
    _neighbours,
    _overflown,
    _conntrack,
    _refused,
    _checksums,
    _two_firewalls,
)
