"""The lab file: what it may say, and every mistake of it at once, with its line."""

import json

import pytest

from tests.support.lab import new_name, weft
from weft.lab import spec
from weft.lab.files import labfile
from weft.model.errors import ConfigError


def read(text, **options):
    return labfile.read(text, "x.yaml", **options)


def problems(text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "null"])
def test_an_empty_file_is_no_lab(text):
    [problem] = problems(text)
    assert problem.startswith("LAB-001 x.yaml: the file is empty; expected keys such as name, nodes and network.")


def test_a_file_without_keys_is_the_usual_lab():
    lab = read("{}")
    assert lab == labfile.regular(name="weft", backend="vxlan", families=(4,), nft=False, nodes=3, pods=2)
    assert [pod.name for pod in lab.pods] == ["pod1-1", "pod1-2", "pod2-1", "pod2-2", "pod3-1", "pod3-2"]


def test_everything_a_file_may_say():
    lab = read(
        """
        apiVersion: weft.dev/v1
        kind: Lab
        name: edge
        network:
          EnableIPv6: true
          Network: 10.5.0.0/16
          IPv6Network: fd05::/48
          EnableNFTables: true
          Backend: {Type: vxlan, DirectRouting: true}
        nodes:
          - left
          - name: right
            pods: [web, db]
          - {name: far, pods: 1}
          - {name: empty, pods: 0}
        pods: 3
        """
    )
    assert lab.name == "edge"
    assert lab.families == (4, 6)
    assert lab.nftables
    assert [(node.name, node.index) for node in lab.nodes] == [("left", 1), ("right", 2), ("far", 3), ("empty", 4)]
    assert [(pod.name, pod.node) for pod in lab.pods] == [
        ("pod1-1", "left"),
        ("pod1-2", "left"),
        ("pod1-3", "left"),
        ("web", "right"),
        ("db", "right"),
        ("pod3-1", "far"),
    ]


def test_segments_behind_a_nat():
    nodes = "nodes: [a, {name: b, segment: 3}, {name: c, segment: 2}, {name: d, segment: 2}]"
    assert read(f"{nodes}\nnat: [3, 2, 3]").nat == {2: "cone", 3: "cone"}
    assert read(f"{nodes}\nnat: [{{segment: 2, kind: hard}}, {{segment: 3}}]").nat == {2: "hard", 3: "cone"}
    assert read(nodes).nat == {}


def test_with_an_option_alone_each_node_but_the_first_is_behind_a_nat_of_its_own():
    lab = labfile.regular(name="x", backend="vxlan", families=(4,), nft=False, nodes=10, pods=0, nat="hard")
    assert [node.segment for node in lab.nodes] == [1, 2, 3, 4, 5, 6, 7, 8, 2, 3]
    assert lab.nat == dict.fromkeys(range(2, 9), "hard")


@pytest.mark.parametrize(
    "file, program, path",
    [
        ("labs/x.yaml", "flanneld", "flanneld"),
        ("labs/x.yaml", "./flanneld", "labs/./flanneld"),
        ("labs/x.yaml", "/opt/flanneld", "/opt/flanneld"),
        ("standard input", "bin/weftd", "bin/weftd"),
    ],
)
def test_a_daemon_with_a_slash_is_seen_from_the_files_folder(file, program, path):
    lab = labfile.read(f"nodes: [a, {{name: b, daemon: {program}}}]", file)
    assert [node.daemon for node in lab.nodes] == ["", path]


def test_a_lab_on_kubernetes():
    assert read("store: kubernetes") == labfile.regular(
        name="weft", backend="vxlan", families=(4,), nft=False, nodes=3, pods=2, store="kubernetes"
    )
    nodes = read("kubernetes: true")
    assert (nodes.store, nodes.kubelets, nodes.pods) == ("kubernetes", True, ())
    assert read("{kubernetes: true, store: kubernetes}") == nodes
    assert read("kubernetes: false") == read("store: etcd") == read("{}")


