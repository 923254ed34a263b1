"""Duplicate address detection of IPv6 (RFC 4862 §5.4) where a configuration asks for it, in a tenth of a second.

By its defaults the kernel waits up to a second before it asks and one more for an answer. On a node's own bridge, and
on a local network, a machine that has the address answers within milliseconds.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from weft.cni.attachment import interface
from weft.cni.attachment.interface import set_quietly
from weft.cni.sdk.host import Container
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.reported import LinkInfo
from weft.wire.cni import failure

_ANSWER_MS: Final = "100"
_PATIENCE_SECONDS: Final = 5.0
# After this time it looks again although nothing was told: a list that is being read may swallow a notice.
_LOOK_SECONDS: Final = 0.1


@contextmanager
def hastened(container: Container, ifname: str) -> Iterator[None]:
    """Turn detection on for an interface, and shorten the kernel's waits while the block lasts."""
    conf = f"net/ipv6/conf/{ifname}"
    set_quietly(container.sysctls, f"{conf}/enhanced_dad", "1")
    set_quietly(container.sysctls, f"{conf}/accept_dad", "1")
    waits = {f"{conf}/router_solicitation_delay": "0", f"net/ipv6/neigh/{ifname}/retrans_time_ms": _ANSWER_MS}
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


def wait(rtnl: Rtnl, link: LinkInfo) -> None:
    """Return once no IPv6 address of the link is tentative. Raises `CniError` for a duplicate, or if it takes long."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with rtnl.ipv6_address_notices() as wait_for_notice:
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
            wait_for_notice(_LOOK_SECONDS)
    now = rtnl.link(link.index)
    if now is not None and now.operstate == interface.IF_OPER_UP:
        raise failure(f"link {link.name} still has tentative addresses after {_PATIENCE_SECONDS:g} seconds")
