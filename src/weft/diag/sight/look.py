"""Sees a node: puts together what is read of the kernel, files, programs and the daemon. Changes nothing."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, TypeVar

from weft.cni.attachment import podaddresses
from weft.cni.plugins.portmap import maps, strangers
from weft.cni.plugins.portmap.elements import TABLE, pod_of, port_of
from weft.cni.runtime import conf
from weft.cni.runtime.cache import Cache
from weft.desired.tunnels.vxlan import VxlanLink
from weft.diag.rules.ruleset import Ruleset
from weft.diag.sight import attachments, host, listings, nodefiles, peer_probes
from weft.diag.sight.interfaces import InterfaceState, Tables, described
from weft.diag.sight.node import Attached, Clock, Configured, DeadPort, KernelTables, Part, Reserved, Sight, Vxlan
from weft.diag.sight.peers import peers
from weft.kernel import daemons, sysctl
from weft.kernel.namespaces import processes
from weft.kernel.netfilter import conntrack
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink import codec
from weft.kernel.rtnetlink.attributes import Malformed
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import ConfigError, Unavailable
from weft.model.kernel.marks import BRIDGE_NETFILTER, ECHOES_IGNORED, FORWARDING, LOCAL_TABLE, MAIN_TABLE
from weft.model.kernel.reported import LinkInfo
from weft.model.net import FAMILIES, Ip
from weft.model.node.nodestate import NodeState
from weft.model.value import Value, fields_of, replace
from weft.wire.cni import CniError
from weft.wire.subnetenv import PluginEnv

T = TypeVar("T")

_TRACKED: Final = "net/netfilter/nf_conntrack_count"
_SETTINGS: Final = (
    *FORWARDING.values(),
    *BRIDGE_NETFILTER.values(),
    "net/ipv4/neigh/default/gc_thresh3",
    "net/ipv6/neigh/default/gc_thresh3",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/all/arp_ignore",
    "net/ipv6/conf/default/disable_ipv6",
    *ECHOES_IGNORED.values(),
    _TRACKED,
    "net/netfilter/nf_conntrack_max",
)
_OF_LINKS: Final = (
    *("net/ipv4/conf/{}/rp_filter", "net/ipv4/conf/{}/forwarding", "net/ipv4/conf/{}/arp_ignore"),
    "net/ipv6/conf/{}/disable_ipv6",
)
_PROGRAMS: Final = frozenset(("weftd", "flanneld"))
_ON_THE_NODE: Final = "/var/lib/weft/node/current/bin/weft"  # the copy that the pod's init container puts there
_LEGACY: Final = (Path("net/ip_tables_names"), Path("net/ip6_tables_names"))


class Places(Value):
    """Where a node has its files, and which of its daemons is meant. `run` is None in a pod, whose own is another."""

    subnet_file: Path = Path("/run/flannel/subnet.env")
    conf_dir: Path = conf.DIRECTORY
    bin_dir: Path = Path("/opt/cni/bin")
    data_dir: Path = Path("/var/lib/cni/networks")
    proc: Path = Path("/proc")
    run: Path | None = Path("/run")
    instance: str | None = None


class Readers(Value):
    """How the parts of a sight are read. A part that is not given stays empty."""

    daemon: Callable[[], NodeState | None]
    kernel: Callable[[Rtnl, NodeState | None], KernelTables]
    rules: Callable[[], Ruleset]
    networks: Callable[[], tuple[Configured, ...]]
    counters: Callable[[], dict[str, int]] = dict
    dead_ports: Callable[[], tuple[DeadPort, ...]] = tuple
    legacy_tables: Callable[[], tuple[str, ...]] = tuple
    subnet_env: Callable[[], PluginEnv | None] = lambda: None
    plugins: Callable[[], frozenset[str]] = frozenset
    reserved: Callable[[], tuple[Reserved, ...]] = tuple
    attached: Callable[[], tuple[Attached, ...]] = tuple
    programs: Callable[[], frozenset[str]] = frozenset  # the names of all that run
    managers: Callable[[tuple[LinkInfo, ...]], dict[str, str]] = lambda _: {}
    clock: Callable[[], Clock | None] = lambda: None


def look(places: Places) -> Sight:
    """See this node, and by which links its peers are reached. Sends nothing."""
    own, wanted = places.proc / "self", places.instance
    return assemble(
        Readers(
            daemon=lambda: daemons.state(daemons.choose(wanted)) if wanted or daemons.living() else None,
            kernel=lambda rtnl, _: _kernel(rtnl),
            rules=listings.rules,
            networks=lambda: nodefiles.networks(places.conf_dir),
            counters=lambda: _counters(places.proc),
            dead_ports=lambda: tuple(_dead_ports()),
            legacy_tables=lambda: _legacy(own),
            subnet_env=lambda: nodefiles.subnet_env(places.subnet_file),
            plugins=lambda: frozenset(path.name for path in places.bin_dir.iterdir() if os.access(path, os.X_OK)),
            reserved=lambda: tuple(nodefiles.reserved(places.data_dir)),
            attached=lambda: attachments.attached(Cache()),
            programs=lambda: frozenset(processes(places.proc).values()),
            managers=lambda links: _managers(places.run, links),
            clock=host.clock,
        )
    )


def inside() -> Sight:
    """See the network namespace that the thread is in, of a pod: nobody's daemon, and no network of its own."""
    return assemble(
        Readers(daemon=lambda: None, kernel=lambda rtnl, _: _kernel(rtnl), rules=listings.rules, networks=tuple)
    )


