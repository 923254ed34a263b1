"""Pictures of a lab, to the letter where they are text."""

from xml.etree import ElementTree as ET

import pytest

from scripts.docs.lab import PICTURE, drawn, report
from weft.lab.graph import drawing
from weft.lab.graph.picture import dot, mermaid, picture, tree

SVG = "{http://www.w3.org/2000/svg}"


TREE = """\
lab weft: vxlan, IPv4 and IPv6; store http://172.31.0.1:2379, ready
underlay 172.31.0.0/16, fd31::/64
├─ node1, ready
│  └─ eth0 (uplink)  172.31.0.11, fd31::11
│     └─ flannel.7 (VXLAN 7)  10.244.1.0, flannel-v6.7 (VXLAN 7)  2001:cafe:42:1::
│        └─ cni0 (bridge)  10.244.1.1, 2001:cafe:42:1::1
│           ├─ pod1-1  10.244.1.2, 2001:cafe:42:1::2
│           └─ pod1-2  10.244.1.3, 2001:cafe:42:1::3
└─ node2, silent
   └─ eth0 (uplink)  172.31.0.12, fd31::12
      └─ flannel.7 (VXLAN 7)  10.244.2.0, flannel-v6.7 (VXLAN 7)  2001:cafe:42:2::
         └─ cni0 (bridge)  10.244.2.1, 2001:cafe:42:2::1
            ├─ pod2-1  10.244.2.2, 2001:cafe:42:2::2
            └─ pod2-2  10.244.2.3, 2001:cafe:42:2::3
"""
MERMAID = """\
flowchart TB
  underlay["underlay<br/>172.31.0.0/16"]
  store("store, ready<br/>http://172.31.0.1:2379")
  store --- underlay
  subgraph n1["node1, ready"]
    n1d0["eth0, uplink<br/>172.31.0.11"]
    n1d1["flannel.1, VXLAN 1<br/>10.244.1.0"]
    n1d2["cni0, bridge<br/>10.244.1.1"]
    n1p0("pod1-1<br/>10.244.1.2")
    n1d0 --- n1d1
    n1d1 --- n1d2
    n1d2 --- n1p0
  end
  underlay --- n1d0
"""
DOT = """\
graph "weft" {
  node [shape=box, fontname="sans-serif", fontsize=11]; edge [color="#5b6b82"]
  underlay [label="underlay\\n172.31.0.0/16"]
  store [label="store, ready\\nhttp://172.31.0.1:2379", shape=cylinder]
  store -- underlay
  subgraph cluster_n1 {
    label="node1, ready"; style=rounded
    n1d0 [label="eth0, uplink\\n172.31.0.11"]
    n1d1 [label="cni0, bridge\\n10.244.1.1"]
    n1p0 [label="pod1-1\\n10.244.1.2", style=rounded]
    n1d0 -- n1d1
    n1d1 -- n1p0
  }
  underlay -- n1d0
}
"""


def test_a_lab_as_a_tree():
    assert tree(picture(report(pods=2, families=(4, 6), state="silent", VNI=7))) == TREE
    assert tree(picture(report(nodes=1, pods=0))).endswith("         └─ cni0 (bridge)  10.244.1.1\n")


def test_a_lab_in_languages_of_graphs():
    assert mermaid(picture(report(nodes=1))) == MERMAID
    assert dot(picture(report(nodes=1, backend="host-gw"))) == DOT
    both = mermaid(picture(report(nodes=1, families=(4, 6))))
    for edge in ("n1d0 --- n1d1", "n1d1 --- n1d3", "n1d0 --- n1d2", "n1d2 --- n1d3", "n1d3 --- n1p0"):
        assert f"    {edge}\n" in both


@pytest.mark.parametrize(
    "backend, families, options, devices",
    [
        ("udp", (4,), {}, ["flannel0"]),
        ("udp", (4, 6), {}, ["flannel0"]),
        ("ipip", (4,), {}, ["flannel.ipip"]),
        ("ipsec", (4,), {"PSK": "x" * 96}, []),
        ("alloc", (4,), {}, []),
        ("wireguard", (4, 6), {}, ["flannel-wg", "flannel-wg-v6"]),
        ("wireguard", (4, 6), {"Mode": "auto"}, ["flannel-wg"]),
        ("vxlan", (4,), {"VNI": 300}, ["flannel.300"]),
    ],
)
def test_the_devices_of_a_back_end(backend, families, options, devices):
    [node] = picture(report(nodes=1, backend=backend, families=families, **options)).nodes
    assert [device.name for device in node.devices] == devices
    assert sum(len(device.addresses) for device in node.devices) == (len(families) if devices else 0)


def boxes(root: ET.Element) -> list[tuple[str, float, float, float, float]]:
    return [
        (each.attrib["class"], *(float(each.attrib.get(name, 0)) for name in ("x", "y", "width", "height")))
        for each in root.iter(f"{SVG}rect")
    ]


@pytest.mark.parametrize(
    "given",
    [{}, {"nodes": 1, "pods": 0}, {"nodes": 9, "pods": 3, "families": (4, 6), "state": "exited -9"}, {"pods": 14}],
)
def test_a_drawing_is_whole_and_nothing_in_it_lies_over_another(given):
    lab = report(**given)
    root = ET.fromstring(drawing.svg(picture(lab)))  # noqa: S314 - it is ours
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    found = boxes(root)
    for _, left, top, wide, high in found:
        assert left >= 0
        assert left + wide <= width
        assert top + high <= height
    inner = [box for box in found if box[0] in ("box", "device", "underlay")]
    for number, (_, left, top, wide, high) in enumerate(inner):
        for _, left2, top2, wide2, high2 in inner[number + 1 :]:
            assert left + wide <= left2 or left2 + wide2 <= left or top + high <= top2 or top2 + high2 <= top
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert {node.name for node in lab.nodes} <= set(texts)
    shown = [pod for pod in lab.pods if int(pod.name.rpartition("-")[2]) <= 12]
    assert {pod.name for pod in shown} <= set(texts)
    assert ("and 2 more" in texts) == (given.get("pods") == 14)
    assert texts.count("exited -9") == (given.get("state") == "exited -9")
    assert sum(box[0] == "underlay" for box in found) == -(-len(lab.nodes) // 4)


def test_a_drawing_has_colours_for_light_and_dark_and_nothing_from_elsewhere():
    shown = drawing.svg(picture(report()))
    assert "@media (prefers-color-scheme: dark)" in shown
    assert shown.count("://") == 1 + shown.count("store http://"), "the name of SVG, and what is shown"


def test_the_picture_in_the_docs_is_drawn_by_this():
    assert PICTURE.read_text() == drawn(), "`make docs` draws it"
