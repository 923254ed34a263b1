"""The steps of ADD that plugins which make a pair of links share. Each undoes itself if a later one fails."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final

from weft.cni.attachment import interface, masq, veth
from weft.cni.attachment.interface import set_quietly
from weft.cni.host.host import ClientGone, Container
from weft.cni.sdk import delegate, record
from weft.cni.sdk.record import Record
from weft.cni.sdk.startup import Call
from weft.model.attachment import Result
from weft.model.kernel.marks import FORWARDING
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Mac
from weft.model.value import Value, replace
from weft.wire import cniresult
from weft.wire.cni import TRY_AGAIN, CniError, failure

# Routes from router advertisements (linux/rtnetlink.h).
_RTPROT_RA: Final = 9


class Pair(Value):
    """The links of an attachment: the container's end, whose `link` is the host's, and the host's by name."""

    link: LinkInfo
    name: str
    known: Record


def on_failure(undo: ExitStack, call: Call, action: Callable[[], None]) -> None:
    """Have `action` undo a step if a later one fails. Its own failure is only logged, and hides no earlier one."""

    def quietly() -> None:
        try:
            action()
        except (CniError, OSError, ClientGone) as error:
            call.note(f"{call.request.plugin}: while undoing: {error}")

    undo.callback(quietly)


def make_links(
    call: Call,
    undo: ExitStack,
    container: Container,
    *,
    mtu: int,
    masq_kind: str,
    ipam_type: str,
    mac: Mac | None = None,
    spoof_check: bool = False,
) -> Pair:
    before = record.recall(call.host, record.LINKS, call.attachment)
    veth.refuse_second(call, container)
    link, name = veth.make(call, container, mtu=mtu, mac=mac)
    on_failure(undo, call, lambda: interface.disable(call, link, link.link))
    pod, uid = record.pod_in(_told(call.args))
    known = Record(
        veth=name,
        index=link.link,
        masq=masq_kind,
        spoof_check=spoof_check,
        ipam=ipam_type,
        pod=pod,
        uid=uid,
        asked=True,
    )
    on_failure(undo, call, lambda: record.put_back(call, record.LINKS, before))
    record.write(call, known)
    return Pair(link=link, name=name, known=known)


def _told(args: str) -> dict[str, str]:
    return {key: value for key, _, value in (pair.partition("=") for pair in args.split(";"))}


def allocate(call: Call, undo: ExitStack, pair: Pair, ipam_type: str) -> Result:
    result = delegate.add_addresses(call, ipam_type)
    on_failure(undo, call, lambda: delegate.delete_addresses(call, ipam_type))
    # Undone in reverse order: the link must be useless before its address is free for others.
    on_failure(undo, call, lambda: interface.disable(call, pair.link, pair.link.link))
    if not result.ips:
        raise failure("IPAM plugin returned missing IP config")
    cniresult.check_usable(result.ips, result.routes)
    return result


def wait_for_policies(call: Call, undo: ExitStack, pair: Pair, result: Result, link: str) -> None:
    """Call this before the container's end comes up.

    `link` is where its packets come from: a bridge, or the host's end.
    """
    gate = call.host.gate
    if gate is None:
        return
    key = record.key_of(call.attachment)
    on_failure(undo, call, lambda: gate.release(key))
    ips = tuple(each.address.ip for each in result.ips)
    why = gate.admit(key, pod=pair.known.pod, uid=pair.known.uid, ips=ips, port=pair.name, link=link)
    if why:
        raise CniError(TRY_AGAIN, why)


def masquerade(call: Call, undo: ExitStack, pair: Pair, result: Result) -> None:
    addresses = tuple(ip.address for ip in result.ips)
    on_failure(undo, call, lambda: masq.remove(call.attachment, pair.known.masq, addresses))
    record.write(call, replace(pair.known, addresses=addresses))
    masq.add(call.attachment, pair.known.masq, addresses)


def turn_on_forwarding(call: Call, families: Iterable[int]) -> None:
    for family in sorted(set(families)):
        if is_forwarding(call, family):
            continue
        if family == 6:
            _keep_advertised_routes(call)
        call.host.sysctls.write(FORWARDING[family], "1")


def is_forwarding(call: Call, family: int) -> bool:
    return call.host.sysctls.read(FORWARDING[family]) == "1"


def _keep_advertised_routes(call: Call) -> None:
    """Once the host forwards, the kernel drops advertised routes where `accept_ra` is 1, not where it is 2."""
    for index in {route.index for route in call.host.rtnl.routes(family=6, protocol=_RTPROT_RA)}:
        link = call.host.rtnl.link(index)
        if link is None:
            continue
        setting = f"net/ipv6/conf/{link.name}/accept_ra"
        if call.host.sysctls.read(setting) == "1":
            set_quietly(call.host.sysctls, setting, "2")
