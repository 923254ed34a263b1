"""The links of a network namespace, each with all that the kernel keeps of it, as text for people. Pure."""

from typing import Final

from weft.model.kernel.marks import PROTOCOL
from weft.model.kernel.reported import (
    NO_CARRIER,
    NUD_DELAY,
    NUD_FAILED,
    NUD_INCOMPLETE,
    NUD_NOARP,
    NUD_PERMANENT,
    NUD_PROBE,
    NUD_REACHABLE,
    NUD_STALE,
    AddressInfo,
    FdbInfo,
    LinkInfo,
    NeighbourInfo,
    RouteInfo,
)
from weft.model.value import Value, field

MOST: Final = 200  # rows of each kind that are told of a link: a node of a large cluster has thousands
_KINDS: Final = {6: "blackhole ", 7: "unreachable ", 8: "prohibit "}  # rtm_type (linux/rtnetlink.h)
_STATES: Final = {
    NUD_INCOMPLETE: "incomplete",
    NUD_REACHABLE: "reachable",
    NUD_STALE: "stale",
    NUD_DELAY: "delay",
    NUD_PROBE: "probe",
    NUD_FAILED: "failed",
    NUD_NOARP: "no ARP",
    NUD_PERMANENT: "permanent",
}


class InterfaceState(Value):
    """A link. `state` is `up`, `down` or `no carrier`; `master` is the bridge that it is a port of.

    `routes` are those of the main table that lead out by it, `fdb` what a VXLAN device or a bridge port forwards by.
    `more` counts the rows that are left out, by the name of their list.
    """

    index: int
    name: str
    kind: str
    state: str
    mtu: int
    mac: str = ""
    master: str = ""
    about: str = ""
    addresses: list[str] = field(default_factory=list)
    routes: list[str] = field(default_factory=list)
    neighbours: list[str] = field(default_factory=list)
    fdb: list[str] = field(default_factory=list)
    more: dict[str, int] = field(default_factory=dict)


class Tables(Value):
    """What the kernel reports of one namespace. `about` has words on links from their drivers' settings."""

    links: list[LinkInfo]
    addresses: list[AddressInfo]
    routes: list[RouteInfo]
    neighbours: list[NeighbourInfo]
    fdb: list[FdbInfo]
    about: dict[int, str] = field(default_factory=dict)


def described(tables: Tables) -> list[InterfaceState]:
    names = {link.index: link.name for link in tables.links}
    return [_described(link, tables, names) for link in tables.links if not link.loopback]


def _described(link: LinkInfo, tables: Tables, names: dict[int, str]) -> InterfaceState:
    own = {
        "addresses": (_address(each) for each in tables.addresses if each.index == link.index),
        "routes": (
            _route(each, link.index)
            for each in tables.routes
            if link.index in (each.index, *(hop.index for hop in each.hops))
        ),
        "neighbours": (_neighbour(each) for each in tables.neighbours if each.index == link.index),
        # Without the groups that a link listens to.
        "fdb": (_entry(each) for each in tables.fdb if each.index == link.index and not each.mac[0] & 1),
    }
    rows = {name: list(texts) for name, texts in own.items()}
    return InterfaceState(
        index=link.index,
        name=link.name,
        kind=link.kind or "device",
        state="down" if not link.up else "no carrier" if link.operstate in NO_CARRIER else "up",
        mtu=link.mtu,
        mac="" if link.mac is None else str(link.mac),
        master=names.get(link.master, ""),
        about=tables.about.get(link.index, ""),
        more={name: len(texts) - MOST for name, texts in rows.items() if len(texts) > MOST},
        **{name: texts[:MOST] for name, texts in rows.items()},
    )


def _address(address: AddressInfo) -> str:
    flags = "".join(f" {word}" for word in ("tentative", "dad_failed", "deprecated") if getattr(address, word))
    peer = "" if address.peer is None or address.peer == address.ip else f" peer {address.peer}"
    return f"{address.ip}/{address.prefixlen}{peer}{flags.replace('dad_failed', 'duplicate')}"


def _route(route: RouteInfo, index: int) -> str:
    via, onlink = route.via, route.onlink
    for hop in route.hops:
        if hop.index == index:
            via, onlink = hop.via, hop.onlink
    text = f"{_KINDS.get(route.kind, '')}{'default' if not route.dst.prefixlen else route.dst}"
    text += f" via {via}" if via is not None else ""
    text += " onlink" if onlink else ""
    text += f" src {route.src}" if route.src is not None else ""
    return text + (" (weft)" if route.protocol == PROTOCOL else "")


def _neighbour(neighbour: NeighbourInfo) -> str:
    state = " ".join(word for bit, word in _STATES.items() if neighbour.state & bit)
    return f"{neighbour.ip} at {neighbour.mac or 'no MAC'} {state}".rstrip()


def _entry(entry: FdbInfo) -> str:
    behind = f" behind {entry.remote}" if entry.remote is not None else ""
    vlan = f" VLAN {entry.vlan}" if entry.vlan else ""
    permanent = " permanent" if entry.state & NUD_PERMANENT else ""
    return f"{entry.mac}{behind}{vlan}{permanent}"