@pytest.mark.parametrize(
    "text, problem",
    [
        ("store: consul", "LAB-001 x.yaml:1: store: 'consul'; expected one of etcd, kubernetes"),
        ("kubernetes: maybe", "LAB-001 x.yaml:1: kubernetes: 'maybe'; expected true or false"),
        ("kubernetes: true\nstore: etcd", "LAB-001 x.yaml:2: etcd as the store of Kubernetes nodes"),
        ("kubernetes: true\npods: 1", "LAB-001 x.yaml:1: pods in a lab of Kubernetes nodes"),
    ],
)
def test_what_does_not_go_with_kubernetes(text, problem):
    [told] = problems(text)
    assert told.startswith(problem)


def test_pods_by_name_and_node():
    lab = read("nodes: 2\npods: [{name: web, node: node2}, {name: db, node: node1}]")
    assert [(pod.name, pod.node) for pod in lab.pods] == [("web", "node2"), ("db", "node1")]


def test_the_name_of_the_command_wins():
    assert read("name: edge", name="other").name == "other"


def test_the_network_goes_to_the_store_as_written():
    lab = read("network: {Network: 10.5.0.0/16, SubnetLen: 25, Backend: {Type: host-gw}}")
    assert lab.network == '{"Network": "10.5.0.0/16", "SubnetLen": 25, "Backend": {"Type": "host-gw"}}'


