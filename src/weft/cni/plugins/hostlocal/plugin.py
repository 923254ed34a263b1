"""host-local: addresses from ranges, remembered as files that upstream's host-local reads too (cni.md §4).

ADD, DEL, CHECK and STATUS read no more files than they name; GC reads them all.
"""

import shlex
from contextlib import ExitStack, suppress
from ipaddress import ip_interface
from typing import Final

from weft.cni.attachment import podaddresses
from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.cni.plugins.hostlocal import store
from weft.cni.plugins.hostlocal.conf import IpamConf, Range, RangeSet
from weft.cni.plugins.hostlocal.store import Store
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call, Plugin, Subject, about
from weft.model.attachment import Attachment, Dns, IpConfig, Result
from weft.model.errors import typed
from weft.model.net import Ip
from weft.wire import cni, cniresult
from weft.wire.cni import CniError, failure
from weft.wire.cnijson import JsonError, Object

NAME: Final = "host-local"


class _Full(CniError):
    """A range set has no free address."""


class _Held(CniError):
    """A requested address is another attachment's, whose reservation is named by `container_id` and `ifname`."""

    container_id = ifname = ""


def allocate(call: Call) -> Result:
    """Reserve an address of each range set, or none at all. What is missing may be leaked: then it is freed first."""
    conf = _read(call)
    dns = Dns()
    if conf.resolv_conf:
        try:
            text = call.host.files.read(conf.resolv_conf).decode("utf-8", "replace")
        except OSError as error:
            raise failure(f'"resolvConf" {conf.resolv_conf} cannot be read: {error.strerror or error}') from error
        dns = ipamconf.parse_resolv_conf(text)
    try:
        ips = _reserve(call, conf)
    except FileNotFoundError:  # the network's first address
        call.host.files.makedirs(_directory(call), mode=0o755)
        ips = _reserve(call, conf)
    except _Full:
        if not call.build.free_network(call.host, call.network):
            raise
        ips = _reserve(call, conf)
    except _Held as error:
        if not _free_holder(call, error):
            raise
        ips = _reserve(call, conf)
    return Result(ips=tuple(ips), routes=conf.routes, dns=dns)


def holder(call: Call, ip: Ip) -> tuple[str, str] | None:
    try:
        found = store.parse_owner(call.host.files.read(f"{_directory(call)}/{ip}"))
    except (OSError, CniError, JsonError):
        return None
    return found if all(found) else None


def _read(call: Call) -> IpamConf:
    return ipamconf.parse(call.config, call.version, call.args)


def _free_holder(call: Call, held: _Held) -> bool:
    holder = Attachment(network=call.network, container_id=held.container_id, ifname=held.ifname)
    if holder.container_id == call.container_id:
        return False
    try:
        return bool(call.build.free(call.host, holder))
    except (OSError, CniError, JsonError) as error:
        call.note(f"host-local: {held.container_id} is leaked, and cannot be freed: {error}")
        return False


def release(call: Call) -> None:
    """Free what the attachment holds, whatever the ranges are now: only the owner counts (cni.md §4.5)."""
    known = record.recall(call.host, record.ADDRESSES, call.attachment)
    ours = ""
    with suppress(JsonError):
        ours = "" if known is None else store.recorded_directory(call.attachment, known)
    # It may have been changed since ADD, or be none any more.
    directory = call.read_for_delete(lambda _: _directory(call), otherwise=ours)
    for each in dict.fromkeys(one for one in (directory, ours) if one):
        # Without a directory no attachment has ever had an address of this network.
        with suppress(FileNotFoundError), store.opened(call.host, each) as reservations:
            if not reservations.release_owner(call.container_id, call.ifname):
                reservations.look_again()
                reservations.release_owner(call.container_id, call.ifname)
    record.forget(call.host, record.ADDRESSES, call.attachment)


