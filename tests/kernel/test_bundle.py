"""`weft bundle` of a node that is full of secrets: it has none of them, and all that a report needs."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.netns import Netns
from weft.diag.collect import LISTINGS, _log

WEFT = str(Path(sys.executable).with_name("weft"))
SECRET = b"hunter2"


@pytest.fixture
def node(netns: Netns, tmp_path: Path) -> Netns:
    """Secrets of every kind that weft knows, where nodes have them."""
    netns.bridge("cni0", "10.244.1.1/24")
    netns.run("sysctl -qw net.ipv4.tcp_fastopen_key=68756e74-65723268-756e7465-72326875")
    netns.run("sysctl -qw net.ipv6.conf.cni0.stable_secret=6875:6e74:6572:3268:756e:7465:7232:6875")
    netns.run(["nft", 'add table ip a; add chain ip a b; add rule ip a b accept comment "http://u:hunter2@x"'])
    conf = {
        "cniVersion": "1.0.0",
        "name": "cbr0",
        "plugins": [{"type": "flannel", "k8s_auth_token": "hunter2", "etcd": "https://root:hunter2@10.0.0.1:2379"}],
    }
    (tmp_path / "10-net.conflist").write_text(json.dumps(conf))
    (tmp_path / "11-broken.conf").write_text('{"password": "hunter2"')
    (tmp_path / "calico-kubeconfig").write_text("token: hunter2\n")
    (tmp_path / "subnet.env").write_text(
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\n"
    )
    return netns


def test_a_bundle_has_what_a_report_needs_and_no_secret(node: Netns, tmp_path: Path):
    daemon = tmp_path / "weftd"
    daemon.symlink_to(sys.executable)  # a process is called as it is started
    words = ("--etcd-password", "hunter2", "--etcd-endpoints=http://u:hunter2@x")
    command = [str(daemon), "-S", "-c", "import sys; sys.stdin.read()", *words]
    out = tmp_path / "out.tar.gz"
    log = tmp_path / "weftd.log"
    with log.open("w") as end, node.popen(command, stdin=subprocess.PIPE, stderr=end):
        log.write_text("begun\nPresharedKey: hunter2\nAuthorization: Bearer hunter2hunter2\n")
        made = weft(node, tmp_path, "bundle", "--out", str(out), "-o", "json")
    assert made.returncode == 0, made.stderr
    said = json.loads(made.stdout)
    assert said["file"] == str(out)
    assert said["bytes"] == out.stat().st_size
    assert out.stat().st_mode & 0o777 == 0o600

    with tarfile.open(out) as archive:
        files = {entry.name.partition("/")[2]: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    assert set(files) == set(said["files"])
    for name, content in files.items():
        assert SECRET not in content, name
        assert b"68756e74" not in content, name
        assert b"6875:6e74" not in content, name
    assert {f"listings/{name}" for name in LISTINGS} <= set(files) | set(said["unseen"])
    assert json.loads(files["listings/ip-address.json"])
    assert b"tcp_fastopen_key = REDACTED" in files["listings/sysctl.txt"]
    assert b"http://REDACTED@x" in files["listings/nft.txt"]
    assert json.loads(files["cni/10-net.conflist"])["plugins"][0]["k8s_auth_token"] == "REDACTED"
    assert files["cni/11-broken.conf"] == b"22 characters that are not JSON\n"
    assert "cni/calico-kubeconfig" not in files
    [text] = [content for name, content in files.items() if name.endswith("/command.txt")]
    assert text.endswith(b" --etcd-password REDACTED --etcd-endpoints=http://REDACTED@x")
    [text] = [content for name, content in files.items() if name.endswith("/log.txt")]
    assert text == b"begun\nPresharedKey: REDACTED\nAuthorization: REDACTED\n"
    sight = json.loads(files["sight.json"])
    assert {link["name"] for link in sight["links"]} >= {"lo", "cni0"}
    assert sight["programs"] == ["weftd"]


def test_it_goes_to_standard_output_for_one_who_asks(node: Netns, tmp_path: Path):
    made = weft(node, tmp_path, "bundle", "--out", "-", text=False)
    assert made.returncode == 0, made.stderr
    assert made.stdout[:2] == b"\x1f\x8b"
    assert not list(tmp_path.glob("*.tar.gz"))
    made = weft(node, tmp_path, "bundle")
    [file] = tmp_path.glob("weft-bundle-*Z.tar.gz")
    assert made.stdout.startswith(f"{file.name}: ")


def test_a_place_that_cannot_be_written_is_said(node: Netns, tmp_path: Path):
    made = weft(node, tmp_path, "bundle", "--out", str(tmp_path / "none/out.tar.gz"))
    assert made.returncode == 1
    assert "HOST-002" in made.stderr
    assert "No such file or directory" in made.stderr


def weft(
    node: Netns, folder: Path, command: str, *options: str, text: bool = True
) -> "subprocess.CompletedProcess[str]":
    files = ("--conf-dir", str(folder), "--bin-dir", "/usr/lib/cni", "--subnet-file", str(folder / "subnet.env"))
    words = [WEFT, command, *files, *options]
    process = node.popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=text, cwd=folder)
    out, err = process.communicate(timeout=200)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.mark.parametrize(
    "user, flags, reads",
    [
        (0, os.O_WRONLY | os.O_APPEND, True),
        (0, os.O_RDONLY, False),
        (0, os.O_PATH, False),
        (65534, os.O_WRONLY | os.O_APPEND, False),
    ],
    ids=["a log", "read only", "a path alone", "another user's process"],
)
def test_only_what_root_writes_is_a_log(tmp_path: Path, user: int, flags: int, *, reads: bool):
    """Any user may give a process a daemon's name, and a file of root's as its standard error."""
    file = tmp_path / "log"
    file.write_text("a secret of root's\n")
    descriptor = os.open(file, flags)
    with subprocess.Popen(["sleep", "60"], stderr=descriptor, user=user) as process:
        os.close(descriptor)
        try:
            if reads:
                assert _log(Path("/proc", str(process.pid))) == "a secret of root's\n"
            else:
                with pytest.raises(PermissionError):
                    _log(Path("/proc", str(process.pid)))
        finally:
            process.kill()
