"""What a node's runtime in the lab says before it asks any plugin."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from weft.cni.runtime.library import Ran
from weft.lab.inside.pod import NodeRuntime, Sandbox
from weft.lab.spec import Pod
from weft.model.errors import ConfigError, Unavailable

POD = Sandbox(id="c1", netns="/run/netns/pod1", pod=Pod(name="pod1", node="node1"))


async def nothing(_program: str, _variables: Mapping[str, str], _stdin: bytes) -> Ran:
    raise AssertionError("no plugin is asked")


def attach(networks: Path) -> str:
    with pytest.raises(Unavailable) as caught:
        asyncio.run(NodeRuntime(nothing, networks=networks, cache=networks / "cache").attach(POD))
    return str(caught.value)


def test_a_directory_without_a_network_is_named(tmp_path: Path):
    assert f"{tmp_path}: no network is configured there" in attach(tmp_path)


def test_a_list_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path):
    (tmp_path / "10-broken.conflist").write_text("{")
    said = attach(tmp_path)
    assert "10-broken.conflist" in said
    assert "no network is configured" not in said


def test_a_network_that_the_node_does_not_have_is_refused_with_those_it_has(tmp_path: Path):
    (tmp_path / "10-net.conflist").write_text(CHAIN)
    (tmp_path / "20-other.conflist").write_text(CHAIN.replace('"net"', '"other"'))
    wanted = Sandbox(id="c1", netns="/run/netns/pod1", pod=Pod(name="pod1", node="node1", network="nets"))
    with pytest.raises(ConfigError, match="no network 'nets' is configured on the node; expected one of net, other"):
        asyncio.run(NodeRuntime(nothing, networks=tmp_path, cache=tmp_path / "cache").attach(wanted))


CHAIN = """{"name": "net", "cniVersion": "1.0.0", "plugins": [{"type": "one"}, {"type": "two"}]}"""
ARGS = "IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME=pod1;K8S_POD_INFRA_CONTAINER_ID=c1"


class Node:
    """A node whose plugins record their calls; `refuses` are those that refuse to add."""

    def __init__(self, folder: Path, *refuses: str) -> None:
        self.calls: list[tuple[str, str, str, str]] = []
        self._refuses = refuses
        self.cache = folder / "cache"
        (folder / "10-net.conflist").write_text(CHAIN)
        self.runtime = NodeRuntime(self.run, networks=folder, cache=self.cache)

    async def run(self, program: str, variables: Mapping[str, str], stdin: bytes) -> Ran:
        directory, _, name = program.rpartition("/")
        assert directory == variables["CNI_PATH"] == "/opt/cni/bin"
        assert (variables["CNI_CONTAINERID"], variables["CNI_NETNS"]) == ("c1", "/run/netns/pod1")
        assert variables["CNI_ARGS"] == ARGS
        command, ifname = variables["CNI_COMMAND"], variables["CNI_IFNAME"]
        self.calls.append((command, name, ifname, json.loads(stdin)["name"]))
        if name in self._refuses:
            if name == "missing":
                raise FileNotFoundError(program)
            return Ran(exit=1, stdout=b'{"cniVersion": "1.0.0", "code": 7, "msg": "no"}')
        version = json.loads(stdin)["cniVersion"]
        return Ran(exit=0, stdout=json.dumps({"cniVersion": version}).encode() if command == "ADD" else b"")


def test_a_pod_gets_loopback_first_and_loses_it_last(tmp_path: Path):
    node = Node(tmp_path)
    asyncio.run(node.runtime.attach(POD))
    known = sorted(path.name for path in (node.cache / "results").iterdir())
    assert known == ["cni-loopback-c1-lo", "net-c1-eth0"]
    asyncio.run(node.runtime.detach(POD))
    assert node.calls == [
        ("ADD", "loopback", "lo", "cni-loopback"),
        ("ADD", "one", "eth0", "net"),
        ("ADD", "two", "eth0", "net"),
        ("DEL", "two", "eth0", "net"),
        ("DEL", "one", "eth0", "net"),
        ("DEL", "loopback", "lo", "cni-loopback"),
    ]
    assert not list((node.cache / "results").iterdir())


def test_what_was_begun_is_undone_by_every_plugin_whoever_refuses(tmp_path: Path):
    node = Node(tmp_path, "two")
    with pytest.raises(Unavailable) as caught:
        asyncio.run(node.runtime.attach(POD))
    [problem] = caught.value.problems
    assert (problem.code, problem.where) == ("LAB-002", "network net")
    assert problem.seen == 'plugin type="two" failed (add): no'
    assert node.calls[3:] == [
        ("DEL", "two", "eth0", "net"),
        ("DEL", "one", "eth0", "net"),
        ("DEL", "loopback", "lo", "cni-loopback"),
    ]


def test_a_plugin_that_is_not_there_has_its_code(tmp_path: Path):
    node = Node(tmp_path, "missing")
    (tmp_path / "10-net.conflist").write_text(CHAIN.replace("two", "missing"))
    with pytest.raises(Unavailable) as caught:
        asyncio.run(node.runtime.attach(POD))
    [problem] = caught.value.problems
    assert (problem.code, problem.where) == ("CNI-001", "network net")
    assert problem.seen.endswith('failed to find plugin "missing" in path [/opt/cni/bin]')
