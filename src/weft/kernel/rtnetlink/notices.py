"""rtnetlink's messages in the terms of the model. Knows no socket and remembers only links.

When a link goes down or loses an IPv4 address, its IPv4 routes go without an RTM_DELROUTE each (IPv6's get theirs). An
IPv6 address that goes is taken out of the routes that had it as their source, without a notice. That is `Lost`. A new
MAC drops all neighbours, with a notice each.
"""

import socket
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from struct import Struct
from typing import Final

from weft.kernel.rtnetlink import addr, codec, link, neigh, route
from weft.kernel.rtnetlink.attributes import fixed, parse
from weft.kernel.rtnetlink.codec import Devices
from weft.kernel.rtnetlink.netlink import NLM_F_REPLACE, Reply
from weft.kernel.rtnetlink.observe import is_ours
from weft.model.kernel.marks import BRIDGE_ALIAS, FORWARDING, GATEWAY_ALIAS, MAIN_TABLE, POD_ALIAS, PROTOCOL
from weft.model.kernel.objects import Key, Object, Objects, Sysctl
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Ip
from weft.model.value import Value

_FAMILY: Final = Struct("=B")  # the first byte of struct ifinfomsg
# What a link that concerns us has in its description: our alias, or that of what pods share.
_VTEP, _BRIDGE, _GATEWAY = codec.VTEP_ALIAS.encode(), BRIDGE_ALIAS.encode(), GATEWAY_ALIAS.encode()
_POD: Final = POD_ALIAS.encode()
RTM_NEWNETCONF: Final = 80
RTM_DELNETCONF: Final = 81
ALL_LINKS: Final = 0xFFFFFFFF  # NETCONFA_IFINDEX_ALL

_NETCONFMSG: Final = Struct("=B3x")  # family
_NETCONFA_IFINDEX: Final = 1
_NETCONFA_FORWARDING: Final = 2
_FAMILIES: Final = {int(socket.AF_INET): 4, int(socket.AF_INET6): 6}


class ObjectChanged(Value, kw_only=False):
    key: Key
    thing: Object | None  # None if it is gone or no longer ours
    port: int = 0  # the netlink port that asked for it; 0 where the kernel does not say, as for links


class Lost(Value, kw_only=False):
    """Whatever sat on the link `dev` is unknown: it went down, went away (with its `index`) or lost an address."""

    dev: str
    index: int


class UplinkChanged(Value, kw_only=False):
    """The link `dev`, its addresses or others' routes on it changed: facts may have to be computed again."""

    dev: str


class AddressMoved(Value, kw_only=False):
    """The address `ip` of this node came, or is `gone`, on any link.

    Not for IPv6 link-local addresses, which come and go with each pod.
    """

    ip: Ip
    gone: bool


class PodCut(Value, kw_only=False):
    """The host's end of a pod's links was deleted (not by DEL), or is no longer a port of `bridge`."""

    key: str  # the attachment's, as in the link's alias
    bridge: str = ""


class Resync(Value, kw_only=False):
    reason: str = ""


Notice = ObjectChanged | Lost | UplinkChanged | AddressMoved | PodCut | Resync


