"""Nodes of Kubernetes as leases: flannel's annotations, byte for byte, and no annotation does harm."""

import json
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kubernetes.kubeobjects import PREFIX
from weft.model.cluster import Malformed
from weft.model.errors import PeerError
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import replace
from weft.wire import kube
from weft.wire.kube import Node, annotations_for, lease_of
from weft.wire.kubelist import NotTheApiError

VXLAN = '{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e3"}'
SAID = {
    "kube-subnet-manager": "true",
    "backend-type": "vxlan",
    "backend-data": VXLAN,
    "public-ip": "192.168.1.10",
}
NODES = kube.nodes(PREFIX)
SAID_V6 = {"backend-v6-data": '{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e4"}', "public-ipv6": "fc00::10"}


def node(*cidrs: str, **annotations: str) -> Node:
    """A node with annotations whose names have `_` for `-`."""
    said = {name.replace("_", "-"): text for name, text in annotations.items()}
    return Node(name="n1", uid="u1", version="7", created=0, annotations=said, cidrs=cidrs)


def managed(*cidrs: str, **annotations: str) -> Node:
    made = node(*cidrs, **annotations)
    return Node(name="n1", uid="u1", version="7", created=0, annotations={**SAID, **made.annotations}, cidrs=cidrs)


def as_json(cidrs: Any = ("10.244.1.0/24",), **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "n1",
            "uid": "u1",
            "resourceVersion": "7",
            "creationTimestamp": "1970-01-01T00:01:00Z",
            "managedFields": [{"anything": 1}],
            **meta,
        },
        "spec": {"podCIDR": cidrs[0] if cidrs else "", "podCIDRs": list(cidrs), "taints": []},
        "status": {"images": [{"names": ["a"]}]},
    }


# --- what the API sends


def test_of_a_node_what_is_used_is_read():
    annotations = {PREFIX + name: text for name, text in SAID.items()} | {"example.com/other": "x"}
    read = NODES.one(json.dumps(as_json(annotations=annotations)).encode())
    assert read == Node(name="n1", uid="u1", version="7", created=60, annotations=SAID, cidrs=("10.244.1.0/24",))


@pytest.mark.parametrize("spec", [{"podCIDR": "10.244.1.0/24"}, {"podCIDR": "10.244.1.0/24", "podCIDRs": None}])
def test_podcidr_serves_where_podcidrs_are_missing(spec):
    read = NODES.one(json.dumps({**as_json(), "spec": spec}).encode())
    assert read.cidrs == ("10.244.1.0/24",)


@pytest.mark.parametrize("spec", [{}, {"podCIDR": ""}, {"podCIDRs": []}])
def test_a_new_node_has_no_cidr(spec):
    found = {**as_json(), "spec": spec}
    assert NODES.one(json.dumps(found).encode()).cidrs == ()
    del found["spec"]
    assert NODES.one(json.dumps(found).encode()).cidrs == ()


def test_a_page_says_how_it_goes_on():
    page = {"metadata": {"resourceVersion": "9", "continue": "t"}, "items": [as_json(), as_json(name="n2")]}
    read = NODES.page(json.dumps(page).encode())
    assert [each.name for each in read.items] == ["n1", "n2"]
    assert (read.version, read.rest) == ("9", "t")
    last = NODES.page(b'{"metadata": {"resourceVersion": "9"}, "items": null}')
    assert (last.items, last.rest) == ((), "")


def test_a_list_is_counted_by_its_first_page():
    assert kube.read_count(b'{"metadata": {"remainingItemCount": 7, "continue": "t"}, "items": [{"spec": 5}]}') == 8
    assert kube.read_count(b'{"metadata": {}, "items": []}') == kube.read_count(b'{"items": null}') == 0
    with pytest.raises(NotTheApiError):
        kube.read_count(b"<html>")


def test_events_of_a_watch():
    read = NODES.event(json.dumps({"type": "MODIFIED", "object": as_json()}).encode())
    assert (read.kind, read.version) == ("MODIFIED", "7")
    assert read.item is not None
    assert read.item.name == "n1"
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12", "creationTimestamp": None}}}
    read = NODES.event(json.dumps(bookmark).encode())
    assert (read.kind, read.version, read.item) == ("BOOKMARK", "12", None)
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    read = NODES.event(json.dumps(gone).encode())
    assert (read.kind, read.code, read.reason, read.message) == ("ERROR", 410, "Expired", "too old")


