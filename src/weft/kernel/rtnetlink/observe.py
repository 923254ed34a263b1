"""A look at the machine: dumps, as objects of the model.

The lists are read one after the other; the monitor's notices, read from before the look, tell of changes in between.
Long looks are generators (`kernel.cooperative`).
"""

import socket
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from weft.kernel import sysctl
from weft.kernel.cooperative import Slices, at_once
from weft.kernel.rtnetlink import codec, neigh, route
from weft.kernel.rtnetlink.codec import Devices
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.marks import MAIN_TABLE, PROTOCOL
from weft.model.kernel.objects import Key, Object, Objects, Snapshot, Sysctl
from weft.model.kernel.reported import AddressInfo, LinkInfo, RouteInfo

# So many answers are decoded before the event loop gets a turn: about 1.5 ms.
_SLICE: Final = 250
_PROTOCOL_AT: Final = 5  # rtm_protocol in struct rtmsg
_NOTHING: Final[Objects] = {}
_NO_DEVICES: Final[Devices] = {}

_Keep = Callable[[Object], None]


def observe(rtnl: Rtnl, *, devices: Devices = _NO_DEVICES, sysctls: Iterable[str] = ()) -> Snapshot:
    return at_once(looking(rtnl, devices=devices, sysctls=sysctls))


def looking(
    rtnl: Rtnl,
    *,
    devices: Devices = _NO_DEVICES,
    sysctls: Iterable[str] = (),
    known: Objects = _NOTHING,
    peers: bool = True,
) -> Slices[Snapshot]:
    """Look in slices; without `peers` not at what serves them, of which there may be thousands.

    Ours are devices that carry our alias or are in `devices`, all permanent things on them, links that pods share, and
    routes with our protocol number in any table. `sysctls` are the calling thread's namespace's. An object that equals
    one in `known` is not copied.
    """
    links = rtnl.links()
    names = {link.index: link.name for link in links}
    ours: dict[Key, Object] = {}
    for link in links:
        shared = codec.decode_node_link(link)
        if shared is not None:
            ours[shared.key] = shared
    mine = [link for link in links if is_ours(link, devices)]
    for link in mine:
        device = codec.decode_link(link, names, devices)
        ours[device.key] = device
    yield
    addresses = rtnl.addresses()
    _addresses(addresses, {link.index: link.name for link in mine}, ours)
    yield
    keep = partial(_keep, ours, known) if peers else None
    if keep is not None:
        for link in mine:
            yield from _on_device(rtnl, link, keep)
    foreign = yield from _routes(rtnl, names, keep)
    for name in sysctls:
        value = sysctl.read(name)
        if value is not None:
            ours["sysctl", name] = Sysctl(name=name, value=value)
    return Snapshot(links=tuple(links), addresses=tuple(addresses), routes=tuple(foreign), ours=ours)


def is_ours(link: LinkInfo, devices: Devices) -> bool:
    """By its alias, or by its name where it is of the kind in `devices`."""
    kind = devices.get(link.name)
    return link.alias == codec.VTEP_ALIAS or (kind is not None and kind.kind == link.kind)


def _addresses(addresses: Iterable[AddressInfo], mine: codec.Names, ours: dict[Key, Object]) -> None:
    for info in addresses:
        dev = mine.get(info.index)
        if dev is not None:
            key, address = codec.decode_address(info, dev)
            if address is not None:
                ours[key] = address


def _keep(ours: dict[Key, Object], known: Objects, thing: Object) -> None:
    before = known.get(thing.key, thing)
    kept = before if before == thing else thing
    ours[kept.key] = kept


def _on_device(rtnl: Rtnl, link: LinkInfo, keep: _Keep) -> Slices[None]:
    for bodies in _slices(rtnl.dump(*neigh.list_neighbours(socket.AF_UNSPEC, link.index))):
        for body in bodies:
            _, neighbour = codec.decode_neighbour(body, link.name)
            if neighbour is not None:
                keep(neighbour)
        yield
    for bodies in _slices(rtnl.dump(*neigh.list_fdb(link.index))):
        for body in bodies:
            _, entry = codec.decode_fdb(body, link.name)
            if entry is not None:
                keep(entry)
        yield


def _routes(rtnl: Rtnl, names: codec.Names, keep: _Keep | None) -> Slices[list[RouteInfo]]:
    """All tables of both families: `keep` gets ours; others' in the main table are returned."""
    foreign: list[RouteInfo] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        for bodies in _slices(rtnl.dump(*route.list_routes(family))):
            for body in bodies:
                if body[0] != family:
                    continue  # a kernel without IPv6 lists IPv4 instead
                if body[_PROTOCOL_AT] == PROTOCOL:
                    if keep is not None and (thing := codec.decode_route(body, names)[1]) is not None:
                        keep(thing)
                else:
                    info = route.parse_route(body)
                    if info.table == MAIN_TABLE:
                        foreign.append(info)
            yield
    return foreign


def _slices(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield in slices; the first is empty because listing already took a while."""
    rest = iter(bodies)
    yield []
    while part := list(islice(rest, _SLICE)):
        yield part
