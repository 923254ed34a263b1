"""Giving a container's interface its addresses and routes (cni.md §3.3), for every plugin that makes one."""

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_interface
from typing import Final

from weft.cni.host import Container, Sysctls
from weft.cni.skel import Call
from weft.desired import pod
from weft.desired.pod import PodRoute
from weft.kernel.netlink import NetlinkError
from weft.kernel.rtnl import Rtnl
from weft.model.attachment import Cidr, Result
from weft.model.objects import MAIN_TABLE
from weft.model.snapshot import LinkInfo
from weft.wire.cni import failure

# What `ip route` writes for a route that an administrator adds (linux/rtnetlink.h): the pod's routes are not ours
# to reconcile, and tools in the pod know this number.
RTPROT_BOOT: Final = 3

_IF_OPER_UP: Final = 6
_OPERSTATES: Final = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_FIRST_PAUSE_SECONDS: Final = 0.0002
_LONGEST_PAUSE_SECONDS: Final = 0.05
_PORT_PATIENCE_SECONDS: Final = 2.5


def reason(error: OSError) -> str:
    """Return the system's words without Python's number."""
    return error.strerror or str(error)


def configure(call: Call, container: Container, link: LinkInfo, result: Result) -> None:
    """Give the interface what the result says, addresses first, then up, then routes. Raises `CniError`."""
    try:
        addresses = pod.addresses_of(result, link.name)
    except pod.Unfit as error:
        raise failure(str(error)) from error
    if any(address.version == 6 for address in addresses):
        _allow_ipv6(call, container.sysctls, link.name)
    for address in addresses:
        try:
            add_address(container.rtnl, link.index, address)
        except NetlinkError as error:
            raise failure(f'failed to add IP addr {address} to "{link.name}": {reason(error)}') from error
    container.rtnl.set_link(link.index, up=True)
    for route in pod.routes_of(result):
        _add_route(container.rtnl, link, route)


def addresses_on(rtnl: Rtnl, index: int) -> tuple[Cidr, ...]:
    """Return the addresses of a link with their prefixes."""
    return tuple(ip_interface((seen.ip, seen.prefixlen)) for seen in rtnl.addresses(index))


def add_address(rtnl: Rtnl, index: int, address: Cidr) -> None:
    """Add an address with the broadcast address that its prefix implies.

    Without duplicate detection: the address is ours alone by its reservation, and detection costs a second or two.
    """
    # A /31 or /32 has no broadcast address (RFC 3021).
    broadcast = address.network.broadcast_address if address.version == 4 and address.network.prefixlen < 31 else None
    rtnl.add_address(index, address.ip, address.network.prefixlen, nodad=True, broadcast=broadcast)


def _allow_ipv6(call: Call, sysctls: Sysctls, ifname: str) -> None:
    for name in ("lo", ifname):
        path = f"net/ipv6/conf/{name}/disable_ipv6"
        try:
            disabled = sysctls.read(path) != "0"
        except OSError as error:
            call.note(f"{path}: {reason(error)}")
            continue
        if disabled:
            sysctls.write(path, "0")
    sysctls.write(f"net/ipv6/conf/{ifname}/keep_addr_on_down", "1")


def _add_route(rtnl: Rtnl, link: LinkInfo, route: PodRoute) -> None:
    try:
        rtnl.add_route(
            route.dst,
            via=route.via,
            index=link.index,
            table=MAIN_TABLE if route.table is None else route.table,
            scope=route.scope,
            mtu=route.mtu,
            advmss=route.advmss,
            priority=route.priority,
            protocol=RTPROT_BOOT,
            mode="append",
        )
    except NetlinkError as error:
        via = f" via {route.via}" if route.via else ""
        raise failure(f"failed to add route '{route.dst}{via} dev {link.name}': {reason(error)}") from error


def wait_until_up(rtnl: Rtnl, index: int) -> LinkInfo:
    """Return a bridge's port once it forwards: at once, where the kernel settles carriers before it answers."""
    waited = 0.0
    pause = _FIRST_PAUSE_SECONDS
    while True:
        link = rtnl.link(index)
        if link is None:
            raise failure("bridge port in error state: it is gone")
        if link.operstate == _IF_OPER_UP:
            return link
        if waited > _PORT_PATIENCE_SECONDS:
            raise failure(f"bridge port in error state: {_OPERSTATES[link.operstate]}")
        time.sleep(pause)
        waited += pause
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def set_quietly(sysctls: Sysctls, name: str, value: str) -> None:
    """Write a setting that may be missing (no IPv6) or refused: then what it would change is not there either."""
    with suppress(OSError):
        sysctls.write(name, value)


def disable(call: Call, link: LinkInfo | None, host_index: int) -> None:
    """Make an attachment unusable at once, and have it deleted later (decisions.md §2).

    `link` is the container's end, None if its namespace is gone; `host_index` the host's end, 0 if there is none.
    Each may have gone already.
    """
    if host_index:
        with _gone_is_fine():
            call.host.rtnl.set_link(host_index, up=False, master=0)
    if link is not None and call.host.container is not None:
        _disable_container_end(call, call.host.container.rtnl, link, delete=not host_index)
    if host_index:
        call.host.retire(host_index)


def _disable_container_end(call: Call, rtnl: Rtnl, link: LinkInfo, *, delete: bool) -> None:
    with _gone_is_fine():
        # Two messages: renamed while up it keeps its default route, and before Linux 6.2 that is refused.
        rtnl.set_link(link.index, up=False)
        rtnl.set_link(link.index, name=f"weft{call.host.random(5).hex()}")
        if delete:
            rtnl.delete_link(link.index)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except NetlinkError as error:
        if error.errno != errno.ENODEV:
            raise
