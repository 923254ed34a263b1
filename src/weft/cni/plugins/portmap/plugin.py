"""portmap: ports of the host that lead to the container (cni.md §5).

It returns `prevResult` unchanged. One of three `backends` makes the ports work: our own maps, unless the
configuration asks for upstream's rules or the host has no nf_tables.
"""

from contextlib import suppress
from functools import partial
from typing import Final

from weft.cni.attachment import owners
from weft.cni.host import programs
from weft.cni.host.nftsets import Unusable
from weft.cni.plugins.portmap import backends, elements, iptables, maps, nft, strangers
from weft.cni.plugins.portmap import conf as portmapconf
from weft.cni.plugins.portmap.backends import BACKENDS, MAPS, KeptPorts
from weft.cni.plugins.portmap.conf import IPTABLES, NFTABLES, PortMap, PortmapConf
from weft.cni.plugins.portmap.elements import Taken
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call, Plugin, Subject, about
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.attachment import Result
from weft.model.kernel.marks import NFT_WORD
from weft.model.kernel.nftset import Table
from weft.model.net import FAMILIES, Ip
from weft.wire import cni, cniresult
from weft.wire.cni import CniError, failure

NAME: Final = "portmap"


def _add(call: Call) -> bytes:
    conf, previous = _parse(call)
    if conf.mappings:
        wanted = PortMap(conf=conf, addresses=elements.container_addresses(previous, call.ifname))
        if wanted.addresses:
            _map(call, wanted)
    return cniresult.render(previous, call.version)


def _parse(call: Call) -> tuple[PortmapConf, Result]:
    conf = portmapconf.parse(call.config)
    try:
        previous = cniresult.read_previous(call.config, call.version)
    except CniError as error:
        raise error.within("failed to parse config: ") from error
    if previous is None:
        raise failure("must be called as chained plugin")
    return conf, previous


def _map(call: Call, wanted: PortMap) -> None:
    host, attachment = call.host, call.attachment
    kept = KeptPorts(backend=wanted.conf.backend or MAPS, wanted=wanted)
    before = backends.look_up(host, attachment)
    if before is not None and before != kept:
        backends.undo(host, attachment, before, note=call.note)
    try:
        try:
            _make(call, kept)
        except Unusable as error:
            call.note(f"portmap: {error}")
            _make(call, KeptPorts(backend=programs.choose(), wanted=wanted))
        backends.end_flows(host, wanted, of_container=False, note=call.note)
        if wanted.conf.snat:
            for address in wanted.addresses:
                if address.version == 4:
                    _allow_localhost(call, address.ip)
    except (CniError, OSError):
        _unmap(call, before)
        raise


def _make(call: Call, kept: KeptPorts) -> None:
    """Make the rules; a port of the same container is shared, one that is still a dead pod's freed first."""
    for stray in strangers.clear(call.host, call.attachment, kept.wanted):
        call.note(f"portmap: removed a rule that leads to nobody: {stray}")
    backends.keep(call, kept)
    while True:
        try:
            BACKENDS[kept.backend].add(call.host, call.attachment, kept.wanted)
        except Taken as error:
            shared = backends.share(call.host, call.attachment, error.holder)
            if not shared and not backends.free_if_dead(call, error.holder):
                holder = f"{elements.describe(error.holder)} ({error.holder.comment})"
                hint = "HOSTPORT-001: a host port leads to one pod; give this one another port or address"
                raise failure(f"cannot map {elements.describe(error.wanted)}: taken by {holder}", hint) from error
        else:
            return


def _unmap(call: Call, before: KeptPorts | None) -> None:
    kept = backends.look_up(call.host, call.attachment)
    try:
        if kept is not None:
            backends.undo(call.host, call.attachment, kept, note=call.note)
        if before is None:
            record.forget(call.host, backends.SUBJECT, call.attachment)
        else:
            backends.keep(call, before)
            BACKENDS[before.backend].add(call.host, call.attachment, before.wanted)
    except (CniError, OSError) as error:
        call.note(f"portmap: while undoing: {error}")