def test_the_node_of_a_pod():
    assert kube.read_pods_node(b'{"spec": {"nodeName": "n1"}}') == "n1"
    assert kube.read_pods_node(b'{"spec": {}}') == kube.read_pods_node(b"{}") == ""


def test_an_object_without_a_name_is_of_no_api():
    with pytest.raises(NotTheApiError, match="without a name"):
        NODES.one(b'{"metadata": {"resourceVersion": "7"}}')


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"metadata": 1}', b"\xff", b'{"metadata": {}}'])
def test_what_no_api_sends_is_said(body):
    with pytest.raises(NotTheApiError):
        NODES.one(body)
    with pytest.raises(NotTheApiError):
        NODES.event(body)


# --- a node as a lease


@pytest.mark.spec("flannel.md §5.4/managed")
@pytest.mark.parametrize("mark", ["", "True", "false", "true "])
def test_a_node_without_the_exact_mark_has_no_lease(mark):
    assert not isinstance(lease_of(managed("10.244.1.0/24", kube_subnet_manager=mark)), Lease)
    assert lease_of(node("10.244.1.0/24")) is None


@pytest.mark.parametrize("mark, none", [("", True), ("false", True), ("True", False), ("yes" * 1000, False)])
def test_a_mark_that_is_nonsense_is_no_word_that_a_node_has_left(mark, none):
    found = lease_of(managed("10.244.1.0/24", kube_subnet_manager=mark))
    assert (found is None) is none
    if isinstance(found, Malformed):
        assert "expected true, or false" in str(found.problem)
        assert len(str(found.problem)) < 300


@pytest.mark.spec("flannel.md §5.4/backend-data", "flannel.md §5.6/to-lease")
def test_a_node_of_one_family():
    assert lease_of(managed("10.244.1.0/24")) == Lease(
        id="n1",
        v4=IPv4Network("10.244.1.0/24"),
        v6=None,
        attrs=LeaseAttrs(
            public_ip=IPv4Address("192.168.1.10"),
            backend="vxlan",
            data={"VNI": 1, "VtepMAC": "12:c6:65:89:b4:e3"},
        ),
    )


@pytest.mark.spec("flannel.md §5.4/backend-v6-data")
def test_a_node_of_both_families_and_of_ipv6_alone():
    both = lease_of(managed("fc00:1::/64", "10.244.1.0/24", **{k.replace("-", "_"): v for k, v in SAID_V6.items()}))
    assert isinstance(both, Lease)
    assert (both.v4, both.v6) == (IPv4Network("10.244.1.0/24"), IPv6Network("fc00:1::/64"))
    assert both.attrs.data_v6 == {"VNI": 1, "VtepMAC": "12:c6:65:89:b4:e4"}
    assert both.attrs.public_ipv6 == IPv6Address("fc00::10")
    alone = {"kube-subnet-manager": "true", "backend-type": "vxlan", **SAID_V6}
    lease = lease_of(Node(name="n1", uid="u", version="1", created=5, annotations=alone, cidrs=("fc00:1::/64",)))
    assert isinstance(lease, Lease)
    assert (lease.v4, lease.v6, lease.created) == (None, IPv6Network("fc00:1::/64"), 5)
    assert lease.attrs.public_ip is None


def test_a_family_without_a_public_ip_or_without_a_podcidr_is_left_out():
    lease = lease_of(managed("10.244.1.0/24", "fc00:1::/64"))
    assert isinstance(lease, Lease)
    assert lease.subnets == (IPv4Network("10.244.1.0/24"),)
    lease = lease_of(managed("10.244.1.0/24", public_ipv6="fc00::10"))
    assert isinstance(lease, Lease)
    assert lease.v6 is None


@pytest.mark.spec("flannel.md §5.5/last-of-each-family")
def test_of_two_podcidrs_of_a_family_the_last_counts():
    lease = lease_of(managed("10.244.1.0/24", "10.244.2.0/24"))
    assert isinstance(lease, Lease)
    assert lease.v4 == IPv4Network("10.244.2.0/24")


def test_host_bits_of_a_podcidr_are_cut_off_as_gos_parser_does():
    lease = lease_of(managed("10.244.1.7/24"))
    assert isinstance(lease, Lease)
    assert lease.v4 == IPv4Network("10.244.1.0/24")


