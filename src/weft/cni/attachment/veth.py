"""The pair of links that joins a container to the host: making it, and finding the host's end again."""

import errno
from contextlib import suppress
from typing import Final

from weft.cni.attachment.interface import reason
from weft.cni.host.host import RETIRED, Container
from weft.cni.sdk import record
from weft.cni.sdk.record import Record
from weft.cni.sdk.startup import Call
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.attachment import Attachment, Interface, Result
from weft.model.kernel.marks import POD_ALIAS
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Mac
from weft.wire.cni import failure

_NAME_ATTEMPTS: Final = 10


def new_name(call: Call) -> str:
    return f"veth{call.host.random(4).hex()}"


def make(call: Call, container: Container, *, mtu: int, mac: Mac | None = None) -> tuple[LinkInfo, str]:
    """Return the container's end, whose `link` is the host's, and the host's name."""
    name = ""
    for _ in range(_NAME_ATTEMPTS):
        name = new_name(call)
        try:
            made = container.rtnl.add_veth(call.ifname, peer=name, peer_netns_fd=call.host.netns_fd, mtu=mtu, mac=mac)
        except NetlinkError as error:
            if error.errno != errno.EEXIST:
                with suppress(NetlinkError):  # it may have been made all the same; nobody else has this random name
                    if (end := call.host.rtnl.link(name)) is not None:
                        call.host.rtnl.delete_link(end.index)
                raise failure(f"failed to make veth pair: {reason(error)}") from error
            if container.rtnl.link(call.ifname) is not None:
                taken = f'container veth name ("{call.ifname}") peer provided ("{name}") already exists'
                raise failure(taken) from error
        else:
            return made, name
    raise failure(f"failed to make veth pair: no free name after {_NAME_ATTEMPTS} attempts, the last was {name}")


def refuse_second(call: Call, container: Container) -> None:
    """Refuse an ADD of what is attached in another namespace: undoing this one would take rules and records of that."""
    known = record.read(call)
    if not recorded_end(call.host.rtnl, call.attachment, known):
        return
    if container.rtnl.link(call.ifname) is None:
        who = f"{call.ifname} of container {call.container_id}"
        raise failure(
            f"{who} is attached to network {call.network} already, and not in {call.netns}",
            f"CNI-003: its host end {known.veth} leads to another namespace, which lives; DEL ends that attachment",
        )


def container_interface(call: Call, link: LinkInfo) -> Interface:
    return Interface(name=call.ifname, mac=str(link.mac or ""), sandbox=call.netns)


def peer_of(rtnl: Rtnl, link: LinkInfo) -> LinkInfo | None:
    """Return the other end, in the namespace of `rtnl`, of a veth that is elsewhere; None if it is not there."""
    if link.kind != "veth":
        return None
    peer = rtnl.link(link.link)
    # The index alone proves nothing: it may belong to a link of yet another namespace. The two must name each other.
    proven = peer is not None and peer.kind == "veth" and peer.link == link.index and peer.peer_netns != -1
    return peer if proven else None


def is_unused(call: Call, container: Container, link: LinkInfo) -> bool:
    """True for a pair that was made and no more: a call ended before it wrote its record."""
    peer = peer_of(call.host.rtnl, link)
    used = peer is None or peer.alias or peer.master or peer.up or link.up or container.rtnl.addresses(link.index)
    return not used


def own_end(call: Call, *, later: bool = False) -> LinkInfo | None:
    """Return the container's end in DEL; None if it is gone, or another attachment's.

    A late DEL's path may lead to another container by now. For a `later` plugin of a chain, an interface that its
    container has in any network is its own.
    """
    container = call.container_if_any()
    link = container.rtnl.link(call.ifname) if container is not None else None
    if container is None or link is None:
        return None
    peer = peer_of(call.host.rtnl, link)
    known = record.read(call)
    if peer is not None and peer.alias.startswith(POD_ALIAS):
        anothers = peer.alias != record.alias_of(call.attachment)
        if anothers and later:
            holder = record.of_key(call.host, record.LINKS, peer.alias.removeprefix(POD_ALIAS))
            anothers = holder is None or holder.container_id != call.container_id
    elif recorded_end(call.host.rtnl, call.attachment, known):
        anothers = link.kind != "veth" or link.link != known.index
    else:
        anothers = _is_unlike(call, container, link)
    if anothers:
        call.note(f"{call.request.plugin}: {call.netns} is another container's by now: its {call.ifname} stays")
    return None if anothers else link


def _is_unlike(call: Call, container: Container, link: LinkInfo) -> bool:
    """Tell whether an interface that we have not made is another attachment's, by ADD's result or by host-local."""
    has = {seen.ip for seen in container.rtnl.addresses(link.index)}
    result = call.previous_if_any() or Result()
    told = [one.mac for one in result.interfaces if one.name == call.ifname and one.sandbox and one.mac]
    if told and result.ips and str(link.mac) not in told and has.isdisjoint(ip.address.ip for ip in result.ips):
        return True
    holders = {holder for ip in has if (holder := call.build.holder(call, ip)) is not None}
    return bool(holders) and (call.container_id, call.ifname) not in holders


def is_anothers_namespace(call: Call, container: Container) -> bool:
    aliases = (peer.alias for link in container.rtnl.links() if (peer := peer_of(call.host.rtnl, link)) is not None)
    keys = (alias.removeprefix(POD_ALIAS) for alias in aliases if alias.startswith(POD_ALIAS))
    found = (record.of_key(call.host, record.LINKS, key) for key in keys)
    return any(one is not None and one.container_id != call.container_id for one in found)


def recorded_end(rtnl: Rtnl, attachment: Attachment, known: Record) -> int:
    """Return the index of the end that our record names, 0 if it is not provably this attachment's."""
    end = rtnl.link(known.index) if known.index else None
    # Without an alias its ADD was cut short; the name, made by chance, and the index are ours all the same.
    aliases = ("", record.alias_of(attachment), RETIRED)
    ours = end is not None and end.name == known.veth and end.alias in aliases
    return known.index if ours else 0
