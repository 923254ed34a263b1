"""The links of a node in words."""

from ipaddress import ip_address, ip_network

from tests.pure.diag.doctor.sights import ADDRESSES, CNI0, ETH0, LINKS, MAC, ROUTES, VXLAN
from weft.diag.sight.interfaces import MOST, Tables, described
from weft.model.kernel.reported import AddressInfo, FdbInfo, LinkInfo, NeighbourInfo, NextHop, RouteInfo
from weft.model.value import replace

TABLES = Tables(
    links=[LinkInfo(index=1, name="lo", loopback=True), *LINKS],
    addresses=list(ADDRESSES),
    routes=list(ROUTES),
    neighbours=[
        NeighbourInfo(index=VXLAN, ip=ip_address("10.244.2.0"), mac=MAC, state=0x80),
        NeighbourInfo(index=ETH0, ip=ip_address("192.168.0.7"), mac=None, state=0x20),
    ],
    fdb=[
        FdbInfo(index=VXLAN, mac=MAC, remote=ip_address("192.168.0.2"), state=0x80),
        FdbInfo(index=CNI0, mac=MAC, remote=None, state=0x02, vlan=7),
    ],
    about={VXLAN: "VNI 1, UDP port 8472"},
)


def test_each_link_has_what_is_its():
    eth0, vxlan, cni0, pod = described(TABLES)
    assert (eth0.name, eth0.kind, eth0.state, eth0.mtu) == ("eth0", "device", "up", 1500)
    assert (eth0.addresses, eth0.routes) == (["192.168.0.1/24"], ["default via 192.168.0.254"])
    assert eth0.neighbours == ["192.168.0.7 at no MAC failed"]
    assert vxlan.routes == ["10.244.2.0/24 via 10.244.2.0 (weft)"]
    assert vxlan.neighbours == [f"10.244.2.0 at {MAC} permanent"]
    assert vxlan.fdb == [f"{MAC} behind 192.168.0.2 permanent"]
    assert vxlan.about == "VNI 1, UDP port 8472"
    assert cni0.fdb == [f"{MAC} VLAN 7"]
    assert (pod.kind, pod.master) == ("veth", "cni0")


def test_what_is_unusual_is_said():
    nowhere = RouteInfo(dst=ip_network("10.9.0.0/16"), index=ETH0, kind=6, src=ip_address("192.168.0.1"))
    two = RouteInfo(
        dst=ip_network("10.8.0.0/16"),
        hops=(NextHop(index=CNI0), NextHop(index=ETH0, via=ip_address("192.168.0.8"), onlink=True)),
    )
    odd = replace(
        TABLES,
        links=[replace(LINKS[0], operstate=2, mac=MAC), replace(LINKS[1], up=False)],
        routes=[nowhere, two],
        addresses=[
            AddressInfo(index=ETH0, ip=ip_address("fd00::1"), prefixlen=64, dad_failed=True, deprecated=True),
            AddressInfo(index=ETH0, ip=ip_address("10.0.0.1"), prefixlen=32, peer=ip_address("10.0.0.2")),
        ],
    )
    eth0, vxlan = described(odd)
    assert (eth0.state, eth0.mac, vxlan.state) == ("no carrier", str(MAC), "down")
    assert eth0.routes == ["blackhole 10.9.0.0/16 src 192.168.0.1", "10.8.0.0/16 via 192.168.0.8 onlink"]
    assert eth0.addresses == ["fd00::1/64 duplicate deprecated", "10.0.0.1/32 peer 10.0.0.2"]


def test_of_thousands_some_are_told_and_the_number_of_the_others():
    many = [RouteInfo(dst=ip_network(f"10.{n // 256}.{n % 256}.0/24"), index=ETH0) for n in range(MOST + 7)]
    eth0, *_ = described(replace(TABLES, routes=many))
    assert (len(eth0.routes), eth0.more) == (MOST, {"routes": 7})
