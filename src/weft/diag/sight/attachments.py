"""Pods' links: as the kernel shows them from the node, and as runtimes remember them from ADD."""

from collections.abc import Iterable
from contextlib import suppress

from weft.cni.runtime.cache import Cache
from weft.diag.sight.node import Attached, PodEnd
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.reported import AddressInfo, LinkInfo
from weft.wire import cnijson, cniresult
from weft.wire.cni import CniError
from weft.wire.cnicache import Entry


def pods(rtnl: Rtnl, links: Iterable[LinkInfo]) -> dict[str, PodEnd]:
    """By the names of the node's ends. A namespace is asked once for its addresses, which takes 0.1 ms."""
    found, addresses = dict[str, PodEnd](), dict[int, list[AddressInfo]]()
    for link in links:
        if link.kind != "veth" or link.peer_netns < 0 or (end := rtnl.peer_of(link)) is None:
            continue
        if link.peer_netns not in addresses:
            with suppress(OSError):  # the pod has just gone
                addresses[link.peer_netns] = rtnl.addresses(netns=link.peer_netns)
        there = (each for each in addresses.get(link.peer_netns, ()) if each.index == end.index)
        found[link.name] = PodEnd(link=end, addresses=tuple(each.ip for each in there if not each.ip.is_link_local))
    return found


def attached(cache: Cache) -> tuple[Attached, ...]:
    """What cannot be read is left out: a runtime may be writing it, or have its own way to remember."""
    found = list[Attached]()
    for entry in cache.entries().entries:
        with suppress(CniError):
            found.append(_attached(entry))
    return tuple(found)


def _attached(entry: Entry) -> Attached:
    result = cniresult.read(entry.result, cnijson.text(entry.result, "cniVersion"))
    conf, interfaces = entry.conf, result.interfaces
    own = [number for number, each in enumerate(interfaces) if each.sandbox and each.name == conf.ifname]
    return Attached(
        network=entry.network,
        container=conf.container_id,
        pod=dict(conf.args).get("K8S_POD_NAME", ""),
        ifname=conf.ifname,
        hosts=tuple(each.name for each in interfaces if not each.sandbox),
        addresses=tuple(each.address.ip for each in result.ips if each.interface in (None, *own)),
    )
