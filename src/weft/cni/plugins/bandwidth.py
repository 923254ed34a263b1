"""bandwidth: at most so many bits a second to and from a container, kept at the host's end of its veth (cni.md §6.2).

What goes to the container waits in a token bucket there; what comes from it is redirected to an IFB device with a
bucket of its own. The buckets go with the veth; the device is found by our record, or by upstream's name.
"""

import errno
import hashlib
from contextlib import ExitStack, suppress
from typing import Annotated, Final

from weft.cni.attachment.interface import reason
from weft.cni.host.host import RETIRED, Container, Host
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call, Plugin, Subject, about
from weft.kernel.rtnetlink import tc
from weft.kernel.rtnetlink.link import set_link
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.attachment import Attachment, Interface, Result
from weft.model.kernel.marks import ALIAS
from weft.model.kernel.reported import Bucket, Limit, Limits, LinkInfo
from weft.model.keyed import Key
from weft.model.value import Value, field, replace
from weft.wire import cni, cnijson, cniresult
from weft.wire.cni import CniError, failure, versions_from
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode_or_fail

NAME: Final = "bandwidth"

# In bytes; one less than fits the kernel's 32 bits, as upstream has it.
_BURST_BYTES: Final = 0xFFFFFFFF
# include/net/pkt_sched.h: a tick is 64 ns, on every kernel since 2.6.31 (/proc/net/psched says it as 3e8 40 f4240).
_TICK_NANOSECONDS: Final = 64
_MICROSECONDS: Final = 1_000_000
_LATENCY_DIVISOR: Final = 40  # a packet waits at most 25 ms in the queue
_LARGEST: Final = 0xFFFFFFFF
_BITS: Final = 8
_NAME_HEX: Final = 12
_NO_IFB: Final = "HOST-002: load the kernel module ifb, or leave the key out"


class Rates(Value):
    ingress_rate: Annotated[
        int | None, Key("ingressRate", "Bits a second towards the container.", default="no limit", least=0)
    ] = None
    ingress_burst: Annotated[
        int | None, Key("ingressBurst", "Bits at once beyond that; needed with a rate.", least=0)
    ] = None
    egress_rate: Annotated[
        int | None, Key("egressRate", "Bits a second from the container.", default="no limit", least=0)
    ] = None
    egress_burst: Annotated[
        int | None, Key("egressBurst", "Bits at once beyond that; needed with a rate.", least=0)
    ] = None


class BandwidthConf(Rates):
    runtime: Annotated[
        Rates,
        Key(
            "bandwidth",
            "The same four keys (capability `bandwidth`). Ignored if any of them stands above.",
            at="runtimeConfig",
        ),
    ] = field(default_factory=Rates)


def parse(config: Object) -> Limits:
    """One key of its own counts more than all that the runtime says. Raises `CniError`."""
    asked = decode_or_fail(BandwidthConf, config, failed="failed to parse network configuration")
    own = (asked.ingress_rate, asked.ingress_burst, asked.egress_rate, asked.egress_burst)
    rates: Rates = asked.runtime if own == (None,) * len(own) else asked
    return Limits(
        ingress=_limit("ingressRate", rates.ingress_rate or 0, rates.ingress_burst or 0),
        egress=_limit("egressRate", rates.egress_rate or 0, rates.egress_burst or 0),
    )


def _limit(key: str, rate: int, burst: int) -> Limit | None:
    if rate and not burst:
        raise failure("if rate is set, burst must also be set")
    if burst and not rate:
        raise failure("if burst is set, rate must also be set")
    if burst // _BITS >= _BURST_BYTES:
        raise failure("burst cannot be more than 4GB")
    if 0 < rate < _BITS:
        raise failure(f"{key} of {rate} bits a second is less than one byte", "rates are in bits a second")
    return Limit(rate=rate, burst=burst) if rate else None


