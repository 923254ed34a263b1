"""Upstream's own daemon beside ours in the virtual machine, with the back ends that this machine's kernel lacks."""

from pathlib import Path
from typing import Any

from tests.node.ipsecnode import IPSEC, end_charons
from tests.node.sending import is_refused, transfer
from tests.support.crossing import cross
from tests.support.flanneld import Flanneld
from tests.support.traffic import reaches
from tests.support.weftd import DUAL, Daemon, eventually
from tests.vm.scenarios_nodes import IPIP, SECONDS, WG, cluster
from weft.daemon.backends.ipsec import process


def check_wireguard_beside_flanneld() -> None:
    _beside({**WG, **DUAL})


def check_wireguard_on_one_device_beside_flanneld() -> None:
    _beside({**WG, **DUAL, "Backend": {"Type": "wireguard", "Mode": "auto"}})


def check_ipip_beside_flanneld() -> None:
    _beside(IPIP)


def check_ipsec_beside_flanneld() -> None:
    """Upstream's charon is configured by the machine: with all plugins it would carry packets itself."""
    conf = process.configuration(Path("/var/run/charon.vici"), in_process=False)
    Path("/etc/strongswan.conf").write_text(conf)
    _beside(IPSEC)


def _beside(conf: dict[str, Any]) -> None:
    """Traffic between pods of a node of ours and of one of upstream's, after a restart of ours, too."""
    with cluster(conf) as here:
        ours, theirs = here.node(1), here.node(2, kind=Flanneld)
        try:
            for node in (ours, theirs):
                node.start()
            _reach(ours, theirs)
            one, two = ours.pods[0], theirs.pods[0]
            for ip in two.ips:
                assert transfer(one, two, ip, megabytes=1)
                assert is_refused(one, ip)
            ours.stop()
            ours.start()
            assert all(reaches(two, ip) for ip in one.ips)
            assert not ours.lines("ERROR")
        finally:
            end_charons(here)


def _reach(one: Daemon, two: Daemon) -> None:
    near, far = one.pod(), two.pod()
    eventually(lambda: all(reaches(near, ip) for ip in far.ips), seconds=SECONDS)
    cross(one, two)
