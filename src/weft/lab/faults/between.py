"""Routes, devices and entries that lead to other nodes. Pure."""

from typing import Final

from weft.lab.faults.fault import VXLAN, Fault

BETWEEN: Final = (
    Fault(
        name="route-lost",
        code="ROUTE-001",
        about="the route to a peer is gone",
        breaks="ip route delete $PEER",
        mends="",
        repaired=True,
        backends=("vxlan", "host-gw", "ipip"),
    ),
    Fault(
        name="route-stale",
        code="ROUTE-002",
        about="an old route leads part of the node's own subnet away from it",
        breaks="ip route add ${SUBNET%/*}/26 via $FAR dev $UPLINK proto static",
        mends="ip route delete ${SUBNET%/*}/26 via $FAR dev $UPLINK proto static",
    ),
    Fault(
        name="network-overlaps",
        code="ADDR-001",
        about="another bridge of the node has the pods' network",
        breaks="ip link add docker0 type bridge; ip address add ${NETWORK%.*}.1/12 dev docker0; ip link set docker0 up",
        mends="ip link delete docker0",
    ),
    Fault(
        name="device-down",
        code="VTEP-003",
        about="the device between the nodes is down",
        breaks="ip link set $DEVICE down",
        mends="ip link set $DEVICE up",
        repaired=True,
        backends=VXLAN,
    ),
    Fault(
        name="device-narrow",
        code="VTEP-003",
        about="the device has another MTU than pods",
        breaks="ip link set $DEVICE mtu 1300",
        mends="",
        repaired=True,
        backends=VXLAN,
    ),
    Fault(
        name="address-lost",
        code="VTEP-001",
        about="another program took the device's address off it",
        breaks="ip address delete ${SUBNET%/*}/32 dev $DEVICE",
        mends="",
        repaired=True,
        backends=VXLAN,
    ),
    Fault(
        name="device-managed",
        code="HOST-001",
        about="systemd-networkd takes the device for its own",
        breaks="links=/run/systemd/netif/links; mkdir -p $links; printf 'ADMIN_STATE=configured\\nNETWORK_FILE=/a\\n'"
        " >$links/$(ip -o link show $DEVICE | cut -d: -f1)",
        mends="rm -r /run/systemd",
        backends=VXLAN,
    ),
    Fault(
        name="device-gone",
        code="VTEP-004",
        about="the device between the nodes is gone",
        breaks="ip link delete $DEVICE",
        mends="",
        repaired=True,
        backends=VXLAN,
    ),
    Fault(
        name="device-squatted",
        code="VTEP-002",
        about="another program's device has the VNI and the port",
        breaks="kill -STOP $(pgrep -x weftd); ip link delete $DEVICE;"
        " ip link add somebodys type vxlan id 1 dstport 8472 dev $UPLINK; kill -CONT $(pgrep -x weftd)",
        mends="ip link delete somebodys",
        backends=VXLAN,
    ),
    Fault(
        name="mac-changed",
        code="VTEP-003",
        about="a network manager gave the device another MAC than peers were told",
        breaks="ip link set $DEVICE address 0e:00:00:00:00:01",
        mends="",
        repaired=True,
        backends=VXLAN,
    ),
    Fault(
        name="neighbour-lost",
        code="FDB-001",
        about="the neighbour entries of peers are gone",
        # Again if it fails: the daemon may be putting an entry back that it has listed.
        breaks="ip neigh flush nud permanent dev $DEVICE || ip neigh flush nud permanent dev $DEVICE",
        mends="",
        repaired=True,
        backends=VXLAN,
    ),
)
