"""The kernel's own settings and limits, and other programs that manage this node's network."""

from collections.abc import Iterator
from typing import Final

from weft.diag.finding import Check, Command, Finding, setting
from weft.diag.sight.node import Sight
from weft.model.errors import Problem
from weft.model.kernel.marks import BRIDGE_NETFILTER, FORWARDING, NFT_WORD, SERVICES_TABLE
from weft.model.kernel.reported import NUD_NOARP, NUD_PERMANENT
from weft.model.text import counted

_FULL: Final = 0.9  # of a table
_UNMOVED: Final = NUD_PERMANENT | NUD_NOARP  # the table's limit does not count them
_MANY_REFUSED: Final = 100  # connections: a few races are usual
# Where rules of Services are: kube-proxy's chain in iptables mode, its table in nftables mode, and a lab's own.
_SERVICES: Final = frozenset(("KUBE-SERVICES", "kube-proxy", SERVICES_TABLE))


def _forwarding(sight: Sight) -> Iterator[Finding]:
    bridges = {bridge.index for bridge in sight.bridges}
    routed = (a for a in sight.addresses if a.index in bridges and a.scope == 0)
    for version in sorted({address.ip.version for address in routed}):
        name = FORWARDING[version]
        if sight.settings.get(name) == "0":
            command = setting(name, "1", "turns forwarding on, until something turns it off again")
            seen, expected = "it is 0, so this machine forwards no packet of pods", "1"
            hint = f"Find what sets it ('sysctl --system' names the files); for now: {command}"
            problem = Problem(code="KERN-002", where=f"sysctl {name}", seen=seen, expected=expected, hint=hint)
            yield Finding(problem=problem, fix=(command,))
    for link in (*sight.devices, *sight.bridges):
        name = f"net/ipv4/conf/{link.name}/forwarding"
        if sight.settings.get(name) == "0" != sight.settings.get(FORWARDING[4]):
            command = setting(name, "1", f"has packets that come through {link.name} forwarded")
            seen = f"it is 0, so packets that come through {link.name} are not forwarded, although the machine forwards"
            hint = f"Run: {command}"
            problem = Problem(code="KERN-002", where=f"sysctl {name}", seen=seen, expected="1", hint=hint)
            yield Finding(problem=problem, fix=(command,))


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
            problem = Problem(code="KERN-001", where=f"sysctl {name}", seen=seen, expected="1", hint=hint)
            yield Finding(problem=problem, fix=commands)


def _neighbours(sight: Sight) -> Iterator[Finding]:
    for version in (4, 6):
        name = f"net/ipv{version}/neigh/default/gc_thresh3"
        limit = int(sight.settings.get(name, "0"))
        used = sum(each.ip.version == version and not each.state & _UNMOVED for each in sight.neighbours)
        if limit and used > limit * _FULL:
            command = setting(name, str(limit * 4), "makes the neighbour table four times as large")
            hint = f"Past this limit, packets to new neighbours are dropped. Run: {command}"
            seen = (
                f"{used} of {limit} IPv{version} neighbour entries are used,"
                " and those inside pods' namespaces come on top"
            )
            problem = Problem(code="NEIGH-001", where=f"sysctl {name}", seen=seen, hint=hint)
            yield Finding(problem=problem, weight="warning", fix=(command,))


def _overflown(sight: Sight) -> Iterator[Finding]:
    for version in (4, 6):
        times = sight.counters.get(f"Neighbours{version}.table_fulls", 0)
        if times:
            name = f"sysctl net/ipv{version}/neigh/default/gc_thresh3"
            often = counted(times, "time")
            seen = f"the neighbour table was full {often} since the boot, and packets to new neighbours were dropped"
            hint = "The kernel's log has 'neighbor table overflow'. If the message still appears, raise this limit"
            yield Finding(problem=Problem(code="NEIGH-001", where=name, seen=seen, hint=hint), weight="warning")


def _conntrack(sight: Sight) -> Iterator[Finding]:
    count, limit = (int(sight.settings.get(f"net/netfilter/nf_conntrack_{word}", "0")) for word in ("count", "max"))
    if limit and count > limit * _FULL:
        command = setting("net/netfilter/nf_conntrack_max", str(limit * 2), "makes the table twice as large")
        hint = f"Past this limit, new connections are dropped. Run: {command}"
        problem = Problem(
            code="CT-001", where="connection tracking", seen=f"{count} of {limit} entries are used", hint=hint
        )
        yield Finding(problem=problem, weight="fault" if count >= limit else "warning", fix=(command,))


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
        problem = Problem(code="CT-001", where="connection tracking", seen=seen, hint=hint)
        yield Finding(problem=problem, weight="warning")


def _checksums(sight: Sight) -> Iterator[Finding]:
    wrong = sight.counters.get("Udp.InCsumErrors", 0)
    if wrong and any(link.kind == "vxlan" for link in sight.devices):
        seen = f"{wrong} datagrams came with a wrong checksum since the boot"
        hint = (
            "If 'nstat -az UdpInCsumErrors' rises while pods talk, then on the peers:"
            " ethtool -K DEVICE tx-checksum-ip-generic off"
        )
        problem = Problem(code="CSUM-001", where="UDP on this node", seen=seen, hint=hint)
        yield Finding(problem=problem, weight="warning")


def _two_firewalls(sight: Sight) -> Iterator[Finding]:
    by_nft = any(name in ("FORWARD", "POSTROUTING") for _, _, name in sight.rules.chains)
    if sight.legacy_tables and by_nft:
        seen = f"iptables-legacy has rules in {', '.join(sight.legacy_tables)}, and iptables-nft has rules as well"
        hint = (
            "Each command lists only its own rules; the kernel applies both."
            " Use only one: update-alternatives --config iptables"
        )
        yield Finding(problem=Problem(code="NFT-001", where="iptables", seen=seen, hint=hint), weight="warning")


CHECKS: Final = (
    Check(name="forwarding", about="the kernel forwards pods' packets", needs=("settings",), find=_forwarding),
    Check(
        name="bridge-netfilter",
        about="packets between pods of this node pass the rules of Services, if there are any",
        needs=("settings", "rules"),
        find=_bridge_netfilter,
    ),
    Check(name="neighbours", about="the neighbour tables have room", needs=("neighbours",), find=_neighbours),
    Check(
        name="neighbours-before",
        about="the neighbour tables have not been full",
        needs=("counters",),
        find=_overflown,
    ),
    Check(name="connections", about="connection tracking has room", needs=("settings",), find=_conntrack),
    Check(
        name="connections-before",
        about="connection tracking has refused few connections",
        needs=("counters",),
        find=_refused,
    ),
    Check(name="checksums", about="datagrams come with right checksums", needs=("counters",), find=_checksums),
    Check(
        name="one-iptables",
        about="one kind of iptables has rules",
        needs=("rules", "legacy_tables"),
        find=_two_firewalls,
    ),
)
