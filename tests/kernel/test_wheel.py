"""The wheels of this tree, each in an environment: a node's holds the client and no lab; what it installs works."""

import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.cni.call import Caller
from weft import __version__
from weft.cni import registry

SECONDS = 200


def build(folder: Path, *, umask: int) -> Path:
    command = [f"{CHECKOUT}/scripts/wheel.sh", str(folder)]
    built = subprocess.run(command, capture_output=True, check=False, text=True, timeout=SECONDS, umask=umask)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheels."""
    return build(tmp_path_factory.mktemp("wheels"), umask=0o022)


def installed(made: Path, *wheels: Path) -> Path:
    """A fresh environment with these wheels; what they need is this one's, so that no network is needed."""
    subprocess.run([sys.executable, "-m", "venv", str(made)], check=True, timeout=SECONDS)
    install = [f"{made}/bin/pip", "install", "--quiet", "--no-index", "--no-deps", *map(str, wheels)]
    subprocess.run(install, check=True, timeout=SECONDS)
    [site] = made.glob("lib/python*/site-packages")
    (site / "needs.pth").write_text(sysconfig.get_path("purelib"))
    return made


@pytest.fixture(scope="module")
def node(wheels: Path) -> Path:
    """An environment with what a node needs."""
    return installed(wheels / "node", *wheels.glob("weft_cni-*.whl"))


@pytest.fixture(scope="module")
def environment(wheels: Path) -> Path:
    """An environment with all of weft."""
    return installed(wheels / "venv", *wheels.glob("*.whl"))


def run(environment: Path, *command: str) -> str:
    ran = subprocess.run(
        [f"{environment}/bin/{command[0]}", *command[1:]], capture_output=True, check=False, text=True, timeout=SECONDS
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_same_source_makes_the_same_bytes(wheels, tmp_path):
    again = build(tmp_path / "further" / "down", umask=0o077)
    names = {path.name for path in wheels.glob("*.whl")}
    assert names == {path.name for path in again.iterdir()}
    assert len(names) == 2
    for name in names:
        assert (wheels / name).read_bytes() == (again / name).read_bytes()


def test_the_environment_has_the_wheels_weft_and_nothing_of_the_checkout(environment):
    where = run(environment, "python", "-I", "-c", "import weft.cni.build as b; print(b.__file__, b.PROGRAM.built())")
    assert where.split()[0].startswith(str(environment))
    assert where.split()[1].startswith(str(environment))


def test_a_nodes_wheel_holds_no_file_of_the_lab_or_the_page(wheels):
    [ours], [labs] = wheels.glob("weft_cni-*.whl"), wheels.glob("weft_lab-*.whl")
    both = [set(zipfile.ZipFile(wheel).namelist()) for wheel in (ours, labs)]
    assert {"weft/daemon/node.py", "weft/cni/bin/weft-cni", "weft/diag/problems.md"} <= both[0]
    assert {"weft/lab/inside/supervisor.py", "weft/lab/kubernetes/weft.yaml", "weft/ui/static/page.html"} <= both[1]
    assert not [name for name in both[0] if name.startswith(("weft/lab/", "weft/ui/"))]
    assert not [name for name in both[1] if not name.startswith(("weft/lab/", "weft/ui/", "weft_lab-"))]


def test_a_node_without_the_lab_says_how_to_get_it(node):
    shown = run(node, "weft", "--help")
    assert (
        f"Not installed (pip install weft_lab-{__version__}-*.whl, which 'make wheel' builds):\n  lab  A multi-node"
        in shown
    )
    refused = subprocess.run(
        [f"{node}/bin/weft", "lab", "up"], capture_output=True, check=False, text=True, timeout=SECONDS
    )
    assert refused.returncode == 2
    assert (
        f"The command 'lab' is not installed. Install it with: pip install weft_lab-{__version__}-*.whl"
        in refused.stderr
    )


def test_all_of_a_node_works_without_the_lab_and_the_pages_libraries(node):
    code = """if True:
        import importlib, pkgutil, sys, weft
        sys.modules |= {"starlette": None, "uvicorn": None}
        names = [each.name for each in pkgutil.walk_packages(weft.__path__, "weft.")]
        for name in names:
            name.endswith(".__main__") or importlib.import_module(name)
        print(*names)"""
    names = run(node, "python", "-I", "-c", code).split()
    assert {"weft.daemon.node", "weft.cni.registry", "weft.diag.sight.look"} <= set(names)
    assert not [name for name in names if name.startswith(("weft.lab", "weft.ui"))]


def test_the_programs_in_c_are_in_it(node):
    code = "import weft.cni.build as b; print(*(p.built() for p in (b.PROGRAM, b.LAUNCHER, b.INIT)), sep='\\n')"
    for path in run(node, "python", "-I", "-c", code).splitlines():
        assert Path(path).read_bytes()[:4] == b"\x7fELF"


def test_the_programs_run(node):
    assert "--etcd-endpoints" in run(node, "weftd", "--help")
    assert "cleanup" in run(node, "weft", "--help")


def test_the_lab_has_the_manifest(environment):
    read = (
        "from importlib import resources as r; print(r.files('weft.lab.kubernetes').joinpath('weft.yaml').read_text())"
    )
    assert (
        run(environment, "python", "-I", "-c", read).strip()
        == (CHECKOUT / "deploy/kubernetes.yaml").read_text().strip()
    )


def test_codes_are_explained(node):
    assert run(node, "weft", "explain", "route-001").startswith("ROUTE-001\n\n")


def test_install_puts_the_static_client_there_and_plugins_work(node, tmp_path, make_netns, monkeypatch):
    monkeypatch.setenv("WEFT_STATE_DIR", str(tmp_path / "state"))
    where = ["--bin-dir", str(tmp_path / "bin"), "--conf-dir", str(tmp_path / "net.d")]
    done = json.loads(run(node, "weft", "cni", "install", *where, "-o", "json"))
    assert Path(done["interpreter"]).is_relative_to(node)
    assert sorted(done["plugins"]) == sorted(registry.NAMES)
    program = tmp_path / "bin" / "loopback"
    assert program.read_bytes()[:4] == b"\x7fELF"
    host, pod = make_netns(), make_netns()
    pod.run("ip link set lo down")
    caller = Caller(host, tmp_path / "bin", socket=tmp_path / "none" / "cni.sock", state=tmp_path / "state")
    config = {"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}
    said = caller.start("ADD", config, plugin="loopback", CNI_NETNS=pod.path, CNI_IFNAME="lo").end()
    assert said.result["interfaces"][0]["name"] == "lo"
    assert "UP" in pod.run("ip -br link show lo")