# What is told behind the file's name, for what the file says.
MISTAKES = {
    "name: a\nnods: 3\n": (
        "2: unknown key 'nods'; expected one of apiVersion, kind, name, network, nodes, pods, store, password, "
        "kubernetes, nat, topology, cuts, policies, services. Did you mean 'nodes'?"
    ),
    "nodes:\n- name: a\n  pod: 2\n": (
        "3: unknown key 'pod'; expected one of name, pods, segment, daemon, extraPortMappings, link."
        " Did you mean 'pods'?"
    ),
    "name: a\nname: b\n": "2: 'name' a second time",
    "nodes:\n- a\n- b\n- a\n": "4: a second node named 'a'",
    "nodes: [{name: a, pods: [x,\n x]}]": "2: a pod named 'x' beside a pod of that name",
    "nodes: [a]\npods: [{name: a, node: a}]": "2: a pod named 'a' beside a node of that name",
    "nodes: [left]\npods:\n- {name: x, node: lift}\n": (
        "3: a pod on node 'lift'; expected a node of this lab. Did you mean 'left'?"
    ),
    "pods: [{name: x}]": "1: a pod without 'node'",
    "pods: [{name: x, node: node1}]\nservices: [{name: web, port: 80, pods: [x, 5]}]": "2: pods: 5; expected text",
    "nodes: [{pods: 2}]": "1: a node without 'name'",
    "nodes: []": "1: no nodes",
    "nodes: [all]": "1: a node named 'all'; expected a name that means nothing else in a lab",
    "nodes: [store]": "1: a node named 'store'; expected a name that means nothing else in a lab",
    "pods: [{name: localhost, node: node1}]": "1: a pod named 'localhost'; expected a name that means nothing else",
    "nodes: 0": "1: nodes: 0; expected 1 to 1000",
    "pods: 300": "1: pods: 300; expected 0 to 250",
    "nodes: three": "1: nodes: 'three'; expected a whole number",
    "pods: {name: x}": "1: pods is a mapping",
    "- a\n": "1: the lab is a list; expected keys such as apiVersion, kind, name",
    "name: Edge Lab": "1: a lab named 'Edge Lab'; expected a lower-case letter",
    "nodes:\n- {name: a, segment: 9}": "2: segment: 9; expected 1 to 8",
    "nat: 2": "1: nat is no list; expected a list of segments, as [2]",
    "nat: [1]": "1: a segment behind a NAT: 1; expected 2 to 8",
    "nat: [{kind: hard}]": "1: a NAT without 'segment'; expected a mapping with segment",
    "nodes: [{name: a, segment: 3}]\nnat: [2, 3]": "2: nat: no node is in segment 2; expected a segment of a node",
    "nodes: 2\ntopology: star": "2: a topology 'star'; expected full, line, ring or partial:SEED, or lists of nodes",
    "topology: {node1: node2}": "1: topology: a mapping",
    "nodes: 2\ntopology: [[node1, node3]]": "2: a topology with node3; expected nodes of the lab: node1, node2",
    "nodes: 3\ntopology: [[node1, node2]]": "2: a topology in which no way leads from node1 to node3",
    "nodes:\n- name: a\n  daemon: ''": "3: daemon: ''; expected a program",
    "nodes: [{name: a, daemon: 3}]": "1: daemon: 3; expected text, in quotes",
    "kubernetes: true\nnodes: [{name: a, daemon: flanneld}]": (
        "1: another daemon in a lab of Kubernetes nodes; expected weft as a DaemonSet"
    ),
    "kubernetes: true\nnodes: [{name: a, segment: 2}]": "1: several segments in a lab of Kubernetes nodes",
    "nodes: [../x]": "1: a node named '../x'",
    "pods: [{name: a, node: node1, namespace: My}]": "1: namespace: 'My'; expected small letters, digits and '-'",
    "pods: [{name: a, node: node1, labels: [a]}]": "1: labels: ",
    "policies: web.yaml": "1: policies is no list; expected a list of files, or of policies",
    "policies: [5]": "1: a file of policies: 5; expected text",
    "nodes: [{name: a, daemon: flanneld}]\npolicies: []": (
        "1 nodes: policies, and a with a daemon of another program, which enforces none; expected weftd on all nodes"
    ),
    "store: kubernetes\nnodes: 2\npolicies: []": (
        "2 nodes: policies, and nodes whose pods Kubernetes' API does not know; "
        "expected nodes of Kubernetes, a lab on etcd, or a mesh"
    ),
    "kubernetes: true\nnodes: 2\npolicies:\n- {kind: ClusterNetworkPolicy, "
    "apiVersion: policy.networking.k8s.io/v1beta1, metadata: {name: a}, "
    "spec: {tier: Admin, priority: 1, subject: {namespaces: {}}}}": (
        "2 nodes: a ClusterNetworkPolicy, whose kind Kubernetes' API lacks; expected NetworkPolicy, Namespace"
    ),
    "policies:\n- {kind: Pod, apiVersion: v1, metadata: {name: a}}": (
        "2: a Pod; expected NetworkPolicy, ClusterNetworkPolicy, Namespace: a lab has its own pods"
    ),
    "policies: [none.yaml]": "1: none.yaml: No such file or directory; expected a file of policies",
    "kind: Pod": "1: kind is 'Pod'; expected Lab",
    "apiVersion: v1": "1: apiVersion is 'v1'; expected weft.dev/v1",
    "nodes: [1\n": "2: expected ',' or ']'",
    "nodes: 4\nnetwork: {Network: 10.244.0.0/24, Backend: {Type: vxlan}}\n": (
        "2 network: Network 10.244.0.0/24 has 3 subnets (/26) for 4 nodes; expected a subnet for each node"
    ),
    "nodes: 2\npods: 6\nnetwork: {Network: 10.244.0.0/16, SubnetLen: 30, Backend: {Type: vxlan}}": (
        "3 network: node1 has 6 pods, and its IPv4 subnet (/30) room for 1; expected an address for each pod. "
        "Take larger subnets of nodes, or fewer pods."
    ),
    "pods: 0\nnodes: [{name: a, pods: 5}]\n"
    "network:\n  {EnableIPv4: false, EnableIPv6: true, IPv6Network: fd05::/64, IPv6SubnetLen: 126,\n"
    "  Backend: {Type: vxlan}}": ("4 network: a has 5 pods, and its IPv6 subnet (/126) room for 1"),
    "nodes: 256\npods: 0\n": "1 nodes: Network 10.244.0.0/16 has 255 subnets (/24) for 256 nodes",
    "name: a\0": "1: unacceptable character #x0000",
    "[" * 1000: "1: nested too deeply",
    "network: {Network: 2020-01-01}": "1: network: Object of type date is not JSON serializable; expected what JSON",
    "network: &a {x: *a}": "1: network: Circular reference detected; expected what JSON can say",
    "name: 2020-13-45": "1: name: '2020-13-45' is no timestamp; expected a value, or quotes",
    "name: 0x_": "1: name: '0x_' is no int; expected a value, or quotes",
    "kubernetes: !!bool maybe": "1: kubernetes: 'maybe' is no bool",
    "nodes: [{name: a, segment: !!timestamp x}]": "1: segment: 'x' is no timestamp",
    "nodes: &a\n- {<<: {pods: 2}, name: a}": "2: a merge key, '<<'; expected each key written out",
    f"nodes: [{', '.join(f'n{number}' for number in range(1001))}]\npods: 0\nnetwork: {{Network: 10.0.0.0/12}}": (
        "1: 1001 nodes; expected 1 to 1000"
    ),
    "name: !!python/object:os.system x": "1: name: could not determine a constructor",
}


