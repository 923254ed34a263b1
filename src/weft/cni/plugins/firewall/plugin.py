"""firewall: lets a container's packets be forwarded, and keeps them from other bridges if asked to (cni.md §6.3).

What was done is kept, so that DEL and GC need neither the runtime's memory nor the container's namespace.

Rules of upstream's form and sources of a zone say only which address they are for. An address that was freed under a
dead pod may be a living one's by the time that the dead one is cleaned up: the last ADD with an address owns what
stands for it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Final

from weft.cni.attachment import owners
from weft.cni.host import programs
from weft.cni.host.host import Host
from weft.cni.plugins.firewall import conf as firewallconf
from weft.cni.plugins.firewall import firewalld, iptables, nft
from weft.cni.plugins.firewall.conf import FIREWALLD, IPTABLES, ISOLATED, NFTABLES, OPEN, DeleteConf, FirewallConf
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call, Plugin, Subject, about
from weft.model.attachment import Attachment, Result
from weft.model.keyed import Key
from weft.model.net import Ip
from weft.model.value import Value
from weft.wire import cni, cniresult
from weft.wire.cni import CniError, failure, versions_from
from weft.wire.cnijson import Object
from weft.wire.cnivalue import encode

NAME: Final = "firewall"

_OWNERS: Final = "/firewall-owners"
_NO_RESULT: Final = "missing prevResult from earlier plugin"
_NO_TOOL: Final = "HOST-002: install the package that holds its program"
_BROKEN: Final = "CHECK-001: somebody has changed or removed rules; recreate the pod"


class Done(Value):
    """`zone` is firewalld's."""

    boot: Annotated[str, Key("boot")] = ""
    backend: Annotated[str, Key("backend")] = ""
    zone: Annotated[str, Key("zone")] = ""
    addresses: Annotated[tuple[Ip, ...], Key("addresses")] = ()


def keep_done(call: Call, done: Done) -> None:
    """Keep it, before anything is done; the addresses are this attachment's from now on."""
    record.keep(call, NAME, encode(done))
    for address in done.addresses:
        call.host.state.replace(f"{_OWNERS}/{address}", record.key_of(call.attachment).encode(), parents=0o700)


def find_done(host: Host, attachment: Attachment) -> Done | None:
    known = record.look_up(host, NAME, attachment)
    return None if known is None else record.as_value(Done, known)


def owned(host: Host, attachment: Attachment, addresses: Sequence[Ip]) -> tuple[Ip, ...]:
    """Return the addresses without those that are another attachment's by now."""
    return tuple(address for address in addresses if _owner(host, address) in ("", record.key_of(attachment)))


def forget_done(host: Host, attachment: Attachment, addresses: Sequence[Ip]) -> None:
    for address in owned(host, attachment, addresses):
        with suppress(FileNotFoundError):
            host.state.unlink(f"{_OWNERS}/{address}")
    record.forget(host, NAME, attachment)


def _owner(host: Host, address: Ip) -> str:
    try:
        return host.state.read(f"{_OWNERS}/{address}").decode("ascii", "replace")
    except FileNotFoundError:
        return ""


def _add(call: Call) -> bytes:
    conf = firewallconf.parse(call.config)
    result = call.previous(_NO_RESULT)
    addresses = _addresses(result)
    bridge = _bridge(result) if conf.policy != OPEN else ""
    done = Done(boot=call.host.boot_id, backend=_choose(call, conf), zone=conf.zone, addresses=addresses)
    held, before = record.recall(call.host, NAME, call.attachment), find_done(call.host, call.attachment)
    if before is not None and before != done:
        _undo(call.host, call.attachment, before, note=call.note)
    keep_done(call, done)
    try:
        _let_through(call, conf, done)
        if bridge:
            _guard(call, conf, bridge, done)
    except (CniError, OSError):
        with suppress(CniError, OSError):  # what went wrong first is what people must read
            _undo(call.host, call.attachment, done, note=call.note)
            if before is not None:
                keep_done(call, before)
                record.put_back(call, NAME, held)  # with its `since`
                _let_through(call, conf, before)
        raise
    return cniresult.render(result, call.version)


