"""What a look at a machine answers by itself."""

from ipaddress import ip_address

from weft.model.kernel.objects import Snapshot
from weft.model.kernel.reported import AddressInfo, LinkInfo

ETH0, ETH1 = LinkInfo(index=2, name="eth0"), LinkInfo(index=3, name="eth1")
ADDRESSES = tuple(
    AddressInfo(index=index, ip=ip_address(text), prefixlen=24)
    for index, text in ((2, "192.0.2.1"), (3, "192.0.2.2"), (3, "192.0.2.1"))
)
SNAPSHOT = Snapshot(links=(ETH0, ETH1), addresses=ADDRESSES)


def test_links_are_found_by_name_and_index():
    assert SNAPSHOT.link("eth1") == SNAPSHOT.link(3) == ETH1
    assert SNAPSHOT.link("eth2") is None


def test_addresses_of_a_link_and_of_all():
    assert SNAPSHOT.addresses_of(3) == ADDRESSES[1:]
    assert SNAPSHOT.ips == {ip_address("192.0.2.1"), ip_address("192.0.2.2")}
