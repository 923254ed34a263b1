"""What this machine must have before pods are served, looked at once at the start (flannel.md §1.5)."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from weft.config.options import Options
from weft.daemon.disk import files
from weft.daemon.disk.identity import Identity
from weft.daemon.process.rights import Modules
from weft.desired.inputs import Device
from weft.kernel.tools import ToolError
from weft.model.errors import Problem
from weft.model.kernel.marks import BRIDGE_NETFILTER
from weft.model.kernel.objects import Snapshot
from weft.model.net import Mac
from weft.wire import subnetenv

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 16
_BRIDGE_FILTER: Final = {family: Path("/proc/sys", name) for family, name in BRIDGE_NETFILTER.items()}


async def bridge_filter(modules: Modules, families: Iterable[int]) -> list[Problem]:
    """Have bridged packets pass iptables, as kube-proxy needs; load the module if it is missing.

    Returns a problem for each family without it: pods reach each other all the same, Services perhaps not.
    """
    missing = [family for family in families if not _BRIDGE_FILTER[family].exists()]
    if not missing:
        return []
    try:
        await modules.run("modprobe", ["br_netfilter"])
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
    path = Path(options.subnet_file)
    # Not set aside: the path is an operator's, and writing the file replaces what can be replaced.
    previous = files.load(path, _parse, limit=_MAX_BYTES, aside=False) or subnetenv.Previous()
    for complaint in previous.complaints:
        log.warning("%s: %s", options.subnet_file, complaint)
    return previous


def _parse(content: bytes) -> subnetenv.Previous:
    return subnetenv.parse(content.decode(errors="replace"))


def adopted(identity: Identity, snapshot: Snapshot, devices: Iterable[Device]) -> Identity:
    """Take over the MACs of devices that are there already, so that peers need not learn new ones."""
    macs: dict[int, Mac] = {}
    for device in devices:
        link = snapshot.link(device.name)
        there = None if link is None or link.kind != device.kind.kind else link.mac
        if device.kind.has_mac and there is not None and there.is_unicast:
            for family in device.families:
                macs.setdefault(family, there)
    return Identity(mac_v4=macs.get(4, identity.mac_v4), mac_v6=macs.get(6, identity.mac_v6))
