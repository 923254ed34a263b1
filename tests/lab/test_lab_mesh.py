"""A lab without a store: its nodes are a mesh, which goes on while daemons die."""

import json

import yaml

from tests.support.lab import WEFT, Lab, lab, weft


def everything_reaches_everything(of: Lab) -> None:
    of.weft("pingall")  # which fails when one is lost


def test_a_lab_on_a_mesh_serves_its_pods_and_outlives_its_daemons():
    with lab("--store", "mesh", "--nodes", "3", "--pods", "1") as mesh:
        everything_reaches_everything(mesh)
        peers = json.loads(mesh.weft("exec", "node2", "--", WEFT, "mesh", "peers", "-o", "json").stdout)
        assert [peer["name"] for peer in peers] == ["node1", "node2", "node3"]
        things = [f"node{number}/weftd" for number in (1, 2, 3)]
        mesh.weft("kill", *things)
        everything_reaches_everything(mesh)
        mesh.weft("start", *things)
        everything_reaches_everything(mesh)
        refused = mesh.weft("kill", "store", check=False)
        assert "this lab has no store" in refused.stderr


def test_nodes_in_a_line_reach_each_other_by_way_of_those_between():
    with lab("--store", "mesh", "--topology", "line", "--nodes", "3", "--pods", "1") as line:
        everything_reaches_everything(line)
        peers = json.loads(line.run("node1", WEFT, "peers", "-o", "json"))
        ways = {peer["public"][0]: peer["way"] for peer in peers}
        assert ways["172.31.0.13"].startswith("via node2")
        trace = line.weft("trace", "pod1-1", "pod3-1").stdout
        assert "node2, there" in trace
        assert "node2, back" in trace
        assert "it arrives, and the answer comes back" in trace
        kept = yaml.safe_load(line.weft("export").stdout)
        assert kept["topology"] == [["node1", "node2"], ["node2", "node3"]]
        assert "cuts" not in kept


def test_with_a_password_nothing_is_said_in_clear():
    with lab("--store", "mesh", "--password", "--nodes", "3", "--pods", "1") as sealed:
        everything_reaches_everything(sealed)  # at once: it is up when WireGuard has met
        peers = json.loads(sealed.run("node1", WEFT, "peers", "-o", "json"))
        assert {peer["way"].partition(":")[0] for peer in peers} == {"direct"}
        assert "vxlan" not in sealed.run("node1", "ip", "-d", "link")
        assert not json.loads(sealed.run("node1", WEFT, "doctor", "-o", "json"))["findings"]
        assert yaml.safe_load(sealed.weft("export").stdout)["password"]


def test_a_mesh_and_its_back_end_belong_together():
    for store, backend in (("mesh", "vxlan"), ("etcd", "mesh")):
        ran = weft("lab", "up", "--store", store, "--backend", backend, "--dry-run", check=False)
        assert ran.returncode == 2
        assert f"Backend.Type {backend} with store {store}" in ran.stderr
