"""Port maps as elements of our own nf_tables maps: one transaction for an attachment, and no program (settled.md §8).

`nft` is started once on a node, when the frame is missing. What the elements and the frame are, `elements` decides; a
comment says whose an element is, in the way of upstream's masquerading table.
"""

import errno
from collections.abc import Callable, Sequence
from typing import Final

from weft.cni.attachment import masq
from weft.cni.host import programs
from weft.cni.plugins.portmap import elements as portmap
from weft.cni.plugins.portmap import shared
from weft.cni.plugins.portmap.ports import PortMap
from weft.cni.sdk.host import Host
from weft.kernel.netfilter.nfnetlink import NfSocket, Table, add_element, delete_element
from weft.kernel.rtnetlink.netlink import Message, NetlinkError
from weft.model.attachment import Attachment
from weft.model.nftset import Element
from weft.wire.cni import CniError, failure

TABLE: Final = Table(*portmap.TABLE)

# Each failed one was overtaken by somebody else's change.
_ATTEMPTS: Final = 8


class Unusable(Exception):
    """This host cannot have our maps: no nf_tables in the kernel, or no nft that can make them."""


def owner_of(attachment: Attachment) -> str:
    """Return how the comments of an attachment's elements begin."""
    return masq.nft_comment_of(attachment.network, attachment.ifname, attachment.container_id)[1]


def add(host: Host, attachment: Attachment, wanted: PortMap) -> None:
    """Map the ports, all or none. May be repeated. `Taken` if a port is another's, `Unusable`.

    Those that an attachment of the same container has, with which this one shares them, are left to it.
    """
    owner = owner_of(attachment)
    elements = _elements(attachment, wanted)
    nf = _socket(host)

    def look() -> list[Message]:
        _complete_frame(nf, elements)
        return _settle(nf, elements, owner, _siblings(host, attachment))

    # At first without a look, which is right for every ADD but the odd one.
    _apply(nf, [add_element(TABLE, element) for element in elements], look)


def remove(host: Host, attachment: Attachment, wanted: PortMap | None) -> None:
    """Unmap the ports; those of an attachment of which nothing else is known (None) are looked for in all maps."""
    owner = owner_of(attachment)
    try:
        nf = _socket(host)
    except Unusable:
        return
    if wanted is None:
        remove_all(nf, lambda comment: comment.startswith(owner))
    else:
        _remove(nf, lambda: _present(nf, _elements(attachment, wanted), owner))


def remove_all(nf: NfSocket, unwanted: Callable[[str], bool]) -> int:
    """Remove the elements whose comments are unwanted. Returns how many there were."""
    return _remove(nf, lambda: [element for element in listed(nf) if unwanted(element.comment)])


def listed(nf: NfSocket) -> list[Element]:
    """List all elements of all maps and sets."""
    return [element for name in sorted(nf.sets(TABLE)) for element in nf.elements(TABLE, name)]


def missing(host: Host, attachment: Attachment, wanted: PortMap) -> str:
    """Return the first thing that an attachment's ports lack, in words; empty if they are whole."""
    try:
        nf = _socket(host)
    except Unusable as error:
        return str(error)
    elements = _elements(attachment, wanted)
    for element in elements:
        present = nf.element(TABLE, element.set, element.key)
        if present != element and not (present and _is_shared(host, attachment, present)):
            found = f"found {portmap.describe(present)} ({present.comment})" if present else "not found"
            return f"{portmap.describe(element)}: {found} in map {element.set} of table {TABLE}"
    present_rules = nf.comments(TABLE)
    for rule in portmap.frame_rules({element.set for element in elements}):
        if (rule.chain, rule.comment) not in present_rules:
            return f'rule "{rule.rule}" not found in chain {rule.chain} of table {TABLE}'
    return ""


def _elements(attachment: Attachment, wanted: PortMap) -> tuple[Element, ...]:
    comment, _ = masq.nft_comment_of(attachment.network, attachment.ifname, attachment.container_id)
    return portmap.elements(wanted, comment)


def _socket(host: Host) -> NfSocket:
    try:
        return host.netfilter
    except OSError as error:
        raise Unusable(f"the kernel has no nf_tables: {error}") from error


def _apply(nf: NfSocket, first: list[Message], look: Callable[[], list[Message]]) -> None:
    """Carry out `first`, or what `look` finds to be right instead, until it holds."""
    messages = first
    refused: dict[int, NetlinkError] = {}
    for _ in range(_ATTEMPTS):
        try:
            refused = nf.transaction(messages)
        except NetlinkError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise Unusable(f"the kernel has no nf_tables: {error}") from error
            raise
        if not refused:
            return
        messages = look()
    raise failure(f"table {TABLE} keeps changing: {next(iter(refused.values()))}")


def _is_shared(host: Host, attachment: Attachment, present: Element) -> bool:
    return any(portmap.is_of(present, sibling) for sibling in _siblings(host, attachment))


def _siblings(host: Host, attachment: Attachment) -> tuple[str, ...]:
    return tuple(owner_of(sibling) for sibling in shared.siblings(host, attachment))


def _settle(nf: NfSocket, elements: Sequence[Element], owner: str, siblings: Sequence[str]) -> list[Message]:
    messages = []
    for element in elements:
        present = nf.element(TABLE, element.set, element.key)
        change = portmap.settle(element, present, owner, siblings)
        if change.delete:
            messages.append(delete_element(TABLE, element))
        if change.add:
            messages.append(add_element(TABLE, element))
    return messages


def _complete_frame(nf: NfSocket, elements: Sequence[Element]) -> None:
    needed = {element.set for element in elements}
    lines = portmap.frame(nf.sets(TABLE), needed)
    if not lines:
        return
    try:
        programs.run("nft", "-f", "-", stdin="".join(f"{line}\n" for line in lines))
    except CniError as error:
        # If now something else is missing, somebody was quicker with a part of it: then it is tried again.
        if portmap.frame(nf.sets(TABLE), needed) == lines:
            raise Unusable(f"table {TABLE} cannot be made: {error}") from error


def _present(nf: NfSocket, elements: Sequence[Element], owner: str) -> list[Element]:
    found = [nf.element(TABLE, element.set, element.key) for element in elements]
    return [element for element in found if element is not None and portmap.is_of(element, owner)]


def _remove(nf: NfSocket, look: Callable[[], list[Element]]) -> int:
    found = look()
    _apply(nf, _deletions(found), lambda: _deletions(look()))
    return len(found)


def _deletions(elements: Sequence[Element]) -> list[Message]:
    return [delete_element(TABLE, element) for element in elements]
