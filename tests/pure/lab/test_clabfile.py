"""Files of containerlab: what is read, what is refused and why, and what a lab is written as."""

import json
import shlex

import pytest
import yaml

from weft.config.flags import parse_flags
from weft.lab.files import clabexport, labfile
from weft.lab.spec import Lab, Overrides, Port
from weft.model.errors import ConfigError

TOPOLOGY = """\
name: edge
topology:
  defaults: {kind: linux, image: debian}
  kinds: {linux: {cmd: sleep inf}}
  nodes:
    left: {ports: ["8080:30080", "127.0.0.2:8443:443/tcp", "[::1]:8080:80"]}
    right: {kind: linux, entrypoint: /bin/sh}
    alone:
    lan: {kind: bridge}
  links:
    - endpoints: ["left:eth1", "lan:one"]
    - endpoints: ["right:eth1", "lan:two"]
"""


def read(text: str, over: Overrides | None = None) -> Lab:
    return labfile.read(text, "x.clab.yml", over=over)


def problems(text: str, over: Overrides | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, over)
    return [f"{problem.where} {problem.seen}; expected {problem.expected}" for problem in caught.value.problems]


def segments(nodes: str, *links: str) -> dict[str, int]:
    said = ", ".join(f"{{endpoints: [{link}]}}" for link in links)
    lab = read(f"topology: {{defaults: {{kind: linux}}, nodes: {{{nodes}}}, links: [{said}]}}")
    return {node.name: node.segment for node in lab.nodes}


def test_a_topology():
    lab = read(TOPOLOGY)
    assert (lab.name, lab.families, json.loads(lab.network)["Backend"]) == ("edge", (4,), {"Type": "vxlan"})
    assert [(node.name, node.index, node.segment) for node in lab.nodes] == [
        ("left", 1, 2),
        ("right", 2, 2),
        ("alone", 3, 1),
    ]
    assert lab.nodes[0].ports == (
        Port(address="127.0.0.1", outside=8080, inside=30080),
        Port(address="127.0.0.2", outside=8443, inside=443),
        Port(address="::1", outside=8080, inside=80),
    )
    assert [(pod.name, pod.node) for pod in lab.pods][:3] == [
        ("pod1-1", "left"),
        ("pod1-2", "left"),
        ("pod2-1", "right"),
    ]


def test_options_say_what_the_file_does_not():
    lab = read(TOPOLOGY, Overrides(pods=0, backend="host-gw", family="46", nft=True))
    network = json.loads(lab.network)
    assert (lab.pods, lab.families, network["Backend"], lab.nftables) == ((), (4, 6), {"Type": "host-gw"}, True)
    assert [problem.partition(";")[0] for problem in problems(TOPOLOGY, Overrides(nodes=2, kubernetes=True))] == [
        "x.clab.yml:1 --nodes beside a file of containerlab",
        "x.clab.yml:1 --kubernetes beside a file of containerlab",
    ]
    assert [
        told.partition(";")[0] for told in problems(TOPOLOGY.replace("lan:two", "x:y"), Overrides(backend="vx"))
    ] == [
        '--backend vx: Backend.Type unknown backend "vx"',
        "x.clab.yml:12 a link of 'x'",
    ]


