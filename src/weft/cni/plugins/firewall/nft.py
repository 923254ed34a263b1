"""firewall's rules as elements of our own nf_tables sets: one transaction for an attachment, and no program.

`nft` is started once on a node, when the table is missing. What table and elements are, `cni.plugins.firewall.sets`
decides.
"""

from collections.abc import Callable, Sequence
from typing import Final

from weft.cni.host import programs
from weft.cni.plugins.firewall import sets
from weft.cni.sdk.host import Host
from weft.kernel.netfilter.nfnetlink import NfSocket, Table, add_element, delete_element
from weft.kernel.rtnetlink.netlink import Message, NetlinkError
from weft.model.net import Ip
from weft.model.nftset import Element
from weft.wire.cni import CniError, failure

TABLE: Final = Table(*sets.TABLE)

# Each failed one was overtaken by somebody else's change.
_ATTEMPTS: Final = 8
_PODS: Final = ("pods4", "pods6")


def add(host: Host, addresses: Sequence[Ip], comment: str) -> None:
    """Let these addresses be forwarded to and from. May be repeated."""
    wanted = sets.elements(addresses, comment)
    # An address is one pod's at a time: one that stands for another pod is left over from a dead one.
    _change(host, lambda nf: [message for element in wanted for message in _put(nf, element)])


def remove(host: Host, is_unwanted: Callable[[str], bool]) -> int:
    """Take away the addresses whose comment is unwanted. Returns how many there were."""
    found: list[Element] = []

    def look(nf: NfSocket) -> list[Message]:
        found[:] = [one for name in _PODS for one in nf.elements(TABLE, name) if is_unwanted(one.comment)]
        return _deletions(found)

    _change(host, look, makes=False)
    return len(found)


def missing(host: Host, addresses: Sequence[Ip], comment: str) -> str:
    """Return the first thing that these addresses lack, in words; empty if nothing."""
    nf = _socket(host)
    for element, address in zip(sets.elements(addresses, comment), addresses, strict=True):
        present = nf.element(TABLE, element.set, element.key)
        if present != element:
            found = f'found with comment "{present.comment}"' if present else "not found"
            return f"expected element {address} of set {element.set} in table {TABLE} {found}"
    present_rules = nf.comments(TABLE)
    for chain, note in sets.rule_comments():
        if (chain, note) not in present_rules:
            return f'expected rule "{note}" not found in chain {chain} of table {TABLE}'
    return ""


def guard(host: Host, bridge: str, *, isolated: bool) -> None:
    """Keep pods of other guarded bridges from this one's, and its own from each other if they are `isolated`.

    A bridge that is isolated once stays so, as with upstream: the stricter of two networks counts.
    """
    _change(host, lambda nf: _guarding(nf, bridge, isolated=isolated))


def missing_guard(host: Host, bridge: str) -> str:
    """Return what keeps a bridge from being guarded; empty if nothing."""
    element = sets.guard(bridge)
    if _socket(host).element(TABLE, element.set, element.key) is not None:
        return ""
    return f"expected element {bridge} of set {element.set} in table {TABLE} not found"


def unguard(host: Host, is_gone: Callable[[str], bool]) -> None:
    """Take away what was made for bridges that are gone."""
    names = (sets.BRIDGES, sets.WITHIN)
    _change(
        host,
        lambda nf: _deletions(
            [one for name in names for one in nf.elements(TABLE, name) if is_gone(sets.bridge_of(one))]
        ),
        makes=False,
    )


def _guarding(nf: NfSocket, bridge: str, *, isolated: bool) -> list[Message]:
    guard, within = sets.guard(bridge), sets.allow_within(bridge)
    is_guarded = nf.element(TABLE, guard.set, guard.key) is not None
    messages = [] if is_guarded else [add_element(TABLE, guard)]
    if isolated and nf.element(TABLE, within.set, within.key) is not None:
        messages.append(delete_element(TABLE, within))
    elif not isolated and not is_guarded:
        messages += _put(nf, within)
    return messages


def _put(nf: NfSocket, element: Element) -> list[Message]:
    present = nf.element(TABLE, element.set, element.key)
    if present == element:
        return []
    removal = [] if present is None else [delete_element(TABLE, element)]
    return [*removal, add_element(TABLE, element)]


def _deletions(elements: Sequence[Element]) -> list[Message]:
    return [delete_element(TABLE, element) for element in elements]


def _change(host: Host, look: Callable[[NfSocket], list[Message]], *, makes: bool = True) -> None:
    """Carry out what `look` finds to be right, until it holds; `makes`: in a table that is made if it is missing."""
    nf = _socket(host)
    refused: dict[int, NetlinkError] = {}
    for _ in range(_ATTEMPTS):
        if makes:
            _complete_frame(nf)
        refused = nf.transaction(look(nf))
        if not refused:
            return
    raise failure(f"table {TABLE} keeps changing: {next(iter(refused.values()))}")


def _complete_frame(nf: NfSocket) -> None:
    if nf.sets(TABLE):
        return
    try:
        programs.run("nft", "-f", "-", stdin="".join(f"{line}\n" for line in sets.frame()))
    except CniError as error:
        if not nf.sets(TABLE):  # else somebody else was quicker
            raise failure(f"table {TABLE} cannot be made: {error.msg}", error.details) from error


def _socket(host: Host) -> NfSocket:
    try:
        return host.netfilter
    except OSError as error:
        raise failure(f"the kernel has no nf_tables: {error}") from error
