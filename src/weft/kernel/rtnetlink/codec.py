"""Objects of `model.kernel` as rtnetlink messages, and back. Decoders raise `Malformed`.

Decoding tells three cases apart: not ours (None), ours and right (the object), ours but changed beyond what the model
can hold. The last gives an object that equals nothing wanted, so that the diff repairs it: a route without a way out,
an FDB entry with an unspecified remote, a link with MTU 0 (repaired) or of no kind (replaced).
"""

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any, Final

from weft.kernel.rtnetlink import addr, neigh, route
from weft.kernel.rtnetlink.attributes import Attributes, Malformed, address, attribute, be16, fixed, parse, u8, u16, u32
from weft.kernel.rtnetlink.netlink import Message
from weft.model.kernel.links import Attribute, Link, NodeLink
from weft.model.kernel.marks import ALIAS, BRIDGE_ALIAS, GATEWAY_ALIAS, PROTOCOL
from weft.model.kernel.objects import Address, FdbEntry, Key, Neighbour, Route
from weft.model.kernel.reported import NUD_PERMANENT, AddressInfo, LinkInfo
from weft.model.net import number_of

VTEP_ALIAS: Final = f"{ALIAS}vtep"
Names = Mapping[int, str]
Devices = Mapping[str, type[Link]]  # the names of this daemon's devices, and what each is
Plain = Address | Route | Neighbour | FdbEntry

_NOWHERE: Final = IPv4Address(0)
_IPV6_PRIORITY: Final = 1024  # IP6_RT_PRIO_USER: what the kernel makes of priority 0
# What the kernel says of a route as we make it, the last two of IPv6; anything more was added by someone.
_PLAIN_ROUTE: Final = frozenset(
    (
        *(route.RTA_DST, route.RTA_OIF, route.RTA_GATEWAY, route.RTA_VIA, route.RTA_PRIORITY, route.RTA_TABLE),
        *(route.RTA_CACHEINFO, route.RTA_PREF, route.RTA_PREFSRC, route.RTA_METRICS),
    )
)
_PLAIN_STATE: Final = (NUD_PERMANENT, neigh.NTF_SELF)
_DETOURS: Final = frozenset((neigh.NDA_PORT, neigh.NDA_VNI, neigh.NDA_IFINDEX))
_NUMBERS = {"u8": u8, "u16": u16, "u32": u32, "be16": be16}


def encode(thing: Plain, index: int) -> Message:
    """The message replaces what has the key of `thing`."""
    match thing:
        case Route():
            return _encode_route(thing, index)
        case Neighbour():
            return neigh.add_neighbour(index, thing.ip, thing.mac, protocol=PROTOCOL)
        case FdbEntry():
            return neigh.add_fdb(index, thing.mac, thing.remote)
        case Address():
            return addr.add_address(index, thing.ip, thing.prefixlen, replace=True, nodad=True)


def _encode_route(thing: Route, index: int) -> Message:
    return route.add_route(
        thing.dst,
        via=thing.via,
        index=index,
        onlink=thing.onlink,
        kind=route.RTN_BLACKHOLE if thing.blackhole else route.RTN_UNICAST,
        table=thing.table,
        scope=thing.scope if thing.via is not None else None,
        src=thing.source,
        mtu=thing.mtu,
        priority=thing.priority,
        protocol=PROTOCOL,
        mode="replace",
    )


def encode_removal(thing: Plain, index: int, *, anyones: bool = False) -> Message:
    """`anyones` includes a route that is not ours."""
    match thing:
        case Route():
            priority = thing.priority or (_IPV6_PRIORITY if thing.dst.version == 6 else 0)
            protocol = 0 if anyones else PROTOCOL
            return route.delete_route(thing.dst, table=thing.table, priority=priority, protocol=protocol)
        case Neighbour():
            return neigh.delete_neighbour(index, thing.ip)
        case FdbEntry():
            return neigh.delete_fdb(index, thing.mac)
        case Address():
            return addr.delete_address(index, thing.ip, thing.prefixlen)


def decode_route(body: bytes, names: Names) -> tuple[Key, Route | None]:
    """The route is None if it lacks our protocol number."""
    family, prefixlen, _, tos, short_table, protocol, scope, kind, flags = fixed(route.RTMSG, body)
    attrs = parse(body, route.RTMSG.size)
    dst = route.destination(family, prefixlen, attrs.get(route.RTA_DST))
    table = attrs.number(route.RTA_TABLE) or short_table
    priority = attrs.number(route.RTA_PRIORITY) or 0
    if priority == _IPV6_PRIORITY and dst.version == 6:
        priority = 0
    thing: Route | None
    if protocol != PROTOCOL or tos:
        thing = None
    elif kind == route.RTN_BLACKHOLE:
        thing = Route(dst=dst, blackhole=True, table=table, priority=priority)
    elif kind != route.RTN_UNICAST or not attrs.keys() <= _PLAIN_ROUTE or (mtu := _mtu(attrs)) is None:
        thing = Route(dst=dst, table=table, priority=priority)
    else:
        via = route.gateway(attrs)
        thing = Route(
            dst=dst,
            via=via,
            dev=names.get(attrs.number(route.RTA_OIF) or 0, ""),
            onlink=bool(flags & route.RTNH_F_ONLINK),
            table=table,
            priority=priority,
            scope=scope if via is not None else 0,  # without a gateway there is one that fits
            source=attrs.ip(route.RTA_PREFSRC),
            mtu=mtu,
        )
    return ("route", table, number_of(dst.network_address), prefixlen, priority), thing