def _reserve(call: Call, conf: IpamConf) -> list[IpConfig]:
    """Take an address of each set, all under one lock: a second ADD waits."""
    requested = list(conf.requested)
    ips = []
    with store.opened(call.host, _directory(call)) as reservations, ExitStack() as undo:
        before = record.recall(call.host, record.ADDRESSES, call.attachment)
        undo.callback(record.put_back, call, record.ADDRESSES, before)
        taker = _Taker(call, reservations, conf.data_dir, before)
        for index, ranges in enumerate(conf.sets):
            try:
                ip, one = taker.take(ranges, requested, range_id=index)
            except CniError as error:
                raise error.within(f"failed to allocate for range {index}: ") from error
            undo.callback(reservations.release, ip)
            ips.append(IpConfig(address=ip_interface((ip, one.subnet.prefixlen)), gateway=one.gateway))
        if requested:
            raise failure(f"failed to allocate all requested IPs: {' '.join(map(str, requested))}")
        undo.pop_all()
    return ips


class _Taker:
    def __init__(self, call: Call, reservations: Store, data_dir: str, before: Object | None) -> None:
        self._call = call
        self._reservations = reservations
        self._data_dir = data_dir
        self._given = [] if before is None else store.recorded_addresses(before)
        self._owner = store.owner_of(call.container_id, call.ifname)
        self._lost = False  # whether a reservation was found lost

    def take(self, ranges: RangeSet, requested: list[Ip], *, range_id: int) -> tuple[Ip, Range]:
        wanted = ipamconf.pick_requested(ranges, requested)
        if wanted is not None:
            ip, one = wanted
            requested.remove(ip)
            if ip == one.gateway:
                raise failure(f"requested ip {ip} is subnet's gateway")
            if self._is_living(ip) or not self._try(ip, range_id):
                raise self._held(ip, ranges)
            return ip, one
        for ip in self._reservations.confirmed(self._call.container_id, self._call.ifname):
            if any(ip in one for one in ranges):
                owned = f"{ip} has been allocated to {self._call.container_id}"
                raise failure(f"{owned}, duplicate allocation is not allowed")
        found = self._first_free(ranges, range_id)
        if found is None:
            self._reservations.look_again()
            found = self._first_free(ranges, range_id)
        if found is None:
            raise _Full(cni.INTERNAL, *_no_address_left(self._call, ranges))
        return found

    def _held(self, ip: Ip, ranges: RangeSet) -> _Held:
        content = self._reservations.owner(ip)
        container_id, ifname = store.parse_owner(content or b"")
        if content is None:
            whose = "a living pod has it, whose reservation is lost"
        elif container_id:
            whose = f"it is reserved for container {container_id}{', interface ' * bool(ifname)}{ifname}"
            whose += f", and nothing proves that it is gone (`{typed('ipam list')}`)"
        else:
            whose = f"its file under {_directory(self._call)} names no container"
        held = _Held(
            cni.INTERNAL,
            f"requested IP address {ip} is not available in range set {ipamconf.describe(ranges)}",
            f"IPAM-004: {whose}",
        )
        held.container_id, held.ifname = container_id, ifname
        return held

    def _first_free(self, ranges: RangeSet, range_id: int) -> tuple[Ip, Range] | None:
        for ip, one in ipamconf.candidates(ranges, self._reservations.last_reserved(range_id)):
            free = not (self._reservations.is_taken(ip) or self._is_living(ip))
            if free and self._try(ip, range_id):
                return ip, one
        return None

    def _is_living(self, ip: Ip) -> bool:
        rtnl = self._call.host.rtnl
        if not self._reservations.is_living(ip, lambda: podaddresses.addresses(rtnl), again=not self._lost):
            return False
        if not self._lost:
            self._call.note(f"IPAM-003 {ip} is a living pod's, whose reservation is lost: it is not given again")
        self._lost = True
        return True

    def _try(self, ip: Ip, range_id: int) -> bool:
        # Written down before it is reserved; one that was not is dropped with the next one.
        store.keep_given(self._call, self._data_dir, [*self._given, ip])
        if not self._reservations.reserve(ip, self._owner, range_id=range_id):
            return False
        self._given.append(ip)
        return True