@pytest.mark.parametrize("text, problem", MISTAKES.items())
def test_a_mistake_is_told_with_its_line(text, problem):
    [seen] = problems(text)
    assert seen.startswith(f"LAB-001 x.yaml:{problem}")


def test_a_mistake_in_the_network_keeps_its_own_code_and_gets_the_line():
    [seen] = problems("name: a\nnetwork: {Network: 10.5.0.0/33, Backend: {Type: vxlan}}\n")
    assert seen.startswith('CONF-002 x.yaml:2 network: Network: "10.5.0.0/33"; expected an IPv4 network')


def test_misspelt_keys_of_the_network_are_mistakes_with_their_line_and_a_guess():
    text = """
network:
  Network: 10.5.0.0/16
  SubnetLn: 30
  Backend:
    Type: vxlan
    DirectRoutng: true
"""
    assert problems(text) == [
        "CONF-002 x.yaml:4 network: SubnetLn: an unknown key. Did you mean SubnetLen?",
        "CONF-002 x.yaml:7 network: Backend.DirectRoutng: an unknown key. Did you mean Backend.DirectRouting?",
    ]
    # Where the misspelt one is needed, it explains what is missing.
    assert problems("network:\n  Netwrk: 10.5.0.0/16\n  Backend: {Type: vxlan}\n") == [
        "CONF-002 x.yaml:2 network: Network: missing; expected the network of all pods",
        "CONF-002 x.yaml:2 network: Netwrk: an unknown key. Did you mean Network?",
    ]


def test_a_key_of_the_network_that_stands_there_twice_is_a_mistake():
    text = "network:\n  Network: 10.5.0.0/16\n  network: 10.6.0.0/16\n  Backend: {Type: vxlan, VNI: 1,\n    VNI: 2}\n"
    assert [problem.partition(";")[0] for problem in problems(text)] == [
        "LAB-001 x.yaml:3: 'network' a second time",
        "LAB-001 x.yaml:5: 'VNI' a second time",
    ]


def test_a_pod_network_on_top_of_the_labs_own_is_refused():
    [seen] = problems("nodes: 2\nnetwork: {Network: 172.16.0.0/12, Backend: {Type: vxlan}}\n")
    assert seen.startswith("ADDR-001 x.yaml:2 network: Network 172.16.0.0/12 overlaps 172.31.0.0/16")
    # Nodes of another segment have another network.
    text = "nodes: [a, {name: b, segment: 2}]\nnetwork: {Network: 172.30.0.0/16, Backend: {Type: vxlan}}"
    [seen] = problems(text)
    assert seen.startswith("ADDR-001 x.yaml:2 network: Network 172.30.0.0/16 overlaps 172.30.0.0/16")