def assemble(readers: Readers) -> Sight:
    """Read each part. What cannot be read is empty, and `unseen` says why."""
    unseen: dict[str, str] = {}

    def part(read: Callable[[], T], empty: T, *names: Part) -> T:
        try:
            return read()
        except (OSError, ValueError, CniError, ConfigError, Unavailable) as error:
            unseen.update(dict.fromkeys(names, _words(error)))
            return empty

    def kernel() -> KernelTables:
        with Rtnl.open() as rtnl:
            return readers.kernel(rtnl, daemon)

    daemon = part(readers.daemon, None, "daemon")
    tables = part(kernel, KernelTables(), "links", "routes", "neighbours")
    running: frozenset[str] = part(readers.programs, frozenset(), "programs")
    sight = Sight(
        daemon=daemon,
        **fields_of(tables),
        settings=part(lambda: settings(tables.links), {}, "settings"),
        counters=part(readers.counters, {}, "counters"),
        rules=part(readers.rules, Ruleset(), "rules"),
        dead_ports=part(readers.dead_ports, (), "dead_ports"),
        legacy_tables=part(readers.legacy_tables, (), "legacy_tables"),
        subnet_env=part(readers.subnet_env, None, "subnet_env"),
        networks=part(readers.networks, (), "networks"),
        plugins=part(readers.plugins, frozenset(), "plugins"),
        reserved=part(readers.reserved, (), "reserved"),
        attached=part(readers.attached, (), "attached"),
        programs=_PROGRAMS & running,
        link_programs=host.link_programs(running),
        managers=part(lambda: readers.managers(tables.links), {}, "managers"),
        clock=part(readers.clock, None, "clock"),
    )
    ways: dict[str, int] = part(lambda: _ways(sight), {}, "links")
    return replace(sight, ways=ways, unseen=unseen)


def ask_peers(sight: Sight) -> Sight:
    try:
        # What a device of this node does not take says nothing of the way.
        largest = min((sight.mtu, *(device.mtu for device in sight.devices)))
        probes, knocks = peer_probes.probe(peers(sight), mtu=largest, port=next(iter(sight.ports), 0))
        if all(each.answered for each in probes):
            return replace(sight, probes=probes)
        return replace(with_neighbours(sight), probes=probes, knocks=knocks, strangers=_strangers(sight))
    except OSError as error:
        return replace(sight, unseen={**sight.unseen, "probes": _words(error)})


def with_neighbours(sight: Sight) -> Sight:
    """The same, with the neighbours as they are: of those that were asked since, some do not even answer ARP."""
    with Rtnl.open() as rtnl:
        return replace(sight, neighbours=tuple(rtnl.neighbours()))