@pytest.mark.parametrize(
    "nodes, links, expected",
    [
        ("a: , b: ", (), {"a": 1, "b": 1}),
        ("a: , b: ", ("'a:eth1', 'b:eth1'",), {"a": 1, "b": 1}),
        ("a: , b: , c: ", ("'a:eth1', 'b:eth1'",), {"a": 2, "b": 2, "c": 1}),
        ("a: , b: , c: , d: ", ("a, b", "c, d"), {"a": 1, "b": 1, "c": 2, "d": 2}),
        # Two bridges with a link between them are one network, whichever link comes first.
        ("a: , b: , x: {kind: bridge}, y: {kind: ovs-bridge}", ("a, x", "b, y", "x, y"), {"a": 1, "b": 1}),
        ("a: , b: , x: {kind: bridge}, y: {kind: bridge}", ("x, y", "a, x", "b, y"), {"a": 1, "b": 1}),
        # Two cables between two nodes are one network, and bridges without a node are none.
        ("a: , b: ", ("'a:eth1', 'b:eth1'", "'a:eth2', 'b:eth2'"), {"a": 1, "b": 1}),
        ("a: , b: , x: {kind: bridge}, y: {kind: bridge}", ("x, y", "a, b"), {"a": 1, "b": 1}),
        # What is called `store` is the lab's own, whatever is said of it.
        ("a: , store: {exec: [x], foo: bar}", (), {"a": 1}),
    ],
)
def test_networks_that_links_make_are_segments(nodes: str, links: tuple[str, ...], expected: dict[str, int]):
    assert segments(nodes, *links) == expected


@pytest.mark.parametrize(
    "change, problem",
    [
        (("name: edge", "name: Edge"), "1 a lab named 'Edge'"),
        (("name: edge", "mgmt: {network: x}"), "1 'mgmt', which a lab does not have: the underlay's addresses are"),
        (("  kinds:", "  groups: {}\n  kinds:"), "4 'groups', which a lab does not have: each node says what it is"),
        (("cmd: sleep", "exec: sleep"), "4 'exec', which a lab does not have: nodes run weft, and what `weft lab exec"),
        (("kinds: {linux: {cmd: sleep inf}}", "kinds: [linux]"), "4 kinds is no mapping"),
        (("defaults: {kind", "defaults: {kidn"), "3 unknown key 'kidn'; expected one of kind, image, entrypoint, cmd"),
        (("{kind: bridge}", "{kind: nokia_srlinux}"), "9 node 'lan' of kind 'nokia_srlinux'; expected linux, or bri"),
        (("kind: linux, image", "image"), "6 node 'left' without a kind"),
        (("alone:", "alone: {binds: [a]}"), "8 'binds', which a lab does not have: nodes see the machine's files"),
        (("alone:", "right:"), "8 'right' a second time; expected each name once"),
        (("alone:", "Alone:"), "8 a node named 'Alone'"),
        (("alone:", "alone: 5"), "8 the node is 5; expected keys such as kind"),
        (("lan:two", "alan:two"), "12 a link of 'alan'; expected a node of this file"),
        (("lan:two", "right:eth2"), "12 a link of right:eth1 and right:eth2; expected two nodes"),
        ((', "lan:two"', ""), "12 a link of right:eth1; expected two nodes"),
        (('"right:eth1", "lan:two"', "right: lan"), "12 endpoints: a list; expected a list of names"),
        (('endpoints: ["right', 'ends: ["right'), "12 unknown key 'ends'"),
        (("lan:two", "left:eth2"), "12 node 'left' in two networks"),
        (("links:", "links: {}\n  lonks:"), "10 links is no list"),
        (('["8080:30080", "127.0.0.2:8443:443/tcp", "[::1]:8080:80"]', "8080"), "6 ports is no list"),
        (
            ("8080:30080", "8080:80/udp"),
            "6 port '8080:80/udp'; expected TCP ports, as '8080:80' or '127.0.0.1:8080:80'",
        ),
        (("8080:30080", "80"), "6 port '80'"),
        (('"8080:30080"', "[8080]"), "6 a port; expected TCP ports"),
        (('"8080:30080"', "2222:2x"), "6 port '2222:2x'; expected TCP ports"),
        (
            ("{kind: bridge}", "{kind: bridge, ports: ['80:80']}"),
            "9 ports of 'lan', a bridge; expected ports of a node of",
        ),
        (("alone:", "pod1-1:"), "8 node 'pod1-1' has the name of a pod"),
        (("alone:", "? [a]\n    :"), "8 a key of nodes that is no name"),
        (("lan:two", "host:veth1"), "12 a link of 'host', which a lab does not have: links join two nodes"),
        (("lan:two", "store:eth1"), "12 a link of 'store', which a lab does not have: its store has no links"),
        (
            ('endpoints: ["right', 'type: veth\n      endpoints: ["right'),
            "12 'type', which a lab does not have: links join two nodes",
        ),
        (("8080:30080", "0.0.0.0:8080:80"), "6 port 8080 of 0.0.0.0; expected an address of loopback, or nothing"),
        (("8080:30080", "999.0.0.1:8080:80"), "6 port 8080 of 999.0.0.1"),
        (("8080:30080", "8080:70000"), "6 port 70000; expected 1 to 65535"),
        (("8080:30080", "127.0.0.2:8443:1"), "6 port 8443 of 127.0.0.2 a second time"),
    ],
)
def test_mistakes(change: tuple[str, str], problem: str):
    found = problems(TOPOLOGY.replace(*change))
    assert any(told.startswith(f"x.clab.yml:{problem}") for told in found), found


