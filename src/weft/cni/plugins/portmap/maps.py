"""Port maps in our own nf_tables maps: one attachment's elements are put there, removed and checked (settled.md §8).

Podman gives each network of a container all of its ports. One attachment holds a port, and when it goes another one
takes it over. Which of them share is kept under the container while they do: a request for a container that shares
nothing reads no file for it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from weft.cni.attachment import owners
from weft.cni.host import nftsets
from weft.cni.host.host import Host
from weft.cni.host.nftsets import Unusable
from weft.cni.plugins.portmap.conf import PortMap
from weft.cni.plugins.portmap.elements import TABLE, describe, elements, frame, frame_rules, is_of, settle
from weft.cni.sdk import record
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.attachment import Attachment
from weft.model.kernel.nftset import Change, Element
from weft.wire import cnijson
from weft.wire.cnijson import JsonError

_SHARING: Final = "portmap-shared"


def siblings(host: Host, attachment: Attachment) -> set[Attachment]:
    return _members(host, attachment.container_id) - {attachment}


def share(host: Host, attachment: Attachment, holder: Attachment) -> None:
    _keep(host, attachment.container_id, _members(host, attachment.container_id) | {attachment, holder})


def stop_sharing(host: Host, attachment: Attachment) -> set[Attachment]:
    members = _members(host, attachment.container_id)
    if attachment not in members:
        return set()
    rest = members - {attachment}
    _keep(host, attachment.container_id, rest)
    return rest


def _members(host: Host, container_id: str) -> set[Attachment]:
    known = record.look_up(host, _SHARING, _container(container_id))
    if known is None:
        return set()
    try:
        items = cnijson.items(known, "attachments", cnijson.as_object)
        named = [(cnijson.text(item, "network"), cnijson.text(item, "ifname")) for item in items]
    except JsonError:
        return set()
    return {Attachment(network=network, container_id=container_id, ifname=ifname) for network, ifname in named}


def _keep(host: Host, container_id: str, members: set[Attachment]) -> None:
    if not members:
        record.forget(host, _SHARING, _container(container_id))
        return
    listed = [{"network": one.network, "ifname": one.ifname} for one in members]
    record.keep_of(host, _SHARING, _container(container_id), {"attachments": listed})


def _container(container_id: str) -> Attachment:
    """Return what stands for the whole container: no attachment has an empty network."""
    return Attachment(network="", container_id=container_id, ifname="")


def add(host: Host, attachment: Attachment, wanted: PortMap) -> None:
    """All or none. May be repeated. `Taken` if a port is another's, `Unusable`."""
    wanted_elements = _elements(attachment, wanted)

    def change(element: Element, present: Element | None) -> Sequence[Change]:
        return settle(element, present, owners.owner_of(attachment), _siblings(host, attachment))

    complete = partial(frame, needed={element.set for element in wanted_elements})
    nftsets.put(nftsets.opened(host), TABLE, wanted_elements, change, complete)


def remove(host: Host, attachment: Attachment, wanted: PortMap | None) -> None:
    """Unmap the ports; with None they are looked for in all maps."""
    owner = owners.owner_of(attachment)
    try:
        nf = nftsets.opened(host)
    except Unusable:
        return
    if wanted is None:
        remove_all(nf, lambda comment: comment.startswith(owner))
    else:
        ours = _elements(attachment, wanted)

        def present() -> list[Element]:
            found = [nf.element(TABLE, element.set, element.key) for element in ours]
            return [element for element in found if element is not None and is_of(element, owner)]

        nftsets.remove(nf, TABLE, present)


def remove_all(nf: NfSocket, unwanted: Callable[[str], bool]) -> int:
    return nftsets.remove(nf, TABLE, lambda: [element for element in listed(nf) if unwanted(element.comment)])


def listed(nf: NfSocket) -> list[Element]:
    return [element for name in sorted(nf.sets(TABLE)) for element in nf.elements(TABLE, name)]


def missing(host: Host, attachment: Attachment, wanted: PortMap) -> str:
    try:
        nf = nftsets.opened(host)
    except Unusable as error:
        return str(error)
    expected = _elements(attachment, wanted)
    for element in expected:
        present = nf.element(TABLE, element.set, element.key)
        if present != element and not (
            present and any(is_of(present, sibling) for sibling in _siblings(host, attachment))
        ):
            found = f"found {describe(present)} ({present.comment})" if present else "not found"
            return f"{describe(element)}: {found} in map {element.set} of table {TABLE}"
    lost = nftsets.missing_rule(nf, TABLE, frame_rules({element.set for element in expected}))
    return f'rule "{lost.text}" not found in chain {lost.chain} of table {TABLE}' if lost else ""


def _elements(attachment: Attachment, wanted: PortMap) -> tuple[Element, ...]:
    return elements(wanted, owners.comment_of(attachment))


def _siblings(host: Host, attachment: Attachment) -> tuple[str, ...]:
    return tuple(owners.owner_of(sibling) for sibling in siblings(host, attachment))
