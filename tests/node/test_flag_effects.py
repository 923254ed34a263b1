"""What flags do in a daemon that runs: read they are in tests/pure/config, obeyed here."""

from pathlib import Path

import pytest

from tests.support.weftd import VXLAN, Cluster, eventually
from weft.daemon.rights import KEPT


@pytest.mark.spec("flannel.md §1.2/iface-can-reach")
def test_the_uplink_is_the_one_that_reaches_an_address(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1)
    node.netns.bridge("other0", "192.0.2.1/24")
    node.spawn("--iface-can-reach=192.0.2.9")
    node.says("uplink other0 .* with 192.0.2.1, by --iface-can-reach=192.0.2.9")
    node.says("lease .*, public IP 192.0.2.1$")


@pytest.mark.spec("flannel.md §1.2/ip-masq-fully-random-disable")
@pytest.mark.spec("flannel.md §1.2/ip-masq", cases=("iptables", "nft"))
@pytest.mark.parametrize("kind", [{}, {"EnableNFTables": True}], ids=["iptables", "nft"])
def test_masqueraded_ports_are_chosen_at_random_unless_that_is_switched_off(cluster: Cluster, kind):
    cluster.configure(VXLAN, kind)
    node = cluster.node(1).start("--ip-masq")
    look = "nft list ruleset" if kind else "iptables-save -t nat"
    random = "fully-random" if kind else "--random-fully"
    assert random in node.netns.run(look)
    node.stop()
    node.start("--ip-masq", "--ip-masq-fully-random-disable")
    rules = node.netns.run(look)
    assert random not in rules
    assert "masquerade" in rules.lower()
    node.stop()
    node.start()
    assert "masquerade" not in node.netns.run(look).lower()


@pytest.mark.spec("flannel.md §1.2/v")
def test_details_are_logged_when_they_are_asked_for(own_cluster: Cluster):
    own_cluster.configure()
    loud, still = own_cluster.node(1).start("--v=1"), own_cluster.node(2).start()
    own_cluster.etcd.stop()
    loud.says("DEBUG keep: looking at the own lease again", seconds=30)
    still.says("STORE-001", seconds=30)
    assert not still.lines("DEBUG")
    own_cluster.etcd.start()


@pytest.mark.spec("flannel.md §1.2/subnet-lease-renew-margin")
def test_the_margin_of_renewal_is_counted_in_minutes(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start("--subnet-lease-renew-margin=60")
    kv = cluster.lease_of(node)
    # An operator gives it a lease that has to be renewed in five seconds, were they minutes; in an hour, were they not.
    lease = cluster.etcd.put_leased(kv.key, kv.value, ttl=3605)
    eventually(lambda: cluster.etcd.ttl(lease)[0] <= 3602, seconds=20)
    eventually(lambda: cluster.etcd.ttl(lease)[0] >= 3604, seconds=20)


def test_only_the_rights_that_are_used_are_kept(cluster: Cluster):
    cluster.configure()
    node = cluster.node(1).start("--ip-masq")
    mask = sum(1 << number for number in KEPT)
    for status in Path(f"/proc/{node.pid}/task").glob("*/status"):
        held = dict(line.split(":", 1) for line in status.read_text().splitlines() if line.startswith("Cap"))
        of = {name: int(value, 16) for name, value in held.items()}
        assert of["CapPrm"] == of["CapEff"] == mask & of["CapPrm"] != 0
        assert of["CapBnd"] == mask & of["CapBnd"]
        assert of["CapInh"] == of["CapAmb"] == 0