class NoticeReader:
    """Reads messages about the links in `devices` or `uplinks`, or with an alias of ours or of a pod's.

    `devices` are ours whatever their alias, `uplinks` names and indexes of links between nodes; both are read again
    with each message. `ports` are our own netlink sockets'.
    """

    def __init__(self, *, devices: Devices, uplinks: AbstractSet[str | int], ports: AbstractSet[int]) -> None:
        # Of a link that is not ours only what the kernel said of it: each pod's changes a dozen times.
        self._links: dict[int, LinkInfo | bytes] = {}
        self._names: dict[int, str] = {}
        self._devices = devices
        self._uplinks = uplinks
        self._ports = ports
        self._readers: dict[int, Callable[[Reply], Iterator[Notice]]] = {
            link.RTM_NEWLINK: self._new_link,
            link.RTM_DELLINK: self._deleted_link,
            addr.RTM_NEWADDR: self._address,
            addr.RTM_DELADDR: self._address,
            route.RTM_NEWROUTE: self._route,
            route.RTM_DELROUTE: self._route,
            neigh.RTM_NEWNEIGH: self._neighbour,
            neigh.RTM_DELNEIGH: self._neighbour,
            RTM_NEWNETCONF: self._setting,
        }

    def learn(self, links: Iterable[LinkInfo]) -> list[Notice]:
        """Take a complete list of the links, and say what is new of those that pods share."""
        known = {info.index: info for info in links}
        # What was kept as it came is none of them.
        before = _node_links(info for info in self._links.values() if isinstance(info, LinkInfo))
        self._links = {**known}
        self._names = {index: info.name for index, info in known.items()}
        return _changes(before, _node_links(known.values()))

    def read(self, message: Reply) -> Iterator[Notice]:
        """Raises `Malformed`."""
        reader = self._readers.get(message.kind)
        return iter(()) if reader is None else reader(message)

    def _new_link(self, message: Reply) -> Iterator[Notice]:
        if _of_a_port(message):
            return
        index, name = link.index_and_name(message.body)
        if not self._concerns(index, name, message.body):
            bridge = self._bridge_left(index, message.body) if _POD in message.body else ""
            self._links[index], self._names[index] = message.body, name
            if bridge:
                yield PodCut(_pod_key(message.body), bridge)
            return
        before = self._link(index)
        now = link.parse_link(message.body)
        self._links[now.index] = now
        self._names[now.index] = now.name
        if before is not None and before.up and not now.up and self._watched(before):
            yield Lost(before.name, now.index)
        if before is not None and before.name != now.name and is_ours(before, self._devices):
            yield Lost(before.name, now.index)
            yield ObjectChanged(("link", before.name), None)
        if is_ours(now, self._devices):
            yield ObjectChanged(("link", now.name), codec.decode_link(now, self._names, self._devices))
        yield from _changes(_node_links([before] if before is not None else []), _node_links([now]))
        if self._is_uplink(now.index, now.name) and (before is None or _facts(before) != _facts(now)):
            yield UplinkChanged(now.name)

    def _deleted_link(self, message: Reply) -> Iterator[Notice]:
        if _of_a_port(message):
            return
        index, name = link.index_and_name(message.body)
        concerns = self._concerns(index, name, message.body)
        self._links.pop(index, None)
        self._names.pop(index, None)
        if _POD in message.body:
            yield PodCut(_pod_key(message.body))
        if not concerns:
            return
        gone = link.parse_link(message.body)
        if self._watched(gone):
            yield Lost(gone.name, gone.index)
        if is_ours(gone, self._devices):
            yield ObjectChanged(("link", gone.name), None)
        yield from _changes(_node_links([gone]), {})
        if self._is_uplink(gone.index, gone.name):
            yield UplinkChanged(gone.name)

    def _address(self, message: Reply) -> Iterator[Notice]:
        info = addr.parse_address(message.body)
        gone = message.kind == addr.RTM_DELADDR
        if info.ip.version == 4 or not info.ip.is_link_local:
            yield AddressMoved(info.ip, gone)
        on = self._watched_at(info.index)
        if on is None:
            return
        if gone and (info.ip.version == 4 or (info.scope == 0 and is_ours(on, self._devices))):
            yield Lost(on.name, on.index)  # ours too: the kernel changed routes that we did not
        if info.scope != 0:
            return
        if is_ours(on, self._devices) and message.port not in self._ports:
            key, thing = codec.decode_address(info, on.name)
            yield ObjectChanged(key, None if gone else thing, message.port)
        if self._is_uplink(on.index, on.name):
            yield UplinkChanged(on.name)

    def _route(self, message: Reply) -> Iterator[Notice]:
        body = message.body
        gone = message.kind == route.RTM_DELROUTE
        _, prefixlen, _, _, _, protocol, _, _, flags = fixed(route.RTMSG, body)
        if flags & route.RTM_F_CLONED:
            return
        if protocol == PROTOCOL:
            key, thing = codec.decode_route(body, self._names)
            yield ObjectChanged(key, None if gone else thing, message.port)
            return
        if not gone and message.flags & NLM_F_REPLACE:
            # Someone's route took the place of another, perhaps of ours, which gets no notice of its own.
            yield ObjectChanged(codec.decode_route(body, {})[0], None, message.port)
        info = route.parse_route(body)
        name = self._names.get(info.index, "")
        if info.table == MAIN_TABLE and (prefixlen == 0 or self._is_uplink(info.index, name)):
            yield UplinkChanged(name)

    def _setting(self, message: Reply) -> Iterator[Notice]:
        setting = forwarding(message.body)
        if setting is not None:
            yield ObjectChanged(setting.key, setting)

    def _neighbour(self, message: Reply) -> Iterator[Notice]:
        family, index = neigh.family_and_index(message.body)
        on = self._watched_at(index)
        if on is None or not is_ours(on, self._devices):
            return
        decode = codec.decode_fdb if family == socket.AF_BRIDGE else codec.decode_neighbour
        key, thing = decode(message.body, on.name)
        yield ObjectChanged(key, None if message.kind == neigh.RTM_DELNEIGH else thing, message.port)

    def _concerns(self, index: int, name: str, body: bytes) -> bool:
        """Tell whether more than the name of a link matters now, or did until this message."""
        before = self._links.get(index)
        return (
            self._is_uplink(index, name)
            or name in self._devices
            # Where else these bytes come up, a look more does no harm.
            or (_VTEP in body or _BRIDGE in body or _GATEWAY in body)
            or (isinstance(before, LinkInfo) and is_ours(before, self._devices))
            or (isinstance(before, LinkInfo) and codec.decode_node_link(before) is not None)
        )

    def _bridge_left(self, index: int, body: bytes) -> str:
        """The bridge whose port a link was until this message; empty if it was none, or still is."""
        before = self._links.get(index)
        if before is None or link.master(body):
            return ""
        return self._names.get(before.master if isinstance(before, LinkInfo) else link.master(before), "")

    def _link(self, index: int) -> LinkInfo | None:
        known = self._links.get(index)
        if isinstance(known, bytes):
            known = self._links[index] = link.parse_link(known)
        return known

    def _watched_at(self, index: int) -> LinkInfo | None:
        """The link if it is ours or an uplink. Links kept undecoded are never VTEPs, so they are skipped."""
        if isinstance(self._links.get(index), bytes) and not self._is_uplink(index, self._names[index]):
            return None
        info = self._link(index)
        return info if info is not None and self._watched(info) else None

    def _watched(self, info: LinkInfo) -> bool:
        return self._is_uplink(info.index, info.name) or is_ours(info, self._devices)

    def _is_uplink(self, index: int, name: str) -> bool:
        """A renamed uplink is known by its index, a replaced one by its name."""
        return index in self._uplinks or name in self._uplinks


