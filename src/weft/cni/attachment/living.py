"""The attachments that live on this node, as the kernel has them, for a daemon that has not seen them begin."""

from weft.cni.host.host import Host
from weft.cni.sdk import record
from weft.desired.policy.inputs import Attached
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.kernel.marks import POD_ALIAS


def attachments(host: Host) -> dict[str, Attached]:
    """By their keys. Those whose namespace cannot be looked into are left out: they are going.

    So are those whose record is lost: nobody knows which policies hold for them, so all is refused to their addresses.
    """
    rtnl, found = host.rtnl, dict[str, Attached]()
    links = rtnl.links()
    names = {link.index: link.name for link in links}
    for link in links:
        if not link.alias.startswith(POD_ALIAS) or link.peer_netns < 0:
            continue
        try:
            addresses = rtnl.addresses(link.link, netns=link.peer_netns)
        except NetlinkError:
            continue
        key = link.alias.removeprefix(POD_ALIAS)
        if record.of_key(host, record.LINKS, key) is None:
            continue
        found[key] = Attached(
            pod=record.pod_of_key(host, key),
            ips=tuple(each.ip for each in addresses if not (each.ip.is_loopback or each.ip.is_link_local)),
            port=link.name,
            link=names.get(link.master, link.name),
        )
    return found
