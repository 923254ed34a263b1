"""host-local: addresses from ranges, remembered as files that upstream's host-local reads too (cni.md §4)."""

from contextlib import ExitStack
from ipaddress import ip_interface
from typing import Final

from weft.cni import store
from weft.cni.skel import Call, Plugin, about
from weft.cni.store import Store
from weft.desired import podaddress
from weft.model.attachment import Dns, IpConfig, Range, RangeSet, Result
from weft.model.net import Ip
from weft.wire import cniresult, ipamconf
from weft.wire.cni import CniError, failure

NAME: Final = "host-local"


def allocate(call: Call) -> Result:
    """Reserve an address of each range set, or none at all. All under one lock: a second ADD waits."""
    conf = ipamconf.parse(call.config, call.version, call.args)
    dns = _dns(call, conf.resolv_conf) if conf.resolv_conf else Dns()
    directory = f"{conf.data_dir}/{call.network}"
    call.host.files.makedirs(directory, mode=0o755)
    requested = list(conf.requested)
    ips = []
    with store.opened(call.host.files, directory, call.host.stores) as reservations, ExitStack() as undo:
        for index, ranges in enumerate(conf.sets):
            try:
                ip, one = _from_set(reservations, call, ranges, requested, range_id=index)
            except CniError as error:
                raise error.within(f"failed to allocate for range {index}: ") from error
            undo.callback(reservations.release, ip)
            ips.append(IpConfig(address=ip_interface((ip, one.subnet.prefixlen)), gateway=one.gateway))
        if requested:
            raise failure(f"failed to allocate all requested IPs: {' '.join(map(str, requested))}")
        undo.pop_all()
    return Result(ips=tuple(ips), routes=conf.routes, dns=dns)


def release(call: Call) -> None:
    """Free what the attachment holds, whatever the ranges are now: only the owner counts (§4.5)."""
    directory = f"{ipamconf.data_dir(call.config)}/{call.network}"
    try:
        with store.opened(call.host.files, directory, call.host.stores) as reservations:
            if not reservations.release_owner(call.container_id, call.ifname):
                reservations.look_again()
                reservations.release_owner(call.container_id, call.ifname)
    except FileNotFoundError:
        return  # nobody has ever had an address of this network


def _from_set(
    reservations: Store, call: Call, ranges: RangeSet, requested: list[Ip], *, range_id: int
) -> tuple[Ip, Range]:
    owner = store.owner_of(call.container_id, call.ifname)
    wanted = podaddress.pick_requested(ranges, requested)
    if wanted is not None:
        ip, one = wanted
        requested.remove(ip)
        if ip == one.gateway:
            raise failure(f"requested ip {ip} is subnet's gateway")
        if not reservations.reserve(ip, owner, range_id=range_id):
            raise failure(f"requested IP address {ip} is not available in range set {ipamconf.describe(ranges)}")
        return ip, one
    for ip in reservations.owned(call.container_id, call.ifname):
        if any(ip in one for one in ranges):
            owned = f"{ip} has been allocated to {call.container_id}"
            raise failure(f"{owned}, duplicate allocation is not allowed")
    found = _first_free(reservations, ranges, owner, range_id)
    if found is None:
        reservations.look_again()
        found = _first_free(reservations, ranges, owner, range_id)
    if found is None:
        raise failure(
            f"no IP addresses available in range set: {ipamconf.describe(ranges)}",
            f"IPAM-001: every address is reserved under {ipamconf.data_dir(call.config)}/{call.network}",
        )
    return found


def _first_free(reservations: Store, ranges: RangeSet, owner: bytes, range_id: int) -> tuple[Ip, Range] | None:
    for ip, one in podaddress.candidates(ranges, reservations.last_reserved(range_id)):
        if not reservations.is_taken(ip) and reservations.reserve(ip, owner, range_id=range_id):
            return ip, one
    return None


def _dns(call: Call, path: str) -> Dns:
    return ipamconf.parse_resolv_conf(call.host.files.read(path).decode("utf-8", "replace"))


def _add(call: Call) -> bytes:
    with ExitStack() as undo:
        result = allocate(call)
        undo.callback(release, call)
        output = cniresult.render(result, call.version)
        undo.pop_all()
    return output


PLUGIN: Final = Plugin(name=NAME, add=_add, delete=release, about=about(NAME))