def _node_links(links: Iterable[LinkInfo]) -> Objects:
    found = map(codec.decode_node_link, links)
    return {thing.key: thing for thing in found if thing is not None}


def _changes(before: Objects, after: Objects) -> list[Notice]:
    gone = [ObjectChanged(key, None) for key in before if key not in after]
    return [*gone, *(ObjectChanged(key, thing) for key, thing in after.items() if before.get(key) != thing)]


def _pod_key(body: bytes) -> str:
    return link.parse_link(body).alias.removeprefix(POD_ALIAS)


def _of_a_port(message: Reply) -> bool:
    """Tell whether a bridge sent this message about one of its ports."""
    (family,) = fixed(_FAMILY, message.body)
    return bool(family != socket.AF_UNSPEC)


def _facts(info: LinkInfo) -> tuple[object, ...]:
    """The part of an uplink that decides about anything of ours."""
    return info.name, info.index, info.mtu, info.up, info.mac, info.operstate


def forwarding(body: bytes) -> Sysctl | None:
    """The setting of all links together (linux/netconf.h); None for another setting. Raises `Malformed`."""
    (family,) = fixed(_NETCONFMSG, body)
    attributes = parse(body, _NETCONFMSG.size)
    value = attributes.number(_NETCONFA_FORWARDING)
    if family not in _FAMILIES or value is None or attributes.number(_NETCONFA_IFINDEX) != ALL_LINKS:
        return None
    return Sysctl(name=FORWARDING[_FAMILIES[family]], value="1" if value else "0")
