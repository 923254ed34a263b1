"""Removes what weft made in this network namespace, no more and no less, and looks again to prove it.

The kernel says what is ours: the alias of links (`ours.py`), protocol 165 of routes into our networks or devices, the
names of rule sets and tables. What only looks like ours is named and left. What else attachments hold is freed as that
of leaked ones. Nothing is removed while a daemon keeps it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

from weft.beside.threads import beside
from weft.cni.host.host import Host, open_node
from weft.cni.install import conflist, inventory, nodepart
from weft.cni.install.directories import Directories
from weft.cni.leaks import sweep
from weft.cni.leaks.sweeper import node_host
from weft.cni.plugins.firewall import nft
from weft.cni.plugins.portmap import elements
from weft.daemon.backends import BACKENDS
from weft.daemon.commands import ours
from weft.daemon.disk import instance
from weft.daemon.planes.kernel import NodeKernel
from weft.desired.leaks import State
from weft.kernel import statefiles
from weft.kernel.namespaces import processes
from weft.kernel.netfilter.firewall import Firewall
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.observe import observe
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.kernel.tools import ToolError, Tools
from weft.model.attachment import Attachment
from weft.model.errors import ConfigError, Problem, typed
from weft.model.kernel.marks import ALIAS
from weft.model.kernel.objects import Key, Object, Route, Snapshot
from weft.model.kernel.policytable import BRIDGE, INET, table_of
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Net
from weft.model.value import Value
from weft.plan.diff import Delete, diff
from weft.wire import subnetenv

T = TypeVar("T")

_MAX_BYTES: Final = 1 << 16
_REMAINS: Final = tuple(backend.remains for backend in BACKENDS.values() if backend.remains is not None)
_TABLES: Final = (elements.TABLE, nft.TABLE)


class Site(Value):
    """The subnet file, and the daemon's `--state-dir`."""

    subnet_file: Path
    state_dir: Path