def test_a_topology_without_nodes():
    [told] = problems("topology: {nodes: {lan: {kind: bridge}}}")
    assert "no nodes; expected one node of kind linux at least" in told
    assert "no nodes" in problems("topology: {}")[0]
    assert "no nodes" in problems("topology:")[0]


def test_empty_parts_are_as_if_they_were_not_there():
    text = "topology: {defaults: , kinds: {linux: }, links: , nodes: {a: {kind: linux, ports: , image: }}}"
    assert [node.name for node in read(text).nodes] == ["a"]


def test_ports_without_quotes():
    assert read("topology: {nodes: {a: {kind: linux, ports: [2222:22]}}}").nodes[0].ports == (
        Port(address="127.0.0.1", outside=2222, inside=22),
    )


def test_too_many_networks():
    nodes = ", ".join(f"{letter}{end}: " for letter in "abcdefghi" for end in "12")
    with pytest.raises(ConfigError, match="9 networks between nodes"):
        segments(nodes, *(f"{letter}1, {letter}2" for letter in "abcdefghi"))


@pytest.mark.parametrize("text", ["{}", "name: far\nnodes: [a, b]", TOPOLOGY, "kubernetes: true", "nodes: 1\npods: 0"])
def test_what_is_written_is_read_as_the_same_nodes(text: str):
    lab = read(text)
    again = read(clabexport.written(lab))
    assert again.name == lab.name
    assert [(node.name, node.index, node.ports) for node in again.nodes] == [
        (node.name, node.index, node.ports) for node in lab.nodes
    ]


def test_the_store_of_a_written_lab_holds_its_network():
    lab = read("network: {Network: 10.5.0.0/16, Backend: {Type: host-gw}}")
    nodes = yaml.safe_load(clabexport.written(lab))["topology"]["nodes"]
    [command] = nodes["store"]["exec"]
    assert shlex.split(command) == ["etcdctl", "put", "/coreos.com/network/config", lab.network]
    options = parse_flags(nodes["node1"]["cmd"].split(), {})
    assert options.etcd_endpoints == (f"http://clab-{lab.name}-store:2379",)
    assert f"{options.etcd_prefix}/config" == "/coreos.com/network/config"


@pytest.mark.parametrize(
    "text, left_out",
    [
        ("pods: 0", ""),
        ("{}", "pods (`weft cni` attaches them)."),
        ("kubernetes: true", "nodes of Kubernetes."),
        (
            "nodes: [a, {name: b, segment: 2, daemon: flanneld}]\nnat: [2]\nservices: [{name: w, port: 8, pods: 'p*'}]",
            "pods (`weft cni` attaches them), Services, segments of the underlay, NAT, daemons that are not weft's.",
        ),
    ],
)
def test_what_is_left_out_is_told(text: str, left_out: str):
    [*_, last] = [line for line in clabexport.written(read(text)).splitlines() if line.startswith("# ")]
    assert last.endswith(left_out)
    assert ("Left out" in last) == bool(left_out)