def _addresses(result: Result) -> tuple[Ip, ...]:
    return tuple(dict.fromkeys(ip.address.ip for ip in result.ips))


def _bridge(result: Result) -> str:
    name = result.interfaces[0].name if result.interfaces else ""
    if not name:
        raise failure("ingressPolicy needs a bridge", "prevResult has no interface")
    cni.check_ifname(name)
    if not firewallconf.is_word(name):
        raise failure(f'ingressPolicy: the name of bridge "{name}" cannot stand in a rule')
    return name


def _choose(call: Call, conf: FirewallConf) -> str:
    if conf.backend:
        return conf.backend
    return FIREWALLD if _runs_firewalld(call) else programs.choose()


def _runs_firewalld(call: Call) -> bool:
    """A bus that gives no answer is as good as none: other backends do not need it."""
    try:
        with firewalld.opened(call.host.files) as running:
            return running is not None
    except CniError as error:
        call.note(f"firewall: {error}")
        return False


def _let_through(call: Call, conf: FirewallConf, done: Done) -> None:
    match done.backend:
        case "iptables":
            iptables.add(call.host, done.addresses, admin_chain=conf.admin_chain)
        case "nftables":
            nft.add(call.host, done.addresses, owners.comment_of(call.attachment))
        case _:
            with firewalld.opened(call.host.files) as running:
                if running is None:
                    raise failure("firewalld is not running")
                running.add(conf.zone, done.addresses)


def _guard(call: Call, conf: FirewallConf, bridge: str, done: Done) -> None:
    """Under firewalld, which cannot keep bridges apart, it is iptables or nf_tables all the same."""
    if _policy_backend(done) == NFTABLES:
        nft.guard(call.host, bridge, isolated=conf.policy == ISOLATED)
    else:
        iptables.guard(call.host, _families(done.addresses), bridge, conf.policy)


def _policy_backend(done: Done) -> str:
    return programs.choose() if done.backend == FIREWALLD else done.backend


def _families(addresses: Sequence[Ip]) -> list[int]:
    return sorted({address.version for address in addresses})


def _undo_known(
    host: Host, attachment: Attachment, known: Object, *, note: Callable[[str], None] = lambda _: None
) -> None:
    done = record.as_value(Done, known)
    if done is None:
        forget_done(host, attachment, ())
    else:
        _undo(host, attachment, done, note=note)


def _undo(host: Host, attachment: Attachment, done: Done, *, note: Callable[[str], None]) -> None:
    """What was done in another boot ended with it: what is there for the same addresses is another's."""
    addresses = owned(host, attachment, done.addresses) if done.boot == host.boot_id else ()
    match done.backend:
        case "iptables":
            iptables.remove(host, addresses)
        case "nftables":
            owner = owners.owner_of(attachment)
            nft.remove(host, lambda comment: comment.startswith(owner))
        case _ if addresses:
            _leave_zone(host, done.zone, addresses, note)
    forget_done(host, attachment, done.addresses)


def _leave_zone(host: Host, zone: str, addresses: Sequence[Ip], note: Callable[[str], None]) -> None:
    """It forgets the addresses with its end, and may have forgotten some already."""
    try:
        with firewalld.opened(host.files) as running:
            if running is None:
                return
            for address in addresses:
                try:
                    running.remove(zone, address)
                except CniError as error:
                    note(f"firewall: {error}")
    except CniError as error:
        note(f"firewall: {error}")


def _delete(call: Call) -> None:
    done = find_done(call.host, call.attachment)
    if done is None:
        _delete_strangers(call)
    else:
        _undo(call.host, call.attachment, done, note=call.note)