def test_all_mistakes_are_told_at_once():
    seen = problems("nam: a\nnodes: [a, a]\nnetwork: {Network: 1, Backend: 2}\npods: -1\n")
    assert [problem.partition(": ")[0] for problem in seen] == [
        "LAB-001 x.yaml:1",
        "LAB-001 x.yaml:2",
        "CONF-002 x.yaml:3 network",
        "CONF-002 x.yaml:3 network",
        "LAB-001 x.yaml:4",
    ]


def test_the_command_refuses_a_bad_file_and_starts_nothing(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("nodes: [a, a]\nnods: 3\n")
    name = new_name()
    ran = weft("lab", "up", "--name", name, str(path), check=False)
    assert ran.returncode == 2
    assert f"weft: LAB-001 {path}:1: a second node named 'a'" in ran.stderr
    assert f"weft: LAB-001 {path}:2: unknown key 'nods'" in ran.stderr
    assert name not in weft("lab", "list").stdout


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (("--backend", "vxlam"), "CONF-002 --backend vxlam"),
        (("--name", "../x"), "LAB-001 --name: a lab named '../x'"),
        (("--nodes", "0"), "FLAG-001 weft lab up: Invalid value for '--nodes'"),
        (("--nodes", "300"), "LAB-001 --nodes 300: Network 10.244.0.0/16 has 255 subnets (/24) for 300 nodes"),
        (("no-such-file.yaml",), "FLAG-001 weft lab up: Invalid value for '[FILE]'"),
    ],
)
def test_bad_options(arguments, problem):
    ran = weft("lab", "up", *arguments, check=False)
    assert ran.returncode == 2
    assert problem in ran.stderr


def test_more_nodes_by_options_than_the_network_has_subnets():
    with pytest.raises(ConfigError, match=r"--nodes 300: Network .* has 255 subnets"):
        labfile.regular(name="a", backend="vxlan", families=(4,), nft=False, nodes=300, pods=0)


def test_a_pods_name_that_is_no_text():
    with pytest.raises(ConfigError, match="a pod's name: 5; expected text, in quotes"):
        labfile.read("nodes: [{name: a, pods: [5]}]", "x.yaml")


def test_names_that_fit_everywhere():
    for name in ("a", "node1", "a-b", "x" * 32):
        assert not spec.name_problem("a node", "", name)
    for name in ("", "1a", "-a", "a-", "A", "a_b", "a.b", "a/b", "x" * 33, "a\n"):
        assert spec.name_problem("a node", "", name), name


@pytest.mark.parametrize(
    "families, network",
    [
        ((4,), {"Network": "10.244.0.0/16"}),
        ((6,), {"EnableIPv4": False, "EnableIPv6": True, "IPv6Network": "2001:cafe:42::/56"}),
        ((4, 6), {"Network": "10.244.0.0/16", "EnableIPv6": True, "IPv6Network": "2001:cafe:42::/56"}),
    ],
)
def test_the_configuration_of_a_lab_of_options(families, network):
    for nft in (False, True):
        written = json.loads(spec.net_conf(backend="host-gw", families=families, nft=nft))
        assert written == {**network, "EnableNFTables": nft, "Backend": {"Type": "host-gw"}}


def test_aliases_that_multiply_are_refused_at_once():
    """600 bytes that stand for more values than any machine holds."""
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
    text = "\n".join(["a0: &a0 [x, x, x]", *levels, "nodes: *a19"])
    assert len(text) < 1200
    assert problems(text) == [
        "LAB-001 x.yaml: its aliases multiply to more than 100000 values; expected a lab file. Write them out"
    ]


def test_an_alias_of_what_holds_it_is_refused():
    [problem] = problems("nodes: &all [*all]")
    assert problem.startswith("LAB-001 x.yaml")


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 5000, "0b" + "1" * 20000, "-0x" + "f" * 5000])
@pytest.mark.parametrize("key", ["nodes", "pods"])
def test_a_number_of_thousands_of_digits_is_named(key: str, number: str):
    [problem] = problems(f"{key}: {number}")
    assert problem.startswith("LAB-001 x.yaml:1: ")
