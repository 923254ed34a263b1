"""Port maps as elements of our own nf_tables maps (settled.md §8). What elements and frame are, `elements` decides.

A comment says whose an element is, in the way of upstream's masquerading table.
"""

from collections.abc import Callable, Sequence
from functools import partial

from weft.cni.attachment import owners
from weft.cni.host import nftsets
from weft.cni.host.nftsets import Unusable
from weft.cni.plugins.portmap import elements as portmap
from weft.cni.plugins.portmap import shared
from weft.cni.plugins.portmap.elements import TABLE
from weft.cni.plugins.portmap.ports import PortMap
from weft.cni.sdk.host import Host
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.attachment import Attachment
from weft.model.kernel.nftset import Change, Element


def add(host: Host, attachment: Attachment, wanted: PortMap) -> None:
    """Map the ports, all or none. May be repeated. `Taken` if a port is another's, `Unusable`.

    Those that an attachment of the same container has, with which this one shares them, are left to it.
    """
    elements = _elements(attachment, wanted)

    def settle(element: Element, present: Element | None) -> Sequence[Change]:
        return portmap.settle(element, present, owners.owner_of(attachment), _siblings(host, attachment))

    frame = partial(portmap.frame, needed={element.set for element in elements})
    nftsets.put(nftsets.opened(host), TABLE, elements, settle, frame)


def remove(host: Host, attachment: Attachment, wanted: PortMap | None) -> None:
    """Unmap the ports; those of an attachment of which nothing else is known (None) are looked for in all maps."""
    owner = owners.owner_of(attachment)
    try:
        nf = nftsets.opened(host)
    except Unusable:
        return
    if wanted is None:
        remove_all(nf, lambda comment: comment.startswith(owner))
    else:
        nftsets.remove(nf, TABLE, lambda: _present(nf, _elements(attachment, wanted), owner))


def remove_all(nf: NfSocket, unwanted: Callable[[str], bool]) -> int:
    """Remove the elements whose comments are unwanted. Returns how many there were."""
    return nftsets.remove(nf, TABLE, lambda: [element for element in listed(nf) if unwanted(element.comment)])


def listed(nf: NfSocket) -> list[Element]:
    """List all elements of all maps and sets."""
    return [element for name in sorted(nf.sets(TABLE)) for element in nf.elements(TABLE, name)]


def missing(host: Host, attachment: Attachment, wanted: PortMap) -> str:
    """Return the first thing that an attachment's ports lack, in words; empty if they are whole."""
    try:
        nf = nftsets.opened(host)
    except Unusable as error:
        return str(error)
    elements = _elements(attachment, wanted)
    for element in elements:
        present = nf.element(TABLE, element.set, element.key)
        if present != element and not (
            present and any(portmap.is_of(present, sibling) for sibling in _siblings(host, attachment))
        ):
            found = f"found {portmap.describe(present)} ({present.comment})" if present else "not found"
            return f"{portmap.describe(element)}: {found} in map {element.set} of table {TABLE}"
    lost = nftsets.missing_rule(nf, TABLE, portmap.frame_rules({element.set for element in elements}))
    return f'rule "{lost.text}" not found in chain {lost.chain} of table {TABLE}' if lost else ""


def _elements(attachment: Attachment, wanted: PortMap) -> tuple[Element, ...]:
    return portmap.elements(wanted, owners.comment_of(attachment))


def _siblings(host: Host, attachment: Attachment) -> tuple[str, ...]:
    return tuple(owners.owner_of(sibling) for sibling in shared.siblings(host, attachment))


def _present(nf: NfSocket, elements: Sequence[Element], owner: str) -> list[Element]:
    found = [nf.element(TABLE, element.set, element.key) for element in elements]
    return [element for element in found if element is not None and portmap.is_of(element, owner)]
