"""What a kind of device says of itself, by its table."""

from ipaddress import IPv4Address

from tests.support import builders
from weft.desired.backends import hostgw, vxlan
from weft.desired.node import devices_of
from weft.model.kernel.links import Attribute, Link
from weft.model.net import Ip, Mac
from weft.model.value import replace


class Tunnel(Link):
    local: Ip
    word: int = 0

    kind = "tunnel"
    attributes = (
        Attribute("parent", 1, "u32"),
        Attribute("local", 2, "ip4"),
        Attribute("word", 3, "u16", live=True),
    )


TUNNEL = Tunnel(name="t0", mtu=1480, parent=2, parent_name="eth0", local=IPv4Address("10.0.0.1"))


def test_in_words_it_has_what_its_table_has():
    assert str(TUNNEL) == "link t0 tunnel local 10.0.0.1 word 0 dev eth0 mtu 1480"
    assert str(replace(TUNNEL, parent=0, mac=Mac(bytes(6)))) == (
        "link t0 tunnel local 10.0.0.1 word 0 address 00:00:00:00:00:00 mtu 1480"
    )
    assert str(Link(name="t0", mtu=9, parent=7)) == "link t0 of another kind dev 7 mtu 9"


def test_what_is_live_can_be_changed_in_place():
    assert TUNNEL.changes_in_place(replace(TUNNEL, word=5, mtu=9, parent_name="wan"))
    assert not TUNNEL.changes_in_place(replace(TUNNEL, parent=3))
    assert not TUNNEL.changes_in_place(Link(name="t0", mtu=1480, parent=2))


def test_two_of_one_identity_cannot_both_be():
    assert TUNNEL.excludes(replace(TUNNEL, name="t1", word=5))
    assert not TUNNEL.excludes(replace(TUNNEL, name="t1", local=IPv4Address("10.0.0.2")))


def test_the_kernel_takes_one_vtep_a_vni_and_port():
    vtep = builders.vtep(Mac(bytes(6)))
    assert vtep.excludes(replace(vtep, name="old.1", local=IPv4Address("10.9.9.9"), gbp=True))
    assert not vtep.excludes(replace(vtep, vni=2))
    assert not vtep.excludes(replace(vtep, port=4789))
    assert not vtep.excludes(Link(name="old.1", mtu=1450))


def test_a_nodes_devices_are_the_back_ends():
    assert devices_of(builders.inputs(family="46", vni=3)) == {
        "flannel.3": vxlan.VxlanLink,
        "flannel-v6.3": vxlan.VxlanLink,
    }
    assert devices_of(builders.inputs(backend="host-gw")) == {}
    assert hostgw.LINKS == ()
