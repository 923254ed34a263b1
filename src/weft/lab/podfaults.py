"""Faults of a node that its pods suffer from: of their bridge, their addresses and the plugins. Pure."""

from typing import Final

from weft.lab.fault import Fault

_PORTS: Final = (
    "for port in $(ip -o link show master $BRIDGE | cut -d' ' -f2 | cut -d@ -f1); do bridge link set dev $port %s; done"
)
PODS: Final = (
    Fault(
        name="bridge-down",
        code="BRIDGE-006",
        about="the pods' bridge is down",
        breaks="ip link set $BRIDGE down",
        mends="ip link set $BRIDGE up",
        repaired=True,
    ),
    Fault(
        name="bridge-elsewhere",
        code="BRIDGE-001",
        about="the pods' bridge has the address of an earlier subnet",
        breaks="ip address flush dev $BRIDGE scope global; ip address add 10.99.0.1/24 dev $BRIDGE",
        mends="ip address flush dev $BRIDGE scope global; ip address add $GATEWAY dev $BRIDGE",
    ),
    Fault(
        name="hairpin-off",
        code="BRIDGE-003",
        about="pods do not get back what they send to themselves by a Service",
        breaks=_PORTS % "hairpin off",
        mends=_PORTS % "hairpin on",
    ),
    Fault(
        name="ports-disabled",
        code="BRIDGE-007",
        about="the ports of pods' bridge take no packets",
        breaks=_PORTS % "state 0",
        mends=_PORTS % "state 3",
    ),
    Fault(
        name="ports-isolated",
        code="BRIDGE-007",
        about="pods of a node do not reach each other",
        breaks=_PORTS % "isolated on",
        mends=_PORTS % "isolated off",
    ),
    Fault(
        name="plugin-missing",
        code="CNI-001",
        about="a network names a plugin that is not there",
        breaks='echo \'{"cniVersion":"1.0.0","name":"more","plugins":[{"type":"macwand"}]}\''
        " >/etc/cni/net.d/99-more.conflist",
        mends="rm /etc/cni/net.d/99-more.conflist",
    ),
    Fault(
        name="conflist-stale",
        code="CLEAN-001",
        about="another pod network has left its configuration, and runtimes take it first",
        breaks='echo \'{"cniVersion":"1.0.0","name":"former","plugins":[{"type":"bridge"}]}\''
        " >/etc/cni/net.d/00-former.conflist",
        mends="rm /etc/cni/net.d/00-former.conflist",
    ),
    Fault(
        name="network-left",
        code="CLEAN-001",
        about="another pod network has left its links",
        breaks="ip link add cali0123456789a type bridge",
        mends="ip link delete cali0123456789a",
    ),
    Fault(
        name="subnet-file-gone",
        code="LEASE-001",
        about="the file that plugins read is deleted",
        breaks="rm /run/flannel/subnet.env",
        repaired=True,
    ),
    Fault(
        name="subnet-full",
        code="IPAM-002",
        about="all addresses of the node are given",
        breaks="for n in $(seq 2 254); do f=/var/lib/cni/networks/$CNI/${SUBNET%.*}.$n;"
        ' [ -e $f ] || printf "gone\\neth0" >$f; done',
        mends="grep -lx gone /var/lib/cni/networks/$CNI/* | xargs -r rm",
    ),
    Fault(
        name="addresses-leaked",
        code="IPAM-001",
        about="containers have gone without DEL, and their addresses are still reserved",
        breaks='for n in $(seq 100 139); do printf "gone\neth0" >/var/lib/cni/networks/$CNI/${SUBNET%.*}.$n; done',
        mends="grep -lx gone /var/lib/cni/networks/$CNI/* | xargs -r rm",
    ),
)