def _no_address_left(call: Call, ranges: RangeSet) -> tuple[str, str]:
    data_dir = ipamconf.data_dir(call.config)
    other = [] if data_dir == ipamconf.DATA_DIR else ["--data-dir", data_dir]
    look = shlex.join(["weft", "ipam", "list", *other])
    hint = f"IPAM-001: every address is reserved under {_directory(call)}; see `{look}`"
    return f"no IP addresses available in range set: {ipamconf.describe(ranges)}", hint


def _check(call: Call) -> None:
    """Compare the reservations with what the runtime remembers of the result, as far as it is from our ranges."""
    conf = _read(call)
    has: list[Ip] = []
    with suppress(FileNotFoundError), store.opened(call.host, _directory(call)) as reservations:
        has = reservations.confirmed(call.container_id, call.ifname)
        if not has:
            reservations.look_again()
            has = reservations.confirmed(call.container_id, call.ifname)
    who = f"{call.container_id}, interface {call.ifname}"
    if not has:
        hint = f"IPAM-003: no file under {_directory(call)} names {who}"
        raise failure(f"host-local: Failed to find address added by container {call.container_id}", hint)
    previous = cniresult.read_previous(call.config, call.version)
    for ip in (one.address.ip for one in previous.ips) if previous else ():
        if ip not in has and any(ip in one for ranges in conf.sets for one in ranges):
            hint = f"IPAM-003: {_directory(call)}/{ip} does not name {who}, which has {', '.join(map(str, has))}"
            raise failure(f"host-local: {ip} is not reserved for container {call.container_id}", hint)


def _gc(call: Call) -> None:
    valid = cni.valid_attachments(call.config)
    given = store.given_to_valid(call)
    problems: list[str] = []
    with suppress(FileNotFoundError), store.opened(call.host, _directory(call)) as reservations:
        reservations.look_again()
        for ip, content in reservations.all().items():
            # The beginning of what a valid attachment's file should hold: torn, and its all the same.
            if _is_valid(content, valid) or (ip in given and given[ip].startswith(content)):
                continue
            try:
                reservations.release(ip)
            except OSError as error:
                problems.append(str(error))
    for attachment, known in record.all_of(call.host, record.ADDRESSES):
        if call.is_valid(attachment):
            continue
        try:
            # Once more by its record: an earlier configuration may have named another store.
            store.undo(call.host, attachment, known)
        except FileNotFoundError:
            continue
        except (OSError, JsonError) as error:
            problems.append(str(error))
    if problems:
        raise failure("; ".join(dict.fromkeys(problems)))
    record.collect(call, record.ADDRESSES)


def _is_valid(content: bytes, valid: frozenset[tuple[str, str]]) -> bool:
    container_id, ifname = store.parse_owner(content)
    if ifname:
        return (container_id, ifname) in valid
    # The old format: any of the container's interfaces may be meant.
    return any(container_id == other for other, _ in valid)


def _status(call: Call) -> None:
    sets = ipamconf.parse_sets(call.config, call.version)
    full = _full_set(call, sets)
    if full and call.build.free_network(call.host, call.network):
        full = _full_set(call, sets)
    if full:
        raise CniError(cni.UNAVAILABLE, *_no_address_left(call, full))


def _full_set(call: Call, sets: tuple[RangeSet, ...]) -> RangeSet:
    with suppress(FileNotFoundError), store.opened(call.host, _directory(call)) as reservations:
        for index, ranges in enumerate(sets):
            candidates = ipamconf.candidates(ranges, reservations.last_reserved(index))
            if all(reservations.is_taken(ip) for ip, _ in candidates):
                return ranges
    return ()


def _directory(call: Call) -> str:
    return f"{ipamconf.data_dir(call.config)}/{call.network}"


def _add(call: Call) -> bytes:
    with ExitStack() as undo:
        result = allocate(call)
        undo.callback(release, call)
        output = cniresult.render(result, call.version)
        undo.pop_all()
    return output


PLUGIN: Final = Plugin(
    name=NAME,
    add=_add,
    delete=release,
    check=_check,
    gc=_gc,
    status=_status,
    about=about(NAME),
    keeps=Subject(name=record.ADDRESSES, undo=store.undo),
    read=_read,
    allocate=allocate,
)