@pytest.mark.spec("flannel.md §5.4/null-data")
@pytest.mark.parametrize("data", ["null", ""])
def test_a_back_end_without_data(data):
    lease = lease_of(managed("10.244.1.0/24", backend_type="host-gw", backend_data=data))
    assert isinstance(lease, Lease)
    assert lease.attrs.data is None


@pytest.mark.spec("flannel.md §5.6/unusable-node")
@pytest.mark.parametrize(
    "cidrs, annotations, words",
    [
        (("10.244.1.0/24",), {"public_ip": "n1.example.com"}, "PublicIP is 'n1.example.com'"),
        (("10.244.1.0/24",), {"public_ipv6": "fe80::1%eth0"}, "PublicIPv6"),
        (("10.244.1.0/24",), {"backend_data": "{"}, "not JSON"),
        (("10.244.1.0/24",), {"backend_data": "[" * 100}, "nested too deeply"),
        (("10.244.1.0/24",), {"backend_data": '"' + "x" * 5000 + '"'}, "5002 bytes"),
        (("10.244.1.0/33",), {}, "podCIDR '10.244.1.0/33'"),
        (("10.1.0.0/24", "10.2.0.0/24", "fc00::/64"), {}, "podCIDRs"),
        ((), {}, "no family has both"),
    ],
)
def test_a_node_that_cannot_be_a_peer_says_why(cidrs, annotations, words):
    found = lease_of(managed(*cidrs, **annotations))
    assert isinstance(found, Malformed)
    assert found.id == "n1"
    assert words in str(found.problem)


@given(st.dictionaries(st.sampled_from(sorted({**SAID, **SAID_V6})), st.text()), st.lists(st.text(), max_size=3))
def test_no_annotation_does_harm(annotations, cidrs):
    found = lease_of(
        Node(name="n1", uid="", version="", created=0, annotations={**SAID, **annotations}, cidrs=tuple(cidrs))
    )
    assert found is None or isinstance(found, Lease | Malformed)


# --- what a node says


ATTRS = LeaseAttrs(
    public_ip=IPv4Address("192.168.1.10"), backend="vxlan", data={"VNI": 1, "VtepMAC": "12:c6:65:89:b4:e3"}
)


@pytest.mark.spec("flannel.md §5.5/patch")
def test_the_patch_of_a_new_node():
    patch = json.loads(kube.annotate(annotations_for(ATTRS, node("10.244.1.0/24")), PREFIX))
    assert patch == {
        "metadata": {
            "annotations": {
                "flannel.alpha.coreos.com/backend-data": VXLAN,
                "flannel.alpha.coreos.com/backend-type": "vxlan",
                "flannel.alpha.coreos.com/kube-subnet-manager": "true",
                "flannel.alpha.coreos.com/public-ip": "192.168.1.10",
            }
        }
    }


def test_a_node_that_says_it_already_needs_no_patch():
    assert annotations_for(ATTRS, managed("10.244.1.0/24")) == {}
    assert annotations_for(ATTRS, managed("10.244.1.0/24", backend_type="host-gw")) == {"backend-type": "vxlan"}


def test_a_node_says_whether_it_enforces_policies_and_says_it_no_more():
    enforces = replace(ATTRS, policies="enforce")
    assert annotations_for(enforces, managed("10.244.1.0/24")) == {"network-policy": "enforce"}
    found = lease_of(managed("10.244.1.0/24", network_policy="enforce"))
    assert isinstance(found, Lease)
    assert found.attrs.policies == "enforce"
    assert annotations_for(ATTRS, managed("10.244.1.0/24", network_policy="enforce")) == {"network-policy": None}


@pytest.mark.spec("flannel.md §5.4/public-ip-overwrite", "flannel.md 11.6/public-ip-overwrite")
def test_an_operators_address_is_published_instead():
    found = annotations_for(ATTRS, managed(public_ip_overwrite="172.18.0.2"))
    assert found == {"public-ip": "172.18.0.2"}
    assert annotations_for(ATTRS, managed(public_ip_overwrite="172.18.0.2", public_ip="172.18.0.2")) == {}
    assert annotations_for(ATTRS, managed(public_ip="172.18.0.2")) == {"public-ip": "192.168.1.10"}


