"""Which part of its network each node of a lab has, and what does not go together."""

from ipaddress import IPv4Network, IPv6Network

import pytest

from weft.lab.files import labfile
from weft.lab.network import misfits, share, understand
from weft.model.value import replace


@pytest.mark.parametrize(
    "network, index, v4, v6",
    [
        ('{"Network": "10.244.0.0/16"}', 1, "10.244.1.0/24", None),
        ('{"Network": "10.244.0.0/16"}', 255, "10.244.255.0/24", None),
        ('{"Network": "10.5.0.0/16", "SubnetLen": 26, "SubnetMin": "10.5.3.0"}', 3, "10.5.3.128/26", None),
        (
            '{"Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "2001:cafe:42::/56"}',
            2,
            "10.244.2.0/24",
            "2001:cafe:42:2::/64",
        ),
        ('{"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "fd05::/48"}', 16, None, "fd05:0:0:10::/64"),
    ],
)
def test_nodes_have_the_first_subnets_in_their_order(network, index, v4, v6):
    assert share(understand(network), index) == (v4 and IPv4Network(v4), v6 and IPv6Network(v6))


@pytest.mark.parametrize(
    "store, backend, seen",
    [
        ("mesh", "mesh", ["b with a daemon of another program, in a mesh"]),
        ("mesh", "vxlan", ["Backend.Type vxlan with store mesh", "b with a daemon of another program, in a mesh"]),
        ("etcd", "mesh", ["Backend.Type mesh with store etcd"]),
        ("etcd", "vxlan", []),
    ],
)
def test_a_mesh_has_a_back_end_of_its_own_and_weftd_on_all_nodes(store, backend, seen):
    lab = replace(labfile.read("nodes: [a, {name: b, daemon: flanneld}]", "x.yaml"), store=store)
    network = understand(f'{{"Network": "10.244.0.0/16", "Backend": {{"Type": "{backend}"}}}}')
    assert [problem.seen for problem in misfits(network, lab, "x.yaml")] == seen