def _delete_strangers(call: Call) -> None:
    """Without `prevResult` its addresses are not known; what cannot be looked at has most likely never been made."""
    conf = call.read_for_delete(firewallconf.parse_for_delete, otherwise=DeleteConf())
    result = call.previous_if_any()
    if result is None:
        return
    backends = (conf.backend,) if conf.backend in (IPTABLES, NFTABLES, FIREWALLD) else (FIREWALLD, NFTABLES, IPTABLES)
    for backend in backends:
        try:
            done = Done(boot=call.host.boot_id, backend=backend, zone=conf.zone, addresses=_addresses(result))
            _undo(call.host, call.attachment, done, note=call.note)
        except (CniError, OSError) as error:
            call.note(f"firewall: no {backend} rules looked at: {error}")


def _check(call: Call) -> None:
    conf = firewallconf.parse(call.config)
    result = call.previous(_NO_RESULT)
    kept = find_done(call.host, call.attachment)
    backend = kept.backend if kept else _choose(call, conf)
    done = Done(boot=call.host.boot_id, backend=backend, zone=conf.zone, addresses=_addresses(result))
    problem = _missing(call, conf, done)
    if not problem and conf.policy != OPEN:
        problem = _missing_guard(call, conf, _bridge(result), done)
    if problem:
        raise failure(problem, _BROKEN)


def _missing(call: Call, conf: FirewallConf, done: Done) -> str:
    match done.backend:
        case "iptables":
            return iptables.missing(done.addresses, admin_chain=conf.admin_chain)
        case "nftables":
            return nft.missing(call.host, done.addresses, owners.comment_of(call.attachment))
        case _:
            with firewalld.opened(call.host.files) as running:
                if running is None:
                    return "firewalld is not running"
                lost = [address for address in done.addresses if not running.has(conf.zone, address)]
            return f"expected source {lost[0]} not found in zone {conf.zone}" if lost else ""


def _missing_guard(call: Call, conf: FirewallConf, bridge: str, done: Done) -> str:
    if _policy_backend(done) == NFTABLES:
        return nft.missing_guard(call.host, bridge)
    line = iptables.missing_guard(_families(done.addresses), bridge, conf.policy)
    return f"expected rule [{line}] not found" if line else ""


def _gc(call: Call) -> None:
    problems = record.undo_gone(call, NAME, partial(_undo_known, note=call.note))
    _collect_strangers(call)
    if problems:
        raise failure(f"failed to remove rules: {'; '.join(problems)}")


def _collect_strangers(call: Call) -> None:
    """Nothing in upstream's rules says which attachment they belong to."""
    is_lost = owners.lost(call.network, cni.valid_attachments(call.config))
    for what, act in (
        ("nftables elements", lambda: nft.remove(call.host, is_lost)),
        ("nftables bridges", lambda: nft.unguard(call.host, lambda name: _is_gone(call, name))),
        ("iptables bridges", lambda: iptables.unguard(call.host, lambda name: _is_gone(call, name))),
    ):
        try:
            act()
        except (CniError, OSError) as error:
            call.note(f"firewall: no {what} looked at: {error}")


def _is_gone(call: Call, bridge: str) -> bool:
    """Asked after its rules were seen: it is there before they are made."""
    return call.host.rtnl.link(bridge) is None


def _status(call: Call) -> None:
    conf = firewallconf.parse(call.config)
    if conf.backend in ("", FIREWALLD) and _runs_firewalld(call):
        return
    if conf.backend == FIREWALLD:
        raise CniError(cni.UNAVAILABLE, "firewalld is not running")
    backend = conf.backend or programs.choose()
    if not programs.works(backend):
        raise CniError(cni.UNAVAILABLE, f"firewall needs {backend}, which does not work here", _NO_TOOL)


PLUGIN: Final = Plugin(
    name=NAME,
    add=_add,
    delete=_delete,
    check=_check,
    gc=_gc,
    status=_status,
    versions=versions_from("0.4.0"),
    about=about(NAME),
    keeps=Subject(name=NAME, undo=_undo_known),
)
