"""Which links and routes are weft's: others may use the same marks, a prefix and a number."""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from weft.config.netconf import parse_netconf
from weft.daemon.disk import memory
from weft.daemon.world import Moment
from weft.desired.backends import BACKENDS
from weft.kernel.rtnetlink.codec import VTEP_ALIAS
from weft.model.errors import ConfigError
from weft.model.kernel.marks import ALIAS, MAIN_TABLE
from weft.model.kernel.objects import Ownership, Route
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Net

UNKNOWN: Final = "no network of weft's is known any more, so nothing tells whose it is"
# What weft makes: how the alias goes on, and the kinds of link that have it.
_ALIASES: Final = (
    ("vtep", tuple({kind.kind for backend in BACKENDS.values() for kind in backend.LINKS})),
    ("bridge", ("bridge",)),
    ("gateway", ("veth",)),
    ("pod:[0-9a-f]{32}", ("veth",)),
    ("ifb:[0-9a-f]{32}", ("ifb",)),
    ("retired", ("veth", "ifb")),
)


def is_link(link: LinkInfo) -> bool:
    """Tell whether weft makes such links with this alias."""
    return any(re.fullmatch(ALIAS + rest, link.alias) and link.kind in kinds for rest, kinds in _ALIASES)


def route_is_foreign(route: Route, links: Collection[LinkInfo], networks: Collection[Net]) -> str:
    """Return why a route with protocol 165 is not ours; empty if it is."""
    if route.table != MAIN_TABLE:
        return f"weft has none in table {route.table}"
    if any(link.name == route.dev and link.alias == VTEP_ALIAS for link in links):
        return ""
    if Ownership(devices=frozenset(), networks=tuple(networks)).leads_to(route.dst):
        return ""
    if not networks:
        return UNKNOWN
    return f"it leads to no device of weft, and into none of the networks {', '.join(map(str, networks))}"


def networks(state_dir: Path) -> Iterator[Net]:
    """The networks of all instances in this state directory."""
    for directory in sorted(path for path in state_dir.glob("*-*") if path.is_dir()):
        known = memory.load(directory, Moment(unix=0.0, now=0.0, boot=""), aside=False)
        if known is not None:
            with suppress(ConfigError):
                yield from parse_netconf(known.net_conf, str(directory), backends=BACKENDS).networks
