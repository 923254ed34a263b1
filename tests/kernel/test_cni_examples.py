"""The example of each plugin's reference page works: attached, verified, detached, and nothing is left."""

import os

import pytest

from tests.support import pluginsdoc
from tests.support.cnidaemon import CniDaemon
from tests.support.netns import Netns
from weft.cni import build
from weft.cni.install import install
from weft.cni.runtime import Cache, Programs, Runtime, RuntimeConf, parse_list
from weft.wire import cni


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    assert build.build()
    directory = tmp_path_factory.mktemp("examples")
    install(directory / "bin")
    with Netns() as netns:
        serving = CniDaemon(directory / "daemon", netns, directory / "bin", ours=True)
        yield serving
        serving.stop()


def example(name, directory):
    """The page's list, with what it would keep in the machine's directories kept in the test's."""
    listed = pluginsdoc.conflist(pluginsdoc.PAGES[name])
    for plugin in listed["plugins"]:
        if plugin.get("ipam", {}).get("type") == "host-local":
            plugin["ipam"] = {**plugin["ipam"], "dataDir": str(directory / "networks")}
        if plugin["type"] == "tuning":
            plugin["dataDir"] = str(directory / "tuning")
    return parse_list(cni.encode(listed))


# flannel's needs a lease: the lab runs it.
@pytest.mark.parametrize("name", [name for name in pluginsdoc.PAGES if name != "flannel"])
def test_an_example_works(daemon, make_netns, tmp_path, name):
    pod, node = make_netns(), daemon.netns
    network = example(name, tmp_path)
    before = [link["ifname"] for link in node.json("ip -j link")]
    conf = RuntimeConf(container_id="c1", netns=pod.path, ifname="eth0")
    programs = Programs(paths=[str(daemon.bin_dir)], env={"PATH": os.environ["PATH"], **daemon.environment("ADD")})
    runtime = Runtime(run=lambda step: node.call(lambda: programs(step)), cache=Cache(directory=tmp_path / "cache"))
    runtime.status(network)
    runtime.add(network, conf)
    runtime.check(network, conf)
    runtime.collect_garbage(network, [("c1", "eth0")])
    runtime.check(network, conf)
    runtime.delete(network, conf)
    runtime.collect_garbage(network, [])
    left = {link["ifname"] for link in node.json("ip -j link")} - {*before, "cni0"}
    assert [name for name in left if not name.startswith("veth")] == []
