"""Host ports that several attachments of one container are given: podman repeats all ports for each network.

One of them holds the port, and when it goes another one takes it over. Which of a container's attachments share is
kept under the container, from the first time that one finds a port held by another until they are gone: a request
for a container that shares nothing reads no file for it.
"""

from typing import Final

from weft.cni.sdk import record
from weft.cni.sdk.host import Host
from weft.model.attachment import Attachment
from weft.wire import cnijson
from weft.wire.cnijson import JsonError, Object

_SUBJECT: Final = "portmap-shared"


def siblings(host: Host, attachment: Attachment) -> set[Attachment]:
    """Return the other attachments of the container that share ports with this one."""
    return _members(host, attachment.container_id) - {attachment}


def join(host: Host, attachment: Attachment, holder: Attachment) -> None:
    """Remember that the two share; both are of one container."""
    _keep(host, attachment.container_id, _members(host, attachment.container_id) | {attachment, holder})


def leave(host: Host, attachment: Attachment) -> set[Attachment]:
    """Forget this one's share; return those that remain."""
    members = _members(host, attachment.container_id)
    if attachment not in members:
        return set()
    rest = members - {attachment}
    _keep(host, attachment.container_id, rest)
    return rest


def _members(host: Host, container_id: str) -> set[Attachment]:
    known = record.look_up(host, _SUBJECT, _container(container_id))
    if known is None:
        return set()
    try:
        return {_member(container_id, item) for item in cnijson.items(known, "attachments", cnijson.as_object)}
    except JsonError:
        return set()


def _member(container_id: str, item: Object) -> Attachment:
    network, ifname = cnijson.text(item, "network"), cnijson.text(item, "ifname")
    return Attachment(network=network, container_id=container_id, ifname=ifname)


def _keep(host: Host, container_id: str, members: set[Attachment]) -> None:
    if not members:
        record.forget(host, _SUBJECT, _container(container_id))
        return
    listed = [{"network": one.network, "ifname": one.ifname} for one in members]
    record.keep_of(host, _SUBJECT, _container(container_id), {"attachments": listed})


def _container(container_id: str) -> Attachment:
    """Return what stands for the whole container: no attachment has an empty network."""
    return Attachment(network="", container_id=container_id, ifname="")
