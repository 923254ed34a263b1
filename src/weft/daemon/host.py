"""What this machine must have before pods are served, looked at once at the start (flannel.md §1.5)."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from weft.config.options import Options
from weft.daemon.identity import Identity
from weft.kernel.tools import ToolError, Tools
from weft.model.errors import Problem
from weft.model.net import Mac
from weft.model.snapshot import Snapshot
from weft.wire import subnetenv

log = logging.getLogger(__name__)

_BRIDGE_FILTER: Final = {
    4: Path("/proc/sys/net/bridge/bridge-nf-call-iptables"),
    6: Path("/proc/sys/net/bridge/bridge-nf-call-ip6tables"),
}


async def bridge_filter(tools: Tools, families: Iterable[int]) -> list[Problem]:
    """Have bridged packets pass iptables, as kube-proxy needs; load the module if it is missing.

    Returns a problem for each family without it: pods reach each other all the same, Services perhaps not.
    """
    missing = [family for family in families if not _BRIDGE_FILTER[family].exists()]
    if not missing:
        return []
    try:
        await tools.run("modprobe", ["br_netfilter"])
        reason = ""
    except ToolError as error:
        reason = f" and cannot be loaded ({error.strerror})"
    return [
        Problem(
            code="KERN-001",
            where=str(_BRIDGE_FILTER[family]),
            seen=f"br_netfilter is not loaded{reason}",
            hint="weft goes on; kube-proxy in iptables mode needs it for Services: modprobe br_netfilter",
        )
        for family in missing
        if not _BRIDGE_FILTER[family].exists()
    ]


def previous_subnets(options: Options) -> subnetenv.Previous:
    """Read what an earlier run wrote to the subnet file; nothing if there is none."""
    try:
        text = Path(options.subnet_file).read_text(errors="replace")
    except FileNotFoundError:
        return subnetenv.Previous()
    except OSError as error:
        log.warning("%s cannot be read: %s", options.subnet_file, error.strerror)
        return subnetenv.Previous()
    previous = subnetenv.parse(text)
    for complaint in previous.complaints:
        log.warning("%s: %s", options.subnet_file, complaint)
    return previous


def adopted(identity: Identity, snapshot: Snapshot, devices: Mapping[int, str]) -> Identity:
    """Take over the MACs of VTEPs that are there already, so that peers need not learn new ones."""

    def mac(family: int, own: Mac) -> Mac:
        link = snapshot.link(devices.get(family, ""))
        there = link.mac if link is not None and link.kind == "vxlan" else None
        return there if there is not None and there.is_unicast else own

    return Identity(mac_v4=mac(4, identity.mac_v4), mac_v6=mac(6, identity.mac_v6))
