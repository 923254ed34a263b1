"""What a lab would be, before it is."""

from weft.lab.commands import show
from weft.lab.files import labfile
from weft.lab.network import planned

NETWORK = "network: {EnableIPv6: true, Network: 10.5.0.0/16, IPv6Network: 'fd05::/48'}"
FILE = f"nat: [2]\n{NETWORK}\nnodes: [a, {{name: b, segment: 2, daemon: flanneld}}]"


def test_a_node_has_its_address_in_the_segment_that_it_is_in():
    lab = planned(labfile.read(FILE, "x.yaml"))
    assert [node.underlay for node in lab.nodes] == [["172.31.0.11", "fd31::11"], ["172.30.0.12", "fd30::12"]]


def test_a_mesh_chooses_subnets_itself():
    said = show.plan(planned(labfile.read("store: mesh\nnodes: 1\npods: 1", "x.yaml")))
    assert [line.rpartition("  ")[2] for line in said.splitlines() if line.startswith("pod1-1")] == ["by the mesh"]


def test_it_is_said_with_its_daemons_and_nat():
    said = show.plan(planned(labfile.read(FILE, "x.yaml")))
    assert "\nbehind a NAT: segment 2 (cone)\n" in said
    assert [line.split()[5] for line in said.splitlines() if line.startswith(("a ", "b "))] == ["weftd", "flanneld"]
