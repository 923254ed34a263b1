"""Calls of the firewall plugin, and what they leave in the rules of a host without a system bus."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.otherroot import give_root
from tests.support.cni.site import Site
from tests.support.netns import Netns

BOTH = ("10.0.0.2/24", "2001:db8:1:2::1/64")
MATCH = "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"


@pytest.fixture
def root() -> Iterator[Path]:
    # The name of a unix socket is at most 107 bytes long, which pytest's own directories may exceed.
    with tempfile.TemporaryDirectory(prefix="weft-") as path:
        yield Path(path)


@pytest.fixture
def site(netns: Netns, tmp_path: Path, root: Path) -> Site:
    """A host without a system bus."""
    site = Site(netns, tmp_path)
    give_root(site, root)
    return site


def config(ips=BOTH, *, bridge="cni0", version="1.0.0", **more):
    interfaces = [{"name": bridge}, {"name": "eth0", "sandbox": "/x"}]
    addresses = [{"address": ip, "interface": 1} for ip in ips]
    previous = {"cniVersion": version, "interfaces": interfaces, "ips": addresses}
    conf = {"cniVersion": version, "name": "net", "type": "firewall", "prevResult": previous, **more}
    return {key: value for key, value in conf.items() if value is not None}


def call(site, command, conf, *, by="weft", **more):
    plugin = site.via(by)
    return plugin("firewall", command, conf, **{"netns": "/x", **more})


def rules(netns, family=4):
    """Return chains and rules of the filter table, but for the kernel's own."""
    program = {4: "iptables-save", 6: "ip6tables-save"}[family]
    lines = netns.run(f"{program} -t filter").splitlines()
    own = (":INPUT", ":FORWARD", ":OUTPUT")
    return [line.removesuffix(" [0:0]") for line in lines if line[:1] in ":-" and not line.startswith(own)]


def for_ip(ip):
    return [f"-A CNI-FORWARD -d {ip} {MATCH}", f"-A CNI-FORWARD -s {ip} -j ACCEPT"]


FRAME = [
    ":CNI-ADMIN -",
    ":CNI-FORWARD -",
    '-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD',
    '-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN',
]


def elements(netns, name):
    """Return the elements of a set of our table, empty if there is none."""
    listed = netns.json(f"nft -j list set inet weft-firewall {name} 2>/dev/null || true")
    items = [item["set"].get("elem", []) for item in listed["nftables"] if "set" in item] if listed else []
    return [item.get("elem", item) if isinstance(item, dict) else item for item in (items[0] if items else [])]