def bucket_of(limit: Limit) -> Bucket:
    rate, burst = limit.rate // _BITS, limit.burst // _BITS
    ticks = burst * _MICROSECONDS // rate * 1000 // _TICK_NANOSECONDS
    # The kernel's fields have 32 bits (struct tc_tbf_qopt); upstream's numbers wrap around.
    return Bucket(rate=rate, limit=min(rate // _LATENCY_DIVISOR + burst, _LARGEST), buffer=min(ticks, _LARGEST))


def ifb_names(attachment: Attachment) -> tuple[str, str]:
    """Return upstream's name, which all interfaces of a container in a network share, and one of its own."""
    shared = attachment.network + attachment.container_id
    return _name(shared), _name(f"{shared}\0{attachment.ifname}")


def _name(text: str) -> str:
    return f"bwp{hashlib.sha512(text.encode('utf-8', 'surrogateescape')).hexdigest()[:_NAME_HEX]}"


def _add(call: Call) -> bytes:
    limits = parse(call.config)
    result = call.previous("must be called as chained plugin")
    if limits:
        host_end = _host_end(call, call.container(), result)
        with ExitStack() as undo:
            if limits.ingress:
                undo.callback(_clear_root, call.host.rtnl, host_end)
                _shape(call.host.rtnl, host_end, limits.ingress)
            if limits.egress:
                undo.callback(_remove_ifb, call.host, call.attachment)
                undo.callback(_clear_ingress, call.host.rtnl, host_end)
                ifb = _limit_egress(call, host_end, limits.egress)
                made = Interface(name=ifb.name, mac=str(ifb.mac or ""))
                result = replace(result, interfaces=(*result.interfaces, made))
            output = cniresult.render(result, call.version)
            undo.pop_all()
            return output
    return cniresult.render(result, call.version)


def _host_end(call: Call, container: Container, result: Result) -> LinkInfo:
    if not result.interfaces:
        raise failure("no interfaces provided")
    link = container.rtnl.link(call.ifname)
    if link is None or link.kind != "veth" or not link.link:
        why = "it does not exist" if link is None else f"it is of kind {link.kind!r}"
        raise failure(f"container interface {call.ifname} has no veth peer: {why}")
    peer = call.host.rtnl.link(link.link)
    # The number is one of the peer's namespace; another link here may have it by chance.
    if peer is None or peer.link != link.index or peer.peer_netns == -1:
        raise failure(f"veth peer with index {link.link} is not in host ns")
    if not any(one.name == peer.name and not one.sandbox for one in result.interfaces):
        raise failure("no veth peer of container interface found in host ns", f"{peer.name} is not in prevResult")
    return peer


def _shape(rtnl: Rtnl, link: LinkInfo, limit: Limit) -> None:
    for error in rtnl.batch([tc.set_bucket(link.index, bucket_of(limit))]).values():
        raise failure(f"failed to limit {link.name} to {limit.rate} bits a second: {reason(error)}") from error


def _limit_egress(call: Call, host_end: LinkInfo, limit: Limit) -> LinkInfo:
    rtnl = call.host.rtnl
    _remove_ifb(call.host, call.attachment, only_ours=True)
    shared, own = ifb_names(call.attachment)
    name = own if rtnl.link(shared) is not None else shared  # another interface of the container may have that
    record.keep(call, NAME, {"ifb": name})
    try:
        ifb = rtnl.add_ifb(name, mtu=host_end.mtu, alias=_alias_of(call.attachment))
    except NetlinkError as error:
        raise failure(f"failed to create IFB device {name}: {reason(error)}") from error
    _shape(rtnl, ifb, limit)
    # Another ADD of this attachment may have been cut short: its filters go with the qdisc.
    _clear_ingress(rtnl, host_end)
    messages = [tc.add_ingress(host_end.index), tc.redirect(host_end.index, to=ifb.index)]
    for refusal in rtnl.batch(messages).values():
        raise failure(f"failed to redirect {host_end.name} to {name}: {reason(refusal)}") from refusal
    return ifb


def _alias_of(attachment: Attachment) -> str:
    return f"{ALIAS}ifb:{record.key_of(attachment)}"


def _remove_ifb(host: Host, attachment: Attachment, *, only_ours: bool = False) -> None:
    """Remove the attachment's IFB device. One that upstream made says nobody's name, unless `only_ours`."""
    known = record.look_up(host, NAME, attachment)
    names = ifb_names(attachment) if known is None else (cnijson.text(known, "ifb"),)
    aliases = (_alias_of(attachment),) if only_ours else ("", _alias_of(attachment))
    for name in names:
        link = host.rtnl.link(name)
        if link is not None and link.kind == "ifb" and link.alias in aliases:
            _retire(host, link)
    record.forget(host, NAME, attachment)


def _undo_leaked(host: Host, attachment: Attachment, known: Object) -> None:
    if known.get("boot") == host.boot_id:
        _remove_ifb(host, attachment, only_ours=True)


def _retire(host: Host, link: LinkInfo) -> None:
    """Free the device's name at once and have the device deleted later (settled.md §2)."""
    name = f"weft{host.random(5).hex()}"
    messages = [set_link(link.index, up=False, alias=RETIRED), set_link(link.index, name=name)]
    for error in host.rtnl.batch(messages).values():
        if error.errno != errno.ENODEV:
            raise error
    host.retire(link.index)


def _clear_root(rtnl: Rtnl, link: LinkInfo) -> None:
    if _bucket_on(rtnl, link) is not None:
        rtnl.batch([tc.delete_root(link.index)])


def _clear_ingress(rtnl: Rtnl, link: LinkInfo) -> None:
    """Take away the ingress qdisc with its filters; a clsact, which has the same place, is somebody else's."""
    with suppress(NetlinkError):
        if tc.kind_of(rtnl.ask(tc.get_ingress(link.index))) == "ingress":
            rtnl.batch([tc.delete_ingress(link.index)])


def _delete(call: Call) -> None:
    """Without our record the result tells whose device it is: all of a container's have one name of upstream's."""
    told = None if record.is_kept(call.host, NAME, call.attachment) else call.previous_if_any()
    others = told is not None and all(one.name not in ifb_names(call.attachment) for one in told.interfaces)
    _remove_ifb(call.host, call.attachment, only_ours=others)


def _check(call: Call) -> None:
    limits = parse(call.config)
    result = call.previous("must be called as a chained plugin")
    if not limits:
        return
    rtnl = call.host.rtnl
    host_end = _host_end(call, call.container(), result)
    if limits.ingress:
        _check_bucket(rtnl, host_end, limits.ingress)
    if limits.egress:
        names = ifb_names(call.attachment)
        name = next((one.name for one in result.interfaces if one.name in names), names[0])
        ifb = rtnl.link(name)
        if ifb is None:
            raise failure(f"get ifb device: Link {name} not found", f"{call.ifname}: no IFB device {name} on the host")
        _check_bucket(rtnl, ifb, limits.egress)
        filters = rtnl.dump(*tc.list_ingress_filters(host_end.index))
        if not any(ifb.index in tc.redirected_to(body) for body in filters):
            why = f"{call.ifname}: {host_end.name} has no filter that redirects to {name}"
            raise failure(f"Failed to find redirection of {host_end.name}", why)


def _check_bucket(rtnl: Rtnl, link: LinkInfo, limit: Limit) -> None:
    wanted, seen = bucket_of(limit), _bucket_on(rtnl, link)
    if seen is None:
        raise failure("Failed to find qdisc", f"{link.name}: a tbf qdisc expected, none at its root")
    for word, expected, there in (
        ("Rate", wanted.rate, seen.rate),
        ("Limit", wanted.limit, seen.limit),
        ("Buffer", wanted.buffer, seen.buffer),
    ):
        if expected != there:
            raise failure(f"{word} doesn't match", f"{link.name}: {expected} expected, {there} there")


def _bucket_on(rtnl: Rtnl, link: LinkInfo) -> Bucket | None:
    with suppress(NetlinkError):  # no qdisc at all
        return tc.parse_bucket(rtnl.ask(tc.get_root(link.index)))
    return None


def _gc(call: Call) -> None:
    problems = record.undo_gone(call, NAME, lambda host, attachment, _: _remove_ifb(host, attachment))
    if problems:
        raise failure(f"failed to remove IFB devices: {'; '.join(problems)}")


def _status(call: Call) -> None:
    limits = parse(call.config)
    if limits.egress and not call.host.rtnl.knows("ifb"):
        raise CniError(cni.UNAVAILABLE, "egressRate needs IFB devices, which this kernel cannot make", _NO_IFB)


PLUGIN: Final = Plugin(
    name=NAME,
    add=_add,
    delete=_delete,
    check=_check,
    gc=_gc,
    status=_status,
    versions=versions_from("0.3.0"),
    about=about(NAME),
    keeps=Subject(name=NAME, undo=_undo_leaked),
)
