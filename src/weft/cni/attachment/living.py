"""The attachments that live on this node, by links and records, for a daemon that has not seen them begin."""

from typing import Final

from weft.cni.host.host import Host
from weft.cni.sdk import record
from weft.desired.policy.inputs import Attached
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.kernel.marks import POD_ALIAS
from weft.model.net import Ip

_UNKNOWN: Final = "?/?"  # no pod has this name


def attachments(host: Host) -> dict[str, Attached]:
    """By their keys. Those whose namespace cannot be looked into are left out: they are going.

    Of those whose record is lost nobody knows which policies hold for them: they have no address and no known pod, so
    that all is refused.
    """
    rtnl, found = host.rtnl, dict[str, Attached]()
    links = rtnl.links()
    names = {link.index: link.name for link in links}
    for link in links:
        if not link.alias.startswith(POD_ALIAS) or link.peer_netns < 0:
            continue
        try:
            seen = tuple(each.ip for each in rtnl.addresses(link.link, netns=link.peer_netns))
        except NetlinkError:
            continue
        key = link.alias.removeprefix(POD_ALIAS)
        kept = record.links_of_key(host, key)
        found[key] = Attached(
            pod=_UNKNOWN if kept is None else kept.pod,
            uid="" if kept is None else kept.uid,
            ips=() if kept is None else _addresses(host, key, seen),
            port=link.name,
            link=names.get(link.master, link.name),
        )
    return found


def _addresses(host: Host, key: str, seen: tuple[Ip, ...]) -> tuple[Ip, ...]:
    """Those that it was given, where that was kept: a pod may give itself any."""
    return record.given_to_key(host, key) or tuple(ip for ip in seen if not (ip.is_loopback or ip.is_link_local))
