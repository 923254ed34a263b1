"""Wrong input to the plugins as programs: one CNI error object, and nothing is changed.

Each case is given to the real client beside a real `weftd`, and again where no daemon answers: the same words.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cni.call import Answer, Caller
from tests.support.netns import Netns
from tests.support.weftd import Cluster, Daemon, eventually, quick_netns
from weft.cni import build
from weft.cni.install.executables import install


class Runtime(Caller):
    """What a container runtime does on a node, with a pod that waits to be attached."""

    def __init__(self, node: Daemon, bin_dir: Path, folder: Path) -> None:
        super().__init__(node.netns, bin_dir, socket=folder / "alone" / "cni.sock", state=folder / "state")
        self.node = node
        self.folder = folder
        self.pod: Netns = quick_netns()
        ipam = {"type": "host-local", "dataDir": str(folder / "nets"), "ranges": [[{"subnet": "10.99.0.0/24"}]]}
        kinds: dict[str, dict[str, Any]] = {
            "bridge": {"bridge": "cni9", "ipam": ipam},
            "flannel": {"subnetFile": str(node.subnet_file), "dataDir": str(folder / "flannel")},
            "host-local": {"ipam": ipam},
            "portmap": {},
            "loopback": {},
        }
        self.good = {kind: {"cniVersion": "1.0.0", "name": "net", "type": kind, **keys} for kind, keys in kinds.items()}

    def answer(self, plugin: str, stdin: str, env: dict[str, str | None], *, daemon: bool) -> Answer:
        """Call a plugin for the pod, with these variables, beside the daemon or alone."""
        socket = {"WEFT_CNI_SOCKET": str(self.node.folder / "cni" / "cni.sock")} if daemon else {}
        return self.start("ADD", stdin, plugin=plugin, **{"CNI_NETNS": self.pod.path, **socket, **env}).end()

    def changeable(self) -> object:
        """Everything that an ADD may change."""
        files = [path for name in ("nets", "flannel") for path in (self.folder / name).rglob("*") if path.is_file()]
        # An empty network's lock may come into being; it says nothing.
        reserved = sorted(str(path) for path in files if path.name != "lock")
        looks = [netns.run("ip -o link; ip -o address; ip route") for netns in (self.node.netns, self.pod)]
        # The bridge is the node's, and may have come into being before the fault was seen.
        kept = [[line for line in look.splitlines() if " cni9" not in line] for look in looks]
        return reserved, [[re.sub(r"(valid|preferred)_lft \S+", "", line) for line in lines] for lines in kept]


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture
def runtime(cluster: Cluster, bin_dir: Path, tmp_path: Path) -> Iterator[Runtime]:
    cluster.configure()
    made = Runtime(cluster.node(1).start(), bin_dir, tmp_path)
    yield made
    made.pod.close()


ALL = ("bridge", "flannel", "host-local", "loopback", "portmap")

# Which plugins, what differs from a good configuration or the whole text, what differs in the environment, and the
# error: its code, and what its words must show.
CASES: dict[str, tuple[tuple[str, ...], dict[str, Any] | str, dict[str, str | None], int, str]] = {
    "nothing": (ALL, "", {}, 6, "error unmarshall network config: .*line 1 column 1"),
    "not JSON": (ALL, "{", {}, 6, "error unmarshall network config: .*line 1 column 2"),
    "a list": (ALL, "[]", {}, 6, r"cannot use a list as the configuration \(expected an object\)"),
    "no network name": (ALL, {"name": None}, {}, 7, "missing network name"),
    "name that climbs": (ALL, {"name": "../../etc"}, {}, 7, r"invalid characters found in network name.*\.\./\.\./etc"),
    "name that is a number": (ALL, {"name": 7}, {}, 6, r"cannot use an integer as name \(expected a string\)"),
    "version of tomorrow": (ALL, {"cniVersion": "9.9.9"}, {}, 1, "incompatible CNI versions.*config is .*9.9.9.*1.1.0"),
    "version that is a number": (ALL, {"cniVersion": 5}, {}, 6, r"cannot use an integer as cniVersion"),
    "no container": (ALL, {}, {"CNI_CONTAINERID": None}, 4, r"required env variables \[CNI_CONTAINERID\] missing"),
    "no interface": (ALL, {}, {"CNI_IFNAME": ""}, 4, r"required env variables \[CNI_IFNAME\] missing"),
    "unknown command": (ALL, {}, {"CNI_COMMAND": "FOO"}, 4, "unknown CNI_COMMAND: FOO"),
    "container that climbs": (ALL, {}, {"CNI_CONTAINERID": "../../x"}, 4, "invalid characters in containerID.*../../x"),
    "interface with a slash": (ALL, {}, {"CNI_IFNAME": "a/b"}, 4, "interface name contains / or : or whitespace"),
    "interface that climbs": (ALL, {}, {"CNI_IFNAME": ".."}, 4, "interface name is . or .."),
    "interface too long": (ALL, {}, {"CNI_IFNAME": "x" * 16}, 4, "interface name is too long"),
    "mtu of a wrong type": (("bridge",), {"mtu": "x"}, {}, 999, r"cannot use a string as mtu \(expected an integer\)"),
    "bridge with a slash": (("bridge",), {"bridge": "../x"}, {}, 4, "interface name contains /"),
    "VLAN beyond the last": (
        ("bridge",),
        {"vlan": 4095},
        {},
        999,
        r"invalid VLAN ID 4095 \(must be between 0 and 4094\)",
    ),
    "IPAM that climbs": (("bridge",), {"ipam": {"type": "../sh"}}, {}, 999, r"invalid plugin name: \.\./sh"),
    "IPAM that is nowhere": (("bridge",), {"ipam": {"type": "nope"}}, {}, 999, r'failed to find plugin "nope" in path'),
    "no ranges": (("host-local",), {"ipam": {"type": "host-local"}}, {}, 999, "no IP ranges specified"),
    "no IPAM": (("host-local",), {"ipam": None}, {}, 999, "IPAM config missing 'ipam' key"),
    "subnet that is none": (
        ("host-local",),
        {"ipam": {"type": "host-local", "subnet": "10.99.0.0/33"}},
        {},
        999,
        r"10\.99\.0\.0/33",
    ),
    "delegate of a wrong type": (("flannel",), {"delegate": 7}, {}, 999, "cannot use an integer as delegate"),
    "delegate with a name": (("flannel",), {"delegate": {"name": "x"}}, {}, 999, "must not have 'name'"),
    "delegate that climbs": (("flannel",), {"delegate": {"type": "../x"}}, {}, 999, r"invalid plugin name: \.\./x"),
    "delegate that is nowhere": (("flannel",), {"delegate": {"type": "nope"}}, {}, 999, 'find plugin "nope" in path'),
    "no subnet file": (("flannel",), {"subnetFile": "/nope"}, {}, 11, r"LEASE-001 /nope: .*look at the log of weftd"),
    "no previous result": (("portmap",), {}, {}, 999, "must be called as chained plugin"),
    "mapping of no port": (
        ("portmap",),
        {
            "prevResult": {"cniVersion": "1.0.0"},
            "runtimeConfig": {"portMappings": [{"hostPort": 1, "containerPort": 0}]},
        },
        {},
        999,
        "Invalid container port number: 0",
    ),
}


@pytest.mark.parametrize("daemon", [True, False], ids=["daemon", "alone"])
@pytest.mark.parametrize("case", CASES)
def test_it_is_one_error_object_and_nothing_changes(runtime: Runtime, case: str, daemon: bool):
    plugins, changes, env, code, says = CASES[case]
    # Alone, each plugin is the same Python from the same start: one of them is enough there.
    for plugin in plugins if daemon else plugins[:1]:
        text = changes
        if not isinstance(text, str):
            merged = {**runtime.good[plugin], **changes}  # type: ignore[arg-type]
            text = json.dumps({key: value for key, value in merged.items() if value is not None})
        before = runtime.changeable()
        answer = runtime.answer(plugin, text, env, daemon=daemon)
        assert answer.exit == 1, (plugin, answer)
        error = answer.json
        assert set(error) <= {"cniVersion", "code", "msg", "details"}
        assert error["code"] == code, (plugin, error)
        assert re.search(says, f"{error['msg']} {error.get('details', '')}"), (plugin, error)
        # A link of an ADD that was undone is useless at once, and deleted soon after the answer.
        eventually(lambda state=before: runtime.changeable() == state)


def test_a_namespace_that_is_not_there_changes_nothing(runtime: Runtime):
    before = runtime.changeable()
    for daemon in (True, False):
        env: dict[str, str | None] = {"CNI_NETNS": "/run/netns/none"}
        answer = runtime.answer("bridge", json.dumps(runtime.good["bridge"]), env, daemon=daemon)
        assert answer.exit == 1
        assert 'failed to open netns "/run/netns/none"' in answer.msg
        assert runtime.changeable() == before