def _allow_localhost(call: Call, pod: Ip) -> None:
    """Let packets from 127.0.0.1 leave through the device that leads to the pod, as upstream does."""
    host = call.host
    try:
        name = host.rtnl.name_of(host.rtnl.route_to(pod).index)
    except NetlinkError:
        return  # no way there
    setting = f"net/ipv4/conf/{name}/route_localnet"
    try:
        if host.sysctls.read(setting) != "1":
            host.sysctls.write(setting, "1")
    except OSError as error:
        raise failure(f"unable to enable route_localnet: {error.strerror}") from error


def _delete(call: Call) -> None:
    host, attachment = call.host, call.attachment
    kept = backends.look_up(host, attachment)
    if kept is None:
        _remove_strangers(call, mapped=call.read_for_delete(portmapconf.is_mapped, otherwise=True))
    else:
        backends.undo(host, attachment, kept, note=call.note)
    record.forget(host, backends.SUBJECT, attachment)


def _remove_strangers(call: Call, *, mapped: bool) -> None:
    """Without mappings nothing but a look by netlink is spent on it, which does not see legacy iptables."""
    nf = strangers.netfilter_if_any(call.host)
    container = call.container_id
    chain = iptables.chain_of(call.network, container)
    chains = chain, iptables.old_chain_of(chain)
    for family, prefix in NFT_WORD.items():
        nat, hostports = Table(prefix, "nat"), nft.table_of(family)
        if nf is not None and any(nf.has_chain(nat, chain) for chain in chains):
            backends.remove_container(call.host, family, call.attachment)
        elif mapped:
            with suppress(CniError):  # no iptables: no rules of it
                backends.remove_container(call.host, family, call.attachment)
        if nf is not None and any(comment == container for _, comment in nf.comments(hostports)):
            BACKENDS[NFTABLES].remove(call.host, call.attachment, None)
    if mapped:
        BACKENDS[MAPS].remove(call.host, call.attachment, None)


def _check(call: Call) -> None:
    conf, previous = _parse(call)
    wanted = PortMap(conf=conf, addresses=elements.container_addresses(previous, call.ifname))
    if not conf.mappings or not wanted.addresses:
        return
    for mapping, stray in strangers.in_the_way(call.host, call.attachment, wanted):
        raise failure(f"{mapping} is taken by {stray}", "HOSTPORT-001: remove that rule, or end the pod that it is for")
    problem = _problem(call, wanted)
    if problem:
        raise failure(problem, "HOSTPORT-002: somebody has changed or removed what makes the ports work")


def _problem(call: Call, wanted: PortMap) -> str:
    """Any backend will do if we have not made it."""
    kept = backends.look_up(call.host, call.attachment)
    backend = kept.backend if kept else wanted.conf.backend
    if backend:
        return BACKENDS[backend].missing(call.host, call.attachment, wanted)
    problems = {}
    for name in (IPTABLES, NFTABLES, MAPS):
        try:
            problems[name] = BACKENDS[name].missing(call.host, call.attachment, wanted)
        except CniError as error:
            problems[name] = str(error)
    return "" if "" in problems.values() else problems[IPTABLES]


def _gc(call: Call) -> None:
    problems = record.undo_gone(call, backends.SUBJECT, partial(backends.undo_known, note=call.note))
    _collect_strangers(call)
    if problems:
        raise failure(f"failed to remove host ports: {'; '.join(problems)}")


def _collect_strangers(call: Call) -> None:
    """Rules of upstream's nft form name no network: they go if nobody has the address to which they lead."""
    valid = cni.valid_attachments(call.config)
    nf = strangers.netfilter_if_any(call.host)
    if nf is not None:
        maps.remove_all(nf, owners.lost(call.network, valid))
    for family in FAMILIES:
        try:
            backends.remove_gone(call.host, family, call.network, [container for container, _ in valid])
        except CniError as error:
            call.note(f"portmap: no iptables rules looked at: {error}")
    for problem in strangers.collect(call.host, frozenset(container for container, _ in valid)):
        call.note(f"portmap: {problem}")


PLUGIN: Final = Plugin(
    name=NAME,
    add=_add,
    delete=_delete,
    check=_check,
    gc=_gc,
    about=about(NAME),
    keeps=Subject(name=backends.SUBJECT, undo=backends.undo_known),
)
