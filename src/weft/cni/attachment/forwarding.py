"""Turning the host into a router for its pods, without taking its own default route away."""

from collections.abc import Iterable
from typing import Final

from weft.cni.attachment.interface import set_quietly
from weft.cni.sdk.startup import Call
from weft.model.kernel.marks import FORWARDING

# Routes from router advertisements (linux/rtnetlink.h).
_RTPROT_RA: Final = 9


def turn_on(call: Call, families: Iterable[int]) -> None:
    """Forward packets of these families, 4 and 6."""
    for family in sorted(set(families)):
        if is_on(call, family):
            continue
        if family == 6:
            _keep_advertised_routes(call)
        call.host.sysctls.write(FORWARDING[family], "1")


def is_on(call: Call, family: int) -> bool:
    """Tell whether the host forwards packets of a family."""
    return call.host.sysctls.read(FORWARDING[family]) == "1"


def _keep_advertised_routes(call: Call) -> None:
    """Let links that have routes from advertisements go on listening to them.

    Once the host forwards, the kernel drops those routes and hears no more where `accept_ra` is 1; with 2 it does not
    mind.
    """
    for index in {route.index for route in call.host.rtnl.routes(family=6, protocol=_RTPROT_RA)}:
        link = call.host.rtnl.link(index)
        if link is None:
            continue
        setting = f"net/ipv6/conf/{link.name}/accept_ra"
        if call.host.sysctls.read(setting) == "1":
            set_quietly(call.host.sysctls, setting, "2")
