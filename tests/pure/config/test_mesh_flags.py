"""The flags of a mesh: its peers, and what they cannot stand beside."""

import pytest

from weft.config.flags import parse_flags
from weft.config.flagvalues import PeerAddress
from weft.model.errors import ConfigError


def refused(*argv: str, **environ: str) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        parse_flags(argv, environ)
    assert all(problem.code == "FLAG-001" for problem in caught.value.problems)
    return [(problem.where, problem.seen) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "text, host, port, shown",
    [
        ("10.0.0.5", "10.0.0.5", 51820, "10.0.0.5:51820"),
        ("10.0.0.5:7000", "10.0.0.5", 7000, "10.0.0.5:7000"),
        ("node2.example", "node2.example", 51820, "node2.example:51820"),
        ("node2:51820", "node2", 51820, "node2:51820"),
        ("fd00::5", "fd00::5", 51820, "[fd00::5]:51820"),
        ("[fd00::5]", "fd00::5", 51820, "[fd00::5]:51820"),
        ("[fd00::5]:7000", "fd00::5", 7000, "[fd00::5]:7000"),
    ],
)
def test_a_peer_has_a_name_or_an_address_and_perhaps_a_port(text, host, port, shown):
    [peer] = parse_flags(["--mesh", f"--peer={text}"], {}).peer
    assert (peer, str(peer)) == (PeerAddress(host, port), shown)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "10.0.0.5,10.0.0.6",
        "node2:0",
        "node2:65536",
        "http://node2",
        "[node2]:1",
        "[1:2]:1",
        "127.0.0.1",
        "::",
    ],
)
def test_what_no_node_can_be_reached_at_is_refused(text):
    assert refused("--mesh", f"--peer={text}") == [("--peer", repr(text))]


def test_a_node_relays_unless_it_is_told_not_to():
    assert parse_flags(["--mesh"], {}).mesh_relay
    assert not parse_flags(["--mesh", "--mesh-relay=false"], {}).mesh_relay
    assert refused("--mesh-relay=false") == [("--mesh-relay", "given without --mesh")]
    assert parse_flags(["--mesh-relay"], {}).mesh_relay


def test_peers_are_given_a_flag_each_in_their_order():
    options = parse_flags(["--mesh", "--peer=b", "--peer=a", "--mesh-create", "--password-file=p"], {})
    assert options.peer == (PeerAddress("b"), PeerAddress("a"))
    assert (options.mesh, options.mesh_create, options.password_file) == (True, True, "p")
    by_variables = {"FLANNELD_MESH": "true", "FLANNELD_PEER": "b", "FLANNELD_MESH_CREATE": "true"}
    assert parse_flags([], by_variables).peer == (PeerAddress("b"),)


def test_a_mesh_is_the_only_store():
    both = "given together with --mesh"
    assert refused("--mesh", "--kube-subnet-mgr", NODE_NAME="n1") == [("--kube-subnet-mgr", both)]
    assert refused("--mesh", "--etcd-prefix=/w", FLANNELD_ETCD_ENDPOINTS="http://a:1") == [
        ("--etcd-prefix", both),
        ("FLANNELD_ETCD_ENDPOINTS", both),
    ]


def test_without_a_mesh_its_flags_are_refused():
    without = "given without --mesh"
    assert refused("--peer=a", "--password-file=p", FLANNELD_MESH_CREATE="true") == [
        ("--peer", without),
        ("--password-file", without),
        ("FLANNELD_MESH_CREATE", without),
    ]
    assert not parse_flags(["--mesh=false", "--mesh-create=false"], {}).mesh


def test_a_mesh_is_created_by_a_configuration_that_was_given_and_by_no_default():
    assert parse_flags(["--mesh"], {}).mesh_config == ""
    options = parse_flags(["--mesh", "--net-config-path=/c"], {})
    assert (options.mesh_config, options.warnings) == ("/c", ())
    assert parse_flags(["--kube-subnet-mgr"], {"NODE_NAME": "n", "FLANNELD_NET_CONFIG_PATH": "/c"}).mesh_config == ""
    [warning] = parse_flags(["--net-config-path=/c"], {}).warnings
    assert warning == "--net-config-path has no effect: it needs --kube-subnet-mgr or --mesh"


def test_what_a_mesh_does_not_do_is_warned_of():
    assert parse_flags(["--mesh", "--subnet-lease-renew-margin=5", "--kubeconfig-file=k"], {}).warnings == (
        "--kubeconfig-file has no effect: it needs --kube-subnet-mgr",
        "--subnet-lease-renew-margin has no effect: in a mesh leases do not end",
    )
