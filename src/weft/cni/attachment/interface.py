"""Giving a container's interface its addresses and routes (cni.md §3.3), for every plugin that makes one."""

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_interface
from typing import Final, NamedTuple

from weft.cni.attachment import pod
from weft.cni.sdk.host import RETIRED, Container, Sysctls
from weft.cni.sdk.startup import Call
from weft.kernel.rtnetlink import addr
from weft.kernel.rtnetlink.link import set_link
from weft.kernel.rtnetlink.netlink import Message, NetlinkError
from weft.kernel.rtnetlink.route import add_route
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.attachment import Cidr, Result, RouteConfig
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.kernel.reported import LinkInfo
from weft.wire.cni import failure

# What `ip route` writes for a route that an administrator adds (linux/rtnetlink.h): the pod's routes are not ours
# to reconcile, and tools in the pod know this number.
RTPROT_BOOT: Final = 3

IF_OPER_UP: Final = 6
_OPERSTATES: Final = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_FIRST_PAUSE_SECONDS: Final = 0.0002
_LONGEST_PAUSE_SECONDS: Final = 0.05
_PORT_PATIENCE_SECONDS: Final = 2.5


class Step(NamedTuple):
    """A message to the kernel, and what has failed if it is refused; empty if that does not matter."""

    failed: str
    message: Message


def reason(error: OSError) -> str:
    """Return the system's words without Python's number."""
    return error.strerror or str(error)


def configure(
    call: Call,
    container: Container,
    link: LinkInfo,
    result: Result,
    *,
    first: Sequence[Step] = (),
    settle: Callable[[], None] | None = None,
    before_routes: Sequence[Step] = (),
    after_routes: Sequence[Step] = (),
) -> None:
    """Give the interface what the result says, addresses first, then up, then routes. Raises `CniError`.

    `first` are steps to take before.
    `settle` waits between addresses and routes until duplicates would have shown; without it none are looked for.
    """
    try:
        addresses = pod.addresses_of(result, link.name)
    except pod.Unfit as error:
        raise failure(str(error)) from error
    if any(address.version == 6 for address in addresses):
        _allow_ipv6(call, container.sysctls, link.name)
    steps = list(first)
    for one in addresses:
        message = address_message(link.index, one, nodad=settle is None)
        steps.append(Step(f'failed to add IP addr {one} to "{link.name}"', message))
    steps.append(Step(f'failed to set "{link.name}" UP', set_link(link.index, up=True)))
    routes = [Step(_describe(route, link.name), _route(link.index, route)) for route in pod.routes_of(result)]
    if settle is not None:
        take(container.rtnl, steps)
        settle()
        steps = []
    take(container.rtnl, [*steps, *before_routes, *routes, *after_routes])


def take(rtnl: Rtnl, steps: Sequence[Step]) -> None:
    """Take the steps in one go: the kernel takes them in order, and this socket is of this call alone."""
    refused = rtnl.batch([step.message for step in steps])
    for position, refusal in sorted(refused.items()):
        if steps[position].failed:
            raise failure(f"{steps[position].failed}: {reason(refusal)}") from refusal


def addresses_on(rtnl: Rtnl, index: int, *, family: int = 0) -> tuple[Cidr, ...]:
    """Return the addresses of a link with their prefixes, of `family` 4 or 6 (0: both)."""
    return tuple(ip_interface((seen.ip, seen.prefixlen)) for seen in rtnl.addresses(index, family=family))


def add_address(rtnl: Rtnl, index: int, address: Cidr) -> None:
    """Add an address to a link. Raises `NetlinkError`."""
    for error in rtnl.batch([address_message(index, address)]).values():
        raise error


def address_message(index: int, address: Cidr, *, nodad: bool = True) -> Message:
    """Add an address with the broadcast address that its prefix implies."""
    # A /31 or /32 has no broadcast address (RFC 3021). No duplicate detection unless it is wanted: the address is ours
    # alone by its reservation.
    length = address.network.prefixlen
    broadcast = address.network.broadcast_address if address.version == 4 and length < 31 else None
    return addr.add_address(index, address.ip, length, replace=False, nodad=nodad, broadcast=broadcast)


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


def _route(index: int, wanted: RouteConfig) -> Message:
    return add_route(
        wanted.dst.network,
        via=wanted.gw,
        index=index,
        table=MAIN_TABLE if wanted.table is None else wanted.table,
        scope=wanted.scope,
        mtu=wanted.mtu,
        advmss=wanted.advmss,
        priority=wanted.priority,
        protocol=RTPROT_BOOT,
        mode="append",
    )


def _describe(route: RouteConfig, ifname: str) -> str:
    via = f" via {route.gw}" if route.gw else ""
    return f"failed to add route '{route.dst.network}{via} dev {ifname}'"


def wait_until_up(rtnl: Rtnl, index: int) -> LinkInfo:
    """Return a bridge's port once it forwards: at once, where the kernel settles carriers before it answers."""
    waited = 0.0
    pause = _FIRST_PAUSE_SECONDS
    while True:
        link = rtnl.link(index)
        if link is None:
            raise failure("bridge port in error state: it is gone")
        if link.operstate == IF_OPER_UP:
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


def keep_addresses(sysctls: Sysctls, ifname: str) -> None:
    """Have a link of the host keep its IPv6 addresses when somebody sets it down, as it does those of IPv4."""
    set_quietly(sysctls, f"net/ipv6/conf/{ifname}/keep_addr_on_down", "1")


def disable(call: Call, link: LinkInfo | None, host_index: int) -> None:
    """Make an attachment unusable at once, and have it deleted later (settled.md §2).

    `link` is the container's end, None if its namespace is gone; `host_index` the host's end, 0 if there is none.
    Each may have gone already.
    """
    if host_index:
        with _gone_is_fine():
            # Marked at once: should this process die now, the next daemon deletes it.
            call.host.rtnl.set_link(host_index, up=False, master=0, alias=RETIRED)
    if link is not None and call.host.container is not None:
        with _gone_is_fine():
            _disable_container_end(call, call.host.container.rtnl, link.index, delete=not host_index)
    if host_index:
        call.host.retire(host_index)


def _disable_container_end(call: Call, rtnl: Rtnl, index: int, *, delete: bool) -> None:
    # Two messages: renamed while up it keeps its default route, and before Linux 6.2 that is refused.
    name = f"weft{call.host.random(5).hex()}"
    for error in rtnl.batch([set_link(index, up=False), set_link(index, name=name)]).values():
        raise error
    if delete:
        rtnl.delete_link(index)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except NetlinkError as error:
        if error.errno != errno.ENODEV:
            raise