def _strangers(sight: Sight) -> tuple[Ip, ...]:
    if not sight.ports or _TRACKED not in sight.settings:
        return ()
    publics = {peer.public for peer in peers(sight)}
    known = publics | {address.ip for address in sight.addresses}
    versions = {each.version for each in publics if each is not None}
    try:
        with closing(NfSocket.open()) as sock:
            sources = {ip for version in versions for ip in conntrack.sources_of_udp(sock, version, sight.ports)}
    except OSError:  # it explains a silence, and is nothing to be missed by itself
        return ()
    return tuple(sorted(sources - known, key=lambda ip: (ip.version, int(ip))))


def _words(error: Exception) -> str:
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)


def _kernel(rtnl: Rtnl) -> KernelTables:
    links, policies = rtnl.links(), rtnl.rules()
    tables = {rule.table for rule in policies} - {0, MAIN_TABLE, LOCAL_TABLE}
    return KernelTables(
        links=tuple(links),
        addresses=tuple(rtnl.addresses()),
        routes=tuple(rtnl.routes()),
        neighbours=tuple(rtnl.neighbours()),
        fdb=tuple(entry for link in links if link.kind == "vxlan" for entry in rtnl.fdb(link.index)),
        pods=attachments.pods(rtnl, links),
        policies=tuple(policies),
        other_routes=tuple(route for table in sorted(tables) for route in rtnl.routes(table)),
        vxlans=tuple(found for link in links if link.kind == "vxlan" and (found := vxlan(link)) is not None),
    )


def _counters(proc: Path) -> dict[str, int]:
    descriptor = os.open(proc, os.O_PATH | os.O_CLOEXEC)
    try:
        return host.counters(descriptor)
    finally:
        os.close(descriptor)


def settings(links: Iterable[LinkInfo]) -> dict[str, str]:
    own = [name.format(link.name) for link in links if not link.master for name in _OF_LINKS]
    return {name: value for name in (*_SETTINGS, *own) if (value := sysctl.read(name)) is not None}


def interfaces(rtnl: Rtnl) -> list[InterfaceState]:
    links = rtnl.links()
    vxlans = {link.index: found for link in links if link.kind == "vxlan" and (found := vxlan(link)) is not None}
    tables = Tables(
        links=links,
        addresses=rtnl.addresses(),
        routes=rtnl.routes(),
        neighbours=rtnl.neighbours(),
        fdb=rtnl.fdb(),
        about={index: f"VNI {found.vni}, UDP port {found.port}" for index, found in vxlans.items()},
    )
    return described(tables)


def vxlan(link: LinkInfo) -> Vxlan | None:
    """None if it has other attributes than flannel's devices."""
    try:
        fields = codec.decode_data(VxlanLink, link.data)
    except Malformed:
        return None
    if fields is None:
        return None
    return Vxlan(name=link.name, vni=fields["vni"], port=fields["port"])


def _dead_ports() -> Iterator[DeadPort]:
    """Published ports, in any form, that lead to no pod: rules outlive a pod that was removed without DEL."""
    with Rtnl.open() as rtnl, closing(NfSocket.open()) as nf:
        found = [
            DeadPort(port=f"{each.port}/{each.protocol}", address=each.pod, rule=each.place)
            for family in FAMILIES
            for each in strangers.look(nf, family)
        ]
        ours = (element for element in maps.listed(nf) if element.data)
        found += [
            DeadPort(port=port_of(each), address=pod_of(each), rule=f"an element of table {TABLE} ({each.comment})")
            for each in ours
        ]
        alive = podaddresses.addresses(rtnl) if found else frozenset()
        yield from (each for each in found if podaddresses.is_nobodys(rtnl, each.address, alive))


def _legacy(own: Path) -> tuple[str, ...]:
    """A kernel that has none has no such file."""
    found = set[str]()
    for file in _LEGACY:
        with suppress(FileNotFoundError):
            found.update((own / file).read_text().split())
    return tuple(sorted(found))


def _managers(run: Path | None, links: Iterable[LinkInfo]) -> dict[str, str]:
    if run is None:
        raise OSError(
            f"weft runs in a pod and cannot see the node's network managers: run '{_ON_THE_NODE} doctor' on the node"
        )
    return host.managers(run, links)


def _ways(sight: Sight) -> dict[str, int]:
    found: dict[str, int] = {}
    with Rtnl.open() as rtnl:
        for peer in peers(sight):
            if peer.public is not None:
                with suppress(OSError):  # no way at all: its echo will not come
                    found[str(peer.public)] = rtnl.route_to(peer.public).index
    return found
