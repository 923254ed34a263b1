"""The example of each plugin's reference page works: attached, verified, detached, and nothing is left."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from scripts.docs import plugins
from tests.support.cni.daemon import CniDaemon
from tests.support.netns import Netns
from weft.cni import build
from weft.cni.install.executables import install
from weft.cni.runtime.library import Cache, Programs, Runtime, RuntimeConf, parse_list
from weft.wire import cni


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    assert build.PROGRAM.build()
    directory = tmp_path_factory.mktemp("examples")
    install(directory / "bin")
    with Netns() as netns:
        serving = CniDaemon(directory / "daemon", netns, directory / "bin", ours=True)
        yield serving
        serving.stop()


def example(name, directory):
    """The page's list, with what it would keep in the machine's directories kept in the test's."""
    listed = plugins.conflist(plugins.PAGES[name])
    for plugin in listed["plugins"]:
        if plugin.get("ipam", {}).get("type") == "host-local":
            plugin["ipam"] = {**plugin["ipam"], "dataDir": str(directory / "networks")}
        if plugin["type"] == "tuning":
            plugin["dataDir"] = str(directory / "tuning")
    return parse_list(cni.encode(listed))


@pytest.fixture
def runtime(daemon, tmp_path):
    programs = Programs(paths=[str(daemon.bin_dir)], env={"PATH": os.environ["PATH"], **daemon.environment("ADD")})
    return Runtime(
        run=lambda step: daemon.netns.call(lambda: programs(step)), cache=Cache(directory=tmp_path / "cache")
    )


# flannel's needs a lease: the lab runs it.
@pytest.mark.parametrize("name", [name for name in plugins.PAGES if name != "flannel"])
def test_an_example_works(daemon, runtime, make_netns, tmp_path, name):
    pod, node = make_netns(), daemon.netns
    network = example(name, tmp_path)
    before = [link["ifname"] for link in node.json("ip -j link")]
    conf = RuntimeConf(container_id="c1", netns=pod.path, ifname="eth0")
    runtime.status(network)
    runtime.add(network, conf)
    runtime.check(network, conf)
    runtime.collect_garbage(network, [("c1", "eth0")])
    runtime.check(network, conf)
    runtime.delete(network, conf)
    runtime.collect_garbage(network, [])
    left = {link["ifname"] for link in node.json("ip -j link")} - {*before, "cni0"}
    assert [name for name in left if not name.startswith("veth")] == []


def test_requests_share_the_sockets_of_the_daemon(daemon, runtime, make_netns, tmp_path):
    """Those that it has it goes on using; another one comes only while requests overlap."""
    network = example("bridge", tmp_path)

    def attach_and_detach() -> None:
        conf = RuntimeConf(container_id="c1", netns=make_netns().path, ifname="eth0")
        runtime.add(network, conf)
        runtime.delete(network, conf)

    def netlink() -> set[str]:
        process = Path(f"/proc/{daemon.process.pid}")
        inodes = {line.split()[-1] for line in (process / "net" / "netlink").read_text().splitlines()}
        links = set()
        for link in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # of a link that is being deleted in the background
                links.add(str(link.readlink()))
        return {link for link in links if link.removeprefix("socket:[").removesuffix("]") in inodes}

    attach_and_detach()
    before = netlink()
    assert before
    for _ in range(10):
        attach_and_detach()
    after = netlink()
    assert before <= after
    assert len(after) <= len(before) + 4
