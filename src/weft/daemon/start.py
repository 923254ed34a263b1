"""Steps of a start beside its phases: asking again and again, finding tools, and removing what was left before."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing, suppress
from ipaddress import ip_network
from typing import Final, TypeVar

from weft.config.netconf import NetConf
from weft.daemon import host
from weft.daemon.commands import ours
from weft.daemon.disk import instance
from weft.daemon.planes.contract import Place
from weft.daemon.planes.kernel import NodeKernel
from weft.daemon.process.rights import Modules
from weft.daemon.world import World
from weft.desired.inputs import Inputs
from weft.kernel.netfilter.firewall import Firewall, Tooling
from weft.kernel.netfilter.monitor import Monitor
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.codec import VTEP_ALIAS
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.tools import Tools
from weft.model.errors import Problem, Unavailable
from weft.model.kernel.objects import Ownership, Snapshot
from weft.model.kernel.policytable import BRIDGE, INET, table_of
from weft.model.kernel.reported import LinkInfo
from weft.model.node.status import Status
from weft.model.value import replace

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
_T = TypeVar("_T")


async def answered(ask: Callable[[], Awaitable[_T]], what: str, status: Status | None = None) -> _T:
    """What the store says instead is logged once, and what `status` waits for."""
    said = ""
    while True:
        try:
            return await ask()
        except Unavailable as error:
            problem = error.problems[0]
            if str(problem) != said:
                log.warning("waiting for %s: %s", what, problem)
            said = str(problem)
            if status is not None:
                status.waiting = problem
            await asyncio.sleep(_RETRY_SECONDS)


async def firewall(
    netconf: NetConf, held: ExitStack, modules: Modules, tools: Tools, *, policies: bool
) -> tuple[Firewall, Tooling, Monitor | None]:
    found = Firewall(tools)
    if policies or not netconf.nftables:
        for problem in await host.bridge_filter(modules, netconf.families):
            log.warning("%s", problem)
    modules.end()
    tooling = await found.tooling("nft" if netconf.nftables else "iptables", netconf.families)
    for problem in tooling.problems:
        log.error("%s", problem)
    for problem in tooling.warnings:
        log.warning("%s", problem)
    try:
        return found, tooling, held.enter_context(closing(Monitor(tools.own)))
    except Unavailable as error:
        log.warning("%s", error)
        return found, replace(tooling, notices=False), None


async def remove_remains(world: World, place: Place, inputs: Inputs) -> None:
    """Remove what back ends have left that no daemon runs any more; one that does has claimed its device.

    Networks of other instances here, and former ones, count as ours, too.
    """
    networks = (*inputs.netconf.networks, *inputs.former_networks)
    for name, backend in world.backends.items():
        if backend.undo is not None and name != inputs.netconf.backend:
            await backend.undo(place)
        left = backend.remains
        if left is not None and not instance.is_claimed(f"device/{left.device}"):
            for where in left.remove(lambda: (*networks, *ours.networks(place.directory.parent))):
                log.info("removed from %s what served %s", where, left.device)


def policies_left() -> list[str]:
    """The tables of an earlier run that has enforced policies; none where another daemon does now."""
    try:
        with closing(NfSocket.open()) as nf:
            there = [name for name in (INET, BRIDGE) if nf.has_table(table_of(name))]
    except OSError:  # without nf_tables there is none
        return []
    return [] if instance.is_claimed("policies") else there


def remove_policies() -> None:
    if not policies_left():
        return
    from weft.kernel.netfilter.policies import remove_tables

    try:
        with closing(NfSocket.open()) as nf:
            for name in remove_tables(nf):
                log.info("removed table %s: --network-policy is off", name)
    except OSError as error:
        hint = (
            "What an earlier run forbade stays forbidden: 'nft delete table inet weft-policy', and bridge weft-policy"
        )
        seen = f"cannot be removed: {error.strerror}"
        log.error("%s", Problem(code="NFT-001", where="tables of policies", seen=seen, hint=hint))  # noqa: TRY400 - it says all


def former_devices(snapshot: Snapshot, ownership: Ownership) -> list[LinkInfo]:
    """Of another back end, or another VNI."""
    return [
        link
        for link in snapshot.links
        if link.alias == VTEP_ALIAS
        and link.name not in ownership.devices
        and any(ownership.leads_to(ip_network(each.ip)) for each in snapshot.addresses_of(link.index))
    ]


async def remove_former_devices(kernel: NodeKernel, ownership: Ownership) -> None:
    """Unless another daemon keeps them."""
    for link in former_devices(await kernel.snapshot(), ownership):
        if not instance.is_claimed(f"device/{link.name}"):
            log.warning("ROUTE-002: removed link %s, left by an earlier configuration", link.name)
            with suppress(NetlinkError):
                kernel.rtnl.delete_link(link.index)
