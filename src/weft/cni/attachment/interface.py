"""Giving a container's interface its addresses and routes (cni.md §3.3), for every plugin that makes one.

Where a configuration asks for it, duplicates of IPv6 addresses are looked for (RFC 4862 §5.4). The kernel's defaults
take up to two seconds; on a node's bridge or a local network an answer takes milliseconds.
"""

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_interface
from typing import Final, NamedTuple

from weft.cni.attachment import pod
from weft.cni.host.host import RETIRED, Container
from weft.cni.host.sysctls import Settings
from weft.cni.sdk.startup import Call
from weft.kernel.rtnetlink import addr
from weft.kernel.rtnetlink.link import set_link
from weft.kernel.rtnetlink.netlink import Message, NetlinkError
from weft.kernel.rtnetlink.route import add_route
from weft.kernel.rtnetlink.rtnl import IPV6_ADDRESSES, Rtnl
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
_DAD_ANSWER_MS: Final = "100"
_DAD_SECONDS: Final = 5.0
# After this time it looks again although nothing was told: a list that is being read may swallow a notice.
_DAD_LOOK_SECONDS: Final = 0.1


class Step(NamedTuple):
    """A message to the kernel, and what has failed if it is refused; empty if that does not matter."""

    failed: str
    message: Message


def reason(error: OSError) -> str:
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
    """Addresses come first, then up, then routes. Raises `CniError`.

    `settle` waits between addresses and routes until duplicates would have shown; without it none are looked for.
    """
    addresses = pod.addresses_of(result, link.name)
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
    refused = rtnl.batch([step.message for step in steps])
    for position, refusal in sorted(refused.items()):
        if steps[position].failed:
            raise failure(f"{steps[position].failed}: {reason(refusal)}") from refusal


def addresses_on(rtnl: Rtnl, index: int, *, family: int = 0) -> tuple[Cidr, ...]:
    """`family` is 4, 6 or 0 for both."""
    return tuple(ip_interface((seen.ip, seen.prefixlen)) for seen in rtnl.addresses(index, family=family))


def address_message(index: int, address: Cidr, *, nodad: bool = True) -> Message:
    # A /31 or /32 has no broadcast address (RFC 3021). No duplicate detection unless it is wanted: the address is ours
    # alone by its reservation.
    length = address.network.prefixlen
    broadcast = address.network.broadcast_address if address.version == 4 and length < 31 else None
    return addr.add_address(index, address.ip, length, replace=False, nodad=nodad, broadcast=broadcast)


def _allow_ipv6(call: Call, sysctls: Settings, ifname: str) -> None:
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


def set_quietly(sysctls: Settings, name: str, value: str) -> None:
    """Write a setting that may be missing (no IPv6) or refused."""
    with suppress(OSError):
        sysctls.write(name, value)


def keep_addresses(sysctls: Settings, ifname: str) -> None:
    """Have a link keep its IPv6 addresses when somebody sets it down."""
    set_quietly(sysctls, f"net/ipv6/conf/{ifname}/keep_addr_on_down", "1")


def disable(call: Call, link: LinkInfo | None, host_index: int) -> None:
    """Make an attachment unusable at once, and have it deleted later (settled.md §2).

    `link` is the container's end, None if its namespace is gone; `host_index` the host's end, 0 if there is none.
    """
    if host_index:
        with _gone_is_fine():
            # Marked at once: should this process die now, the next daemon deletes it.
            call.host.rtnl.set_link(host_index, up=False, master=0, alias=RETIRED)
    if link is not None and call.host.container is not None:
        rtnl = call.host.container.rtnl
        # Two messages: renamed while up it keeps its default route, and before Linux 6.2 that is refused.
        messages = [set_link(link.index, up=False), set_link(link.index, name=f"weft{call.host.random(5).hex()}")]
        with _gone_is_fine():
            for error in rtnl.batch(messages).values():
                raise error
            if not host_index:
                rtnl.delete_link(link.index)
    if host_index:
        call.host.retire(host_index)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except NetlinkError as error:
        if error.errno != errno.ENODEV:
            raise


@contextmanager
def hastened_dad(container: Container, ifname: str) -> Iterator[None]:
    conf = f"net/ipv6/conf/{ifname}"
    set_quietly(container.sysctls, f"{conf}/enhanced_dad", "1")
    set_quietly(container.sysctls, f"{conf}/accept_dad", "1")
    waits = {f"{conf}/router_solicitation_delay": "0", f"net/ipv6/neigh/{ifname}/retrans_time_ms": _DAD_ANSWER_MS}
    before: dict[str, str] = {}
    with suppress(OSError):  # without IPv6 there are neither
        before = {name: container.sysctls.read(name) for name in waits}
    for name in before:
        container.sysctls.write(name, waits[name])
    try:
        yield
    finally:
        for name, value in before.items():
            set_quietly(container.sysctls, name, value)


def wait_for_dad(rtnl: Rtnl, link: LinkInfo) -> None:
    """Return once no IPv6 address of the link is tentative. `CniError` for a duplicate, or if it takes long."""
    deadline = time.monotonic() + _DAD_SECONDS
    with rtnl.notices(IPV6_ADDRESSES) as wait_for_notice:
        while True:
            seen = [address for address in rtnl.addresses(link.index) if address.ip.version == 6]
            for address in seen:
                if address.dad_failed:
                    hint = f"BRIDGE-005: another host on this network has {address.ip}"
                    raise failure(f"link {link.name} has address {address.ip} in DADFAILED state", hint)
            if not any(address.tentative for address in seen):
                return
            if time.monotonic() > deadline:
                break
            wait_for_notice(_DAD_LOOK_SECONDS)
    now = rtnl.link(link.index)
    if now is not None and now.operstate == IF_OPER_UP:
        raise failure(f"link {link.name} still has tentative addresses after {_DAD_SECONDS:g} seconds")
