"""The commands of the page about moving a node work as printed, on a node with the reference's plugins and a pod."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cni.site import REFERENCE
from tests.support.netns import Netns
from weft.cni import build

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "move-a-node.md"
BIN = Path(sys.executable).parent
NETWORK = {
    "name": "moving",
    "cniVersion": "1.0.0",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni7",
            "isGateway": True,
            "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"},
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
# So that directories which are missing can be made without making them on the machine.
COVER = """\
mkdir -p "$scratch"
mount -t tmpfs tmpfs "$scratch"
for parent in /opt /etc /var/lib; do
    upper=$scratch$parent/upper work=$scratch$parent/work
    mkdir -p $upper $work
    mount -t overlay none -o lowerdir=$parent,upperdir=$upper,workdir=$work $parent
done
"""
# Directories of the machine that the page's commands change, each replaced by one of the test's.
PLACES = {"bin": "/opt/cni/bin", "net.d": "/etc/cni/net.d", "cni": "/var/lib/cni", "weft": "/var/lib/weft"}


def commands() -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture
def node(tmp_path, netns):
    """Runs a command as on a node: the machine's own directories are out of reach."""
    assert build.PROGRAM.build()
    for name in PLACES:
        (tmp_path / name).mkdir()
    for name in ("bridge", "host-local", "portmap"):
        shutil.copy2(f"{REFERENCE}/{name}", tmp_path / "bin")
    (tmp_path / "net.d" / "05-moving.conflist").write_text(json.dumps(NETWORK))

    def run(command: str) -> str:
        return on_node(netns, tmp_path, command)

    return run


def on_node(netns: Netns, directory: Path, command: str) -> str:
    """Run a command in a mount namespace where PLACES are the test's."""
    binds = "".join(f"mkdir -p {place}; mount --bind {directory}/{name} {place}\n" for name, place in PLACES.items())
    with netns.popen(
        ["unshare", "--mount", "sh", "-ec", f"scratch={directory}/scratch\n{COVER}{binds}{command}"],
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "WEFT_CNI_SOCKET": str(directory / "no-daemon")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        out, err = child.communicate(timeout=200)
    assert child.returncode == 0, f"$ {command}\n{out}{err}"
    return str(out)


def version(checked: str) -> str:
    """Return the version that `--check` tells of bridge: its first word."""
    [line] = [line.split() for line in checked.splitlines() if "/opt/cni/bin/bridge" in line and "moving" in line]
    return line[3]


def test_the_commands_work_as_printed_and_a_pod_moves_there_and_back(node, make_netns, tmp_path):
    pod = make_netns()
    node(f"weft cni add --path /opt/cni/bin moving {pod.path}")
    before, during, moved, back, after = commands()
    assert version(node(before)) == "unknown"
    assert "replaced, and kept in .weft-replaced: bridge, host-local, portmap" in node(during)
    assert version(node(moved)) == "weft"
    node(f"weft cni check --path /opt/cni/bin moving {pod.path}")
    assert "bridge: put back" in node(back)
    node(f"weft cni del --path /opt/cni/bin moving {pod.path}")
    assert "flannel: removed" in node(after)
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == ["bridge", "host-local", "portmap"]
    assert [path.name for path in (tmp_path / "cni" / "networks" / "moving").glob("10.*")] == []