class Found(Value):
    """What is ours: steps that remove rule sets and routes, links, tables, and the subnet file.

    `remains` of back ends are in words; `attachments` are those that hold anything. `unseen` may be ours, and cannot be
    looked at; `foreign` only looks so, and says why.
    """

    steps: tuple[Delete, ...] = ()
    links: tuple[LinkInfo, ...] = ()
    tables: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    remains: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    unseen: tuple[Problem, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        return (
            *(str(step.object) for step in self.steps),
            *map(_describe, self.links),
            *(f"table {table}" for table in self.tables),
            *self.remains,
            *(f"what {each.container_id} {each.ifname} holds in {each.network}" for each in self.attachments),
            *(f"file {path}" for path in self.files),
        )


async def find(rtnl: Rtnl, firewall: Firewall, site: Site, networks: tuple[Net, ...]) -> Found:
    snapshot = observe(rtnl)
    named = tuple(link for link in snapshot.links if link.alias.startswith(ALIAS))
    links = tuple(link for link in named if ours.is_link(link))
    routes, unknown, foreign = _routes(snapshot, links, networks)
    left = [each.look(networks) for each in _REMAINS]
    rules = await firewall.present()
    steps = [*diff({}, rules), *diff({}, routes)]
    return Found(
        steps=tuple(step for step in steps if isinstance(step, Delete)),
        links=_once(links, snapshot),
        tables=_tables(),
        files=(site.subnet_file,) if _is_subnet_file(site.subnet_file) else (),
        remains=tuple(line for each in left for line in each.ours),
        attachments=_with_host(site, lambda host: tuple(sweep.attachments(host)), default=()),
        unseen=(
            *await firewall.unseen(rules.keys()),
            *map(_unknown, (*unknown, *(thing for each in left for thing in each.unknown))),
        ),
        foreign=(
            *(
                f"{_describe(link)}: weft makes no link of this kind with this alias"
                for link in named
                if link not in links
            ),
            *foreign,
            *(line for each in left for line in each.foreign),
        ),
    )


def _routes(
    snapshot: Snapshot, links: Collection[LinkInfo], networks: Collection[Net]
) -> tuple[dict[Key, Object], list[Object], list[str]]:
    """The routes that are ours, those that may be, and those that only look so, each with the reason."""
    mine, unknown, foreign = dict[Key, Object](), list[Object](), list[str]()
    for key, route in snapshot.ours.items():
        if not isinstance(route, Route):
            continue
        why = ours.route_is_foreign(route, links, networks)
        if why == ours.UNKNOWN:
            unknown.append(route)
        elif why:
            foreign.append(f"{route}: {why}")
        else:
            mine[key] = route
    return mine, unknown, foreign


def _refuse_beside_flanneld() -> None:
    for pid, name in processes(Path("/proc")).items():
        if name == "flanneld":
            seen, hint = (
                f"flanneld runs here (pid {pid})",
                "Stop it first; if it is to go on, do not clean up: it uses what weft has made",
            )
            raise ConfigError(Problem(code="INST-001", where="weft cleanup", seen=seen, hint=hint))


def files_left(site: Site, environ: Mapping[str, str]) -> dict[str, str]:
    """The files that a clean-up leaves, each with what it is for."""
    places = Directories.known(environ)
    kept = {
        site.state_dir: "who this node is; remove it if the node shall take another name and subnet",
        nodepart.directory(environ): f"a copy of weft that serves plugins; '{typed('cni uninstall')}' removes it",
        Path("/run/weft"): "goes with the next boot",
        places.bin_dir / inventory.LIST: f"plugins are there; '{typed('cni handback')}' gives the places back",
        places.conf_dir / conflist.NAME: "the network that runtimes use; remove it if nothing serves it any more",
        Path("/var/lib/cni"): "what runtimes and host-local remember of pods",
    }
    return {str(path): why for path, why in kept.items() if path.exists()}


def _describe(link: LinkInfo) -> str:
    return f"link {link.name} ({link.kind or 'device'}, {link.alias})"


def _unknown(thing: Object) -> Problem:
    hint = "Name the daemon's --subnet-file or --state-dir, or remove it yourself"
    return Problem(code="CLEAN-001", where=str(thing), seen=ours.UNKNOWN, hint=hint)


def _tables() -> tuple[str, ...]:
    try:
        with closing(NfSocket.open()) as nf:
            policies = (str(table) for table in map(table_of, (INET, BRIDGE)) if nf.has_table(table))
            return (*(str(table) for table in _TABLES if nf.sets(table)), *policies)
    except OSError:
        return ()  # no nf_tables, no table


def _with_host(site: Site, look: Callable[[Host], T], *, default: T) -> T:
    """Ask about attachments; `default` where weft never made any."""
    if not (site.state_dir / "cni").is_dir():
        return default
    node = open_node(str(site.state_dir), retire=lambda _: None, lease_problem=str)
    with closing(node), node_host(node) as host:
        return look(host)


def _is_subnet_file(path: Path) -> bool:
    """Tell whether a daemon wrote it: a file that was named by mistake is not removed."""
    found = _subnet_file(path)
    return found.subnet_v4 is not None or found.subnet_v6 is not None


def _subnet_file(path: Path) -> subnetenv.Previous:
    try:
        return subnetenv.parse(statefiles.read(path, limit=_MAX_BYTES).decode(errors="replace"))
    except OSError:
        return subnetenv.Previous()


class Done(Value):
    """A clean-up: what was `found`, what a second look finds `still`, and what was refused."""

    found: Found
    still: Found = Found()
    refused: tuple[str, ...] = ()

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(line for line in self.found.lines if line not in self.still.lines)

    @property
    def left(self) -> tuple[str, ...]:
        """What should have gone, and the kernel's words."""
        return (*self.refused, *(f"still there: {line}" for line in self.still.lines))


async def clean_up(site: Site, *, dry_run: bool) -> Done:
    """Remove what is ours, and look again.

    Raises `ConfigError` (INST-001) while a daemon lives here, also upstream's: it takes over what weft has made.
    """
    tools = Tools()
    firewall = Firewall(tools)
    previous = _subnet_file(site.subnet_file)
    networks = (*previous.networks, *ours.networks(site.state_dir))
    with Rtnl.open() as rtnl:
        found = await find(rtnl, firewall, site, networks)
        if dry_run:
            return Done(found=found)
        instance.refuse_beside_others()
        _refuse_beside_flanneld()
        for left in _REMAINS:
            left.remove(lambda: networks, wholly=True)
        refused = [*(await _remove_steps(rtnl, firewall, found.steps)), *_remove_links(rtnl, found.links)]
        # Aside, since it may run the firewall's programs, by an event loop of its own.
        refused += await beside(lambda: _with_host(site, lambda host: _free(host, found.attachments), default=[]))
        refused += await _remove_tables(tools, found.tables)
        for path in found.files:
            path.unlink(missing_ok=True)
        still = await find(rtnl, firewall, site, networks)
    return Done(found=found, still=still, refused=tuple(refused))


def _free(host: Host, attachments: Iterable[Attachment]) -> list[str]:
    """Free what attachments hold whose links have gone; returns what could not be."""
    refused = []
    for attachment in attachments:
        try:
            if not sweep.free(host, attachment) and sweep.judge(host, attachment).state is not State.LEAKED:
                refused.append(f"{attachment.container_id} {attachment.ifname}: it is not proved that it has gone")
        except Exception as error:  # noqa: BLE001 - whatever a record holds: the others are freed all the same
            refused.append(f"{attachment.container_id} {attachment.ifname}: {error}")
    return refused


async def _remove_tables(tools: Tools, tables: Iterable[str]) -> list[str]:
    refused = []
    for table in tables:
        try:
            await tools.run("nft", ["delete", "table", *table.split()])
        except ToolError as error:
            refused.append(f"table {table}: {error.strerror}")
    return refused


async def _remove_steps(rtnl: Rtnl, firewall: Firewall, steps: Iterable[Delete]) -> list[str]:
    rules = [step for step in steps if step.object.key[0] == "ruleset"]
    failures = [await firewall.apply(step) for step in rules]
    failures += await NodeKernel(rtnl).apply([step for step in steps if step not in rules])
    return [failure.message for failure in failures if failure is not None]


def _remove_links(rtnl: Rtnl, links: Iterable[LinkInfo]) -> list[str]:
    refused = []
    for link in links:
        try:
            rtnl.delete_link(link.index)
        except NetlinkError as error:
            refused.append(f"{link.name}: {error.strerror}")
    return refused


def _once(links: Iterable[LinkInfo], snapshot: Snapshot) -> tuple[LinkInfo, ...]:
    """Leave out the second end of a veth pair, which goes with the first."""
    kept: dict[int, LinkInfo] = {}
    for link in links:
        other = snapshot.link(link.link) if link.kind == "veth" and link.peer_netns < 0 else None
        if other is None or other.index not in kept:
            kept[link.index] = link
    return tuple(kept.values())
