"""CHECK of what all plugins that make a pair of links share: the container's side and the masquerade."""

from typing import Final

from weft.cni.attachment import compare, masq
from weft.cni.attachment.compare import Wrong
from weft.cni.attachment.conf import MASQ_KINDS
from weft.cni.host import programs
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call
from weft.model.attachment import Cidr, Result
from weft.model.kernel.reported import LinkInfo
from weft.wire import cni
from weft.wire.cni import CniError

NO_TOOL: Final = "HOST-002: install it, or leave the key out"

_ALL_TABLES: Final = 0


def container_side(call: Call, result: Result, *, up: bool = True) -> LinkInfo:
    container = call.container()
    want = compare.container_interface(result, call.ifname, call.netns)
    link = compare.check_container_end(want, container.rtnl.link(call.ifname), up=up)
    routes = container.rtnl.routes(_ALL_TABLES)
    compare.check_addresses(result, want, container.rtnl.addresses(link.index), routes)
    compare.check_routes(result.routes, routes)
    return link


def masquerade(call: Call, kind: str, result: Result) -> None:
    known = record.read(call)
    kinds = (known.masq,) if known.masq else (kind,) if kind else MASQ_KINDS
    for ip in result.ips:
        if not any(_masqueraded(call, one, ip.address) for one in kinds):
            text = f"IP masquerade rule for {ip.address.ip} not found"
            raise Wrong(text, f"there is no {' or '.join(kinds)} rule of {call.container_id} for it")


def tools_work(*, masquerade: bool, masq_kind: str, spoof_check: bool = False) -> None:
    """Raise STATUS's error if a program that the rules need does not work."""
    kinds = () if not masquerade else (masq_kind,) if masq_kind else MASQ_KINDS
    if kinds and not any(map(programs.works, kinds)):
        raise CniError(cni.UNAVAILABLE, f"ipMasq needs {' or '.join(kinds)}, which does not work here", NO_TOOL)
    if spoof_check and not programs.works(programs.NFTABLES):
        raise CniError(cni.UNAVAILABLE, "macspoofchk needs nft, which does not work here", NO_TOOL)


def _masqueraded(call: Call, kind: str, address: Cidr) -> bool:
    try:
        return masq.is_there(call.attachment, kind, address)
    except CniError as error:
        call.note(f"{call.request.plugin}: no {kind} rules looked at: {error}")
        return False