def _mtu(attrs: Attributes) -> int | None:
    """0 without one, None for a route with other metrics."""
    if route.RTA_METRICS not in attrs:
        return 0
    metrics = attrs.nest(route.RTA_METRICS)
    return metrics.number(route.RTAX_MTU) if metrics.keys() == {route.RTAX_MTU} else None


def decode_neighbour(body: bytes, dev: str) -> tuple[Key, Neighbour | None]:
    """The neighbour is None if it is not permanent."""
    _, _, state, _, _ = fixed(neigh.NDMSG, body)
    attrs = parse(body, neigh.NDMSG.size)
    mac = attrs.mac(neigh.NDA_LLADDR)
    ip = address(attrs.get(neigh.NDA_DST, b""))
    thing = Neighbour(dev=dev, ip=ip, mac=mac) if mac is not None and state == NUD_PERMANENT else None
    return ("neighbour", dev, number_of(ip)), thing


def decode_fdb(body: bytes, dev: str) -> tuple[Key, FdbEntry | None]:
    """The entry is None if it was learnt.

    An entry that we would not make (another port, a state that `bridge fdb` gives) has an unspecified remote. A unicast
    MAC has one remote; the several that the zero MAC may have share one key.
    """
    _, _, state, flags, _ = fixed(neigh.NDMSG, body)
    attrs = parse(body, neigh.NDMSG.size)
    mac = attrs.mac(neigh.NDA_LLADDR)
    if mac is None:
        raise Malformed("a forwarding entry without a MAC address")
    key: Key = ("fdb", dev, mac)
    if not state & NUD_PERMANENT:
        return key, None
    remote = attrs.ip(neigh.NDA_DST)
    if remote is None or (state, flags) != _PLAIN_STATE or not _DETOURS.isdisjoint(attrs):
        remote = _NOWHERE
    return key, FdbEntry(dev=dev, mac=mac, remote=remote)


def decode_address(info: AddressInfo, dev: str) -> tuple[Key, Address | None]:
    """The address is None unless it is global and permanent."""
    ours = info.scope == 0 and info.permanent and info.peer is None and not (info.dad_failed or info.temporary)
    thing = Address(dev=dev, ip=info.ip, prefixlen=info.prefixlen) if ours else None
    return ("address", dev, number_of(info.ip), info.prefixlen), thing


def decode_node_link(info: LinkInfo) -> NodeLink | None:
    """A link that the node's pods share, by its alias; None for any other."""
    return NodeLink(name=info.name, up=info.up) if info.alias in (BRIDGE_ALIAS, GATEWAY_ALIAS) else None


def decode_link(info: LinkInfo, names: Names, devices: Devices) -> Link:
    """A device of ours, by its alias or its name in `devices`."""
    finished = info.up and info.alias == VTEP_ALIAS
    mtu = info.mtu if finished else 0
    kind = devices.get(info.name)
    own = decode_data(kind, info.data) if kind is not None and kind.kind == info.kind else None
    if kind is None or own is None:
        return Link(name=info.name, mtu=mtu)
    parent_name = names.get(own.get("parent", 0), "")
    return kind(name=info.name, mtu=mtu, mac=info.mac if kind.has_mac else None, parent_name=parent_name, **own)


def encode_data(thing: Link, *, live: bool = False) -> bytes:
    """IFLA_INFO_DATA by the table of the class; with `live`, what can change on an existing device."""
    return b"".join(_encode(each, getattr(thing, each.name)) for each in thing.attributes if each.live or not live)


def decode_data(kind: type[Link], data: bytes) -> dict[str, Any] | None:
    """None if the device has what none of ours has. Raises `Malformed`."""
    found = parse(data)
    if any(_is_set(found, number) for number in kind.foreign):
        return None
    fields: dict[str, Any] = {}
    for each in kind.attributes:
        if each.number in found or each.name not in fields:
            fields[each.name] = _decode(each, found)
    return fields


def _encode(each: Attribute, value: Any) -> bytes:
    if each.form == "flag":
        return attribute(each.number, b"") if value else b""
    if each.form in ("ip4", "ip6"):
        return attribute(each.number, value.packed) if each.form == f"ip{value.version}" else b""
    return _NUMBERS[each.form](each.number, value)


def _decode(each: Attribute, found: Attributes) -> Any:
    if each.form == "flag":
        return each.number in found
    if each.form in ("ip4", "ip6"):
        return found.ip(each.number)
    if each.form == "be16":
        return found.network_number(each.number) or 0
    return found.number(each.number) or 0


def _is_set(found: Attributes, number: int) -> bool:
    """Some attributes are there even when they say no; a mere presence says yes."""
    value = found.get(number)
    return value is not None and (not value or any(value))
