"""A cheap look at this node, for its daemon, which takes one again and again.

It sends nothing, and lists nothing that a node may have thousands of. Parts that it leaves out are empty, so only the
checks of `EACH_MINUTE` may judge by it. It gives up listings of rules of more than 56 KiB, which would cost the daemon
its memory.
"""

import errno
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from weft.diag.rules import ruleset
from weft.diag.rules.ruleset import Ruleset
from weft.diag.sight.listings import SAVES, said
from weft.diag.sight.look import Places, Readers, assemble
from weft.diag.sight.node import KernelTables, Sight
from weft.diag.sight.nodefiles import networks
from weft.diag.sight.peers import Peer, peers
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import typed
from weft.model.kernel.reported import NeighbourInfo, RouteInfo
from weft.model.node.nodestate import NodeState
from weft.model.value import replace

_LONGEST: Final = 56 << 10  # bytes of all listings of rules together
_SECONDS: Final = 5.0  # for a program
_TABLES: Final = ("nft", "-j", "list", "tables")
# Tables that hold up nothing that is forwarded, and are long where there are many Services.
_PASSED_OVER: Final = frozenset(("nat", "mangle", "raw", "security", "kube-proxy"))


def glance(state: NodeState, places: Places) -> Sight:
    """See this node; `state` is its daemon's own, with a few of its peers."""
    return assemble(
        Readers(daemon=lambda: state, kernel=_kernel, rules=_rules, networks=lambda: networks(places.conf_dir))
    )


def _kernel(rtnl: Rtnl, state: NodeState | None) -> KernelTables:
    links = tuple(rtnl.links())
    sight = Sight(daemon=state, links=links)
    return KernelTables(
        links=links,
        addresses=tuple(rtnl.addresses()),
        neighbours=tuple(_neighbours(rtnl, sight)),
        routes=tuple(_routes(rtnl, peers(sight))),
    )


def _neighbours(rtnl: Rtnl, sight: Sight) -> Iterator[NeighbourInfo]:
    """Links that ask for them (ARP, NDP) count, and devices between nodes do not."""
    own = {link.index for link in sight.devices}
    for link in sight.links:
        if not (link.index in own or link.master or link.loopback):
            yield from rtnl.neighbours(link.index)


def _routes(rtnl: Rtnl, known: Iterable[Peer]) -> Iterator[RouteInfo]:
    """The route to a pod of one peer for each family: rules that differ between nodes are rare."""
    asked = set[int]()
    for peer in known:
        if peer.subnet.version not in asked:
            asked.add(peer.subnet.version)
            with suppress(OSError):  # no way: then there is none to judge
                yield rtnl.route_to(peer.subnet.network_address + 2)


def _rules() -> Ruleset:
    """The rules of all tables that may hold up what is forwarded. Raises `OSError`, also if they are too long."""
    left, listings, saved = _LONGEST, list[str](), dict[str, str]()
    tables = json.loads(_short(_TABLES, left))["nftables"]
    for family, name in _tables(tables):
        listings.append(_short(("nft", "-j", "list", "table", family, name), left))
        left -= len(listings[-1])
        program = SAVES.get(family)
        # Asked only where it keeps its rules in nf_tables: the legacy one would make the table that it lists.
        if name == "filter" and program is not None and "nf_tables" in _short((program, "--version"), left):
            saved[family] = _short((program, "-t", name), left)
            left -= len(saved[family])
    found = ruleset.parse(listings, saved)
    # A table that is passed over may set marks, by which rules elsewhere decide.
    passed_over = any(item.get("table", {}).get("name") in _PASSED_OVER for item in tables)
    return replace(found, marks=found.marks or passed_over)


def _tables(items: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for item in items:
        table = item.get("table")
        if table is not None and table["name"] not in _PASSED_OVER and table["family"] in ("ip", "ip6", "inet"):
            yield table["family"], table["name"]


def _short(command: tuple[str, ...], most: int) -> str:
    try:
        return said(command, seconds=_SECONDS, most=most)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        long = f"more than {_LONGEST >> 10} KiB of rules; `{typed('doctor')}` reads them"
        raise OSError(f"{' '.join(command)}: {long}") from None