@pytest.mark.parametrize(
    "text",
    ["x" * 100_000, "node1", "fc00::1", "127.0.0.1", "0.0.0.0", "224.0.0.1", "10.1.1.1/24"],  # noqa: S104 - an address, no socket
)
def test_an_operators_address_that_is_none_is_said_and_leaves_what_is_published(text):
    told = managed(public_ip_overwrite=text, public_ip="172.18.0.2")
    assert annotations_for(ATTRS, told) == {}
    assert annotations_for(ATTRS, managed(public_ip_overwrite=text, public_ip="nonsense")) == {
        "public-ip": "192.168.1.10"
    }
    [problem] = kube.wrong_overwrites(told, PREFIX)
    assert problem.where == f"annotation {PREFIX}public-ip-overwrite of node n1"
    assert len(str(problem)) < 300
    assert kube.wrong_overwrites(managed(public_ip_overwrite="172.18.0.2"), PREFIX) == []


def test_both_families_and_what_a_family_that_went_leaves_behind():
    both = LeaseAttrs(public_ip=ATTRS.public_ip, public_ipv6=IPv6Address("fc00::10"), backend="host-gw")
    said = {
        "kube-subnet-manager": "true",
        "backend-type": "host-gw",
        "public-ip": "192.168.1.10",
        "backend-data": "null",
        "public-ipv6": "fc00::10",
        "backend-v6-data": "null",
    }
    assert annotations_for(both, node()) == said
    then = Node(name="n1", uid="", version="", created=0, annotations=said, cidrs=())
    alone = LeaseAttrs(public_ip=ATTRS.public_ip, backend="host-gw")
    assert annotations_for(alone, then) == {"public-ipv6": None, "backend-v6-data": None}
    assert annotations_for(alone, node(public_ipv6_overwrite="fc00::1")).keys() == {
        "kube-subnet-manager", "backend-type", "public-ip", "backend-data",
    }  # fmt: skip


@given(st.sampled_from(["vxlan", "host-gw", ""]), st.dictionaries(st.text(), st.integers() | st.text()))
def test_what_is_published_is_read_again(backend, data):
    attrs = LeaseAttrs(public_ip=IPv4Address("1.2.3.4"), backend=backend, data=data)
    said = {name: text for name, text in annotations_for(attrs, node()).items() if text is not None}
    assert kube.attrs_of(Node(name="n", uid="", version="", created=0, annotations=said, cidrs=())) == attrs


@pytest.mark.spec("flannel.md §5.8/condition")
def test_the_patch_of_the_condition():
    [condition] = json.loads(kube.network_available(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)))["status"]["conditions"]
    assert condition == {
        "type": "NetworkUnavailable",
        "status": "False",
        "lastHeartbeatTime": "2026-01-02T03:04:05Z",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
        "reason": "FlannelIsUp",
        "message": "Flannel is running on this node",
    }


def test_an_event_is_one_of_the_node_by_its_name():
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    event = json.loads(kube.event_of("n1", now, kind="Warning", reason="ROUTE-002", message="gone"))
    assert event["metadata"] == {"generateName": "n1.", "namespace": "default"}
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "ROUTE-002", "gone")
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-02T03:04:05Z"
    assert event["source"] == {"component": "weftd", "host": "n1"}


@pytest.mark.spec("flannel.md §5.4/node-public-ip")
def test_the_address_that_an_operator_gives_a_node():
    assert kube.address_in(node(), kube.NODE, IPv4Address, PREFIX) is None
    given_ = node(node_public_ip="10.0.0.1", node_public_ipv6="fc00::1")
    assert kube.address_in(given_, kube.NODE, IPv4Address, PREFIX) == IPv4Address("10.0.0.1")
    assert kube.address_in(given_, kube.NODE_V6, IPv6Address, PREFIX) == IPv6Address("fc00::1")


@pytest.mark.parametrize(
    "text, family",
    [
        ("eth0", IPv4Address),
        ("fc00::1", IPv4Address),
        ("127.0.0.1", IPv4Address),
        ("10.0.0.1", IPv6Address),
    ],
)
def test_an_address_that_is_none_is_said(text, family):
    with pytest.raises(
        PeerError, match=r"annotation flannel\.alpha\.coreos\.com/node-public-ip of node n1: .*expected an"
    ):
        kube.address_in(node(node_public_ip=text), kube.NODE, family, PREFIX)
