"""A wheel from this tree, in an environment of its own: it holds the client, and what it installs works."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.cnidaemon import CHECKOUT
from weft.cni import registry

SECONDS = 200


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; what weft needs is this one's, so that no network is."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [f"{CHECKOUT}/scripts/wheel.sh", str(folder)], capture_output=True, check=False, text=True, timeout=SECONDS
    )
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("*.whl")
    made = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(made)], check=True, timeout=SECONDS)
    install = [f"{made}/bin/pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, timeout=SECONDS)
    [site] = made.glob("lib/python*/site-packages")
    (site / "needs.pth").write_text(sysconfig.get_path("purelib"))
    return made


def run(environment: Path, *command: str) -> str:
    ran = subprocess.run(
        [f"{environment}/bin/{command[0]}", *command[1:]], capture_output=True, check=False, text=True, timeout=SECONDS
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_environment_has_the_wheels_weft_and_nothing_of_the_checkout(environment):
    where = run(environment, "python", "-I", "-c", "import weft.cni.build as b; print(b.__file__, b.PROGRAM.built())")
    assert where.split()[0].startswith(str(environment))
    assert where.split()[1].startswith(str(environment))


def test_the_programs_in_c_are_in_it(environment):
    code = "import weft.cni.build as b; print(*(p.built() for p in (b.PROGRAM, b.LAUNCHER, b.INIT)), sep='\\n')"
    for path in run(environment, "python", "-I", "-c", code).splitlines():
        assert Path(path).read_bytes()[:4] == b"\x7fELF"


def test_the_programs_run(environment):
    assert "--etcd-endpoints" in run(environment, "weftd", "--help")
    assert "cleanup" in run(environment, "weft", "--help")


def test_the_lab_has_the_manifest(environment):
    read = (
        "from importlib import resources as r; print(r.files('weft.lab.kubernetes').joinpath('weft.yaml').read_text())"
    )
    assert (
        run(environment, "python", "-I", "-c", read).strip()
        == (CHECKOUT / "deploy/kubernetes.yaml").read_text().strip()
    )


def test_codes_are_explained(environment):
    assert run(environment, "weft", "explain", "route-001").startswith("ROUTE-001\n\n")


def test_install_puts_the_static_client_there_and_plugins_work(environment, tmp_path, make_netns, monkeypatch):
    monkeypatch.setenv("WEFT_STATE_DIR", str(tmp_path / "state"))
    where = ["--bin-dir", str(tmp_path / "bin"), "--conf-dir", str(tmp_path / "net.d")]
    done = json.loads(run(environment, "weft", "cni", "install", *where, "-o", "json"))
    assert Path(done["interpreter"]).is_relative_to(environment)
    assert sorted(done["plugins"]) == sorted(registry.NAMES)
    program = tmp_path / "bin" / "loopback"
    assert program.read_bytes()[:4] == b"\x7fELF"
    host, pod = make_netns(), make_netns()
    pod.run("ip link set lo down")
    env = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c1",
        "CNI_IFNAME": "lo",
        "CNI_NETNS": pod.path,
        "CNI_PATH": str(tmp_path / "bin"),
        "WEFT_CNI_SOCKET": str(tmp_path / "none" / "cni.sock"),
        "WEFT_STATE_DIR": str(tmp_path / "state"),
    }
    pipe = subprocess.PIPE
    with host.popen([str(program)], env=env, stdin=pipe, stdout=pipe) as child:
        out, _ = child.communicate(b'{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}', SECONDS)
    assert child.returncode == 0, out
    assert json.loads(out)["interfaces"][0]["name"] == "lo"
    assert "UP" in pod.run("ip -br link show lo")
