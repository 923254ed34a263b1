"""The attachments that live on this node, by links and records, for a daemon that has not seen them begin.

A record of an earlier weft does not say which pod it is of, and one may be lost: what the runtime remembers tells then.
"""

from collections.abc import Iterator
from typing import Final

from weft.cni.host.host import Host
from weft.cni.runtime.cache import Cache
from weft.cni.sdk import record
from weft.cni.sdk.record import Record
from weft.desired.policy.inputs import UNKNOWN, Attached
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.attachment import Attachment
from weft.model.kernel.marks import POD_ALIAS
from weft.model.net import Ip

_CACHE: Final = Cache()


def attachments(host: Host, cache: Cache = _CACHE) -> dict[str, Attached]:
    """Return them by key, without those whose namespace cannot be looked into: they are going.

    An attachment whose owner nobody knows (`UNKNOWN`) has the addresses that are recorded for it, or none. A pod may
    give itself any address, so what is seen in it counts only where no record says its addresses.
    """
    rtnl, found = host.rtnl, dict[str, Attached]()
    links = rtnl.links()
    names = {link.index: link.name for link in links}
    remembered: dict[str, tuple[str, str]] | None = None
    for link in links:
        if not link.alias.startswith(POD_ALIAS) or link.peer_netns < 0:
            continue
        try:
            seen = tuple(each.ip for each in rtnl.addresses(link.link, netns=link.peer_netns))
        except NetlinkError:
            continue
        key = link.alias.removeprefix(POD_ALIAS)
        kept = record.links_of_key(host, key)
        who = _who(kept)
        if who is None:
            remembered = dict(_remembered(cache)) if remembered is None else remembered
            who = remembered.get(key, (UNKNOWN, ""))
        given = record.given_to_key(host, key)
        found[key] = Attached(
            pod=who[0],
            uid=who[1],
            ips=given if kept is None or who[0] == UNKNOWN else given or _recorded(kept) or _usable(seen),
            port=link.name,
            link=names.get(link.master, link.name),
        )
    return found


def _who(kept: Record | None) -> tuple[str, str] | None:
    """Empty for what is no pod of Kubernetes; None where the record does not say."""
    return None if kept is None or not (kept.pod or kept.asked) else (kept.pod, kept.uid)


def _recorded(kept: Record) -> tuple[Ip, ...]:
    """Of an attachment that is masqueraded: other plugins than ours may have given its addresses."""
    return tuple(each.ip for each in kept.addresses)


def _remembered(cache: Cache) -> Iterator[tuple[str, tuple[str, str]]]:
    """What the runtime has called plugins with, by the keys of attachments."""
    for entry in cache.entries().entries:
        conf = entry.conf
        attachment = Attachment(network=entry.network, container_id=conf.container_id, ifname=conf.ifname)
        yield record.key_of(attachment), record.pod_in(dict(conf.args))


def _usable(seen: tuple[Ip, ...]) -> tuple[Ip, ...]:
    return tuple(ip for ip in seen if not (ip.is_loopback or ip.is_link_local))
