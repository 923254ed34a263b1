"""The wheels and the sdist of a release: what is in them, and that they work where they are installed."""

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.release.conftest import MACHINES, PROGRAMS
from tests.support.checkout import CHECKOUT
from tests.support.cni.daemon import CniDaemon
from tests.support.netns import Netns
from weft import __version__

UV = CHECKOUT / ".venv-tools" / "bin" / "uv"
PIPX = CHECKOUT / ".venv-release" / "bin" / "pipx"
PYTHON = CHECKOUT / ".venv" / "bin" / "python"
SECONDS = 300
PT_INTERP = 3  # a program header that names a dynamic loader


def run(*command: str | Path, **environment: str) -> str:
    ran = subprocess.run(
        [*map(str, command)],
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def needs_no_loader(program: bytes) -> bool:
    """Tell whether an ELF program of 64 bits has no header of type PT_INTERP."""
    start, size, count = (int.from_bytes(program[at : at + n], "little") for at, n in ((32, 8), (54, 2), (56, 2)))
    headers = (program[start + i * size :][:4] for i in range(count))
    return PT_INTERP not in [int.from_bytes(each, "little") for each in headers]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_wheel_has_static_programs_for_its_machine_and_its_tags_say_so(wheel, machine):
    path = wheel(machine)
    with zipfile.ZipFile(path) as file:
        for name in PROGRAMS:
            program = file.read(f"weft/{name}")
            assert int.from_bytes(program[18:20], "little") == MACHINES[machine], name
            assert needs_no_loader(program), name
        assert file.read("weft/forward/bin/path.o")[:4] == b"\x7fELF"
        tags = file.read(f"weft_cni-{__version__}.dist-info/WHEEL").decode().split("Tag: ")[1:]
    kinds = ("manylinux2014", "manylinux_2_17", "musllinux_1_1")
    assert [tag.strip() for tag in tags] == [f"py3-none-{kind}_{machine}" for kind in kinds]
    assert path.name.endswith(f"-{'.'.join(tag.strip().removeprefix('py3-none-') for tag in tags)}.whl")


def test_a_program_that_needs_a_loader_would_be_noticed():
    assert not needs_no_loader(Path("/bin/true").read_bytes())


def test_the_sdist_builds_the_wheel_of_the_release(release, wheel, tmp_path):
    archive = release / f"weft_cni-{__version__}.tar.gz"
    with tarfile.open(archive) as file:
        made = min(member.mtime for member in file.getmembers())
    run("tar", "--extract", "--directory", tmp_path, "--file", archive)
    tree = tmp_path / f"weft_cni-{__version__}"
    assert f"\nName: weft-cni\nVersion: {__version__}\n" in (tree / "PKG-INFO").read_text()
    build = [UV, "build", "--wheel", "--offline", "--no-build-isolation", "--python", PYTHON, "--out-dir", tmp_path]
    run(*build, tree, SOURCE_DATE_EPOCH=str(made))
    run(*build, tree / "lab", SOURCE_DATE_EPOCH=str(made))
    for built in (wheel("x86_64"), release / f"weft_lab-{__version__}-py3-none-any.whl"):
        assert (tmp_path / built.name).read_bytes() == built.read_bytes()


@pytest.fixture(scope="module")
def lab(release: Path) -> Path:
    return release / f"weft_lab-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module", params=["uv", "pipx"])
def commands(request, wheel: Callable[[str], Path], lab: Path, tmp_path_factory) -> Iterator[Path]:
    """The folder with the commands, installed as users do: with the newest of what they need, from the index."""
    home: Path = tmp_path_factory.mktemp(request.param)
    node = wheel("x86_64")
    if request.param == "uv":
        more = {"UV_TOOL_DIR": str(home / "tools"), "UV_TOOL_BIN_DIR": str(home / "bin")}
        run(UV, "tool", "install", "--python", PYTHON.resolve(), "--with", lab, node, **more)
    else:
        more = {"PIPX_HOME": str(home / "pipx"), "PIPX_BIN_DIR": str(home / "bin")}
        run(PIPX, "install", "--backend", "pip", "--python", PYTHON.resolve(), node, **more)
        run(PIPX, "inject", "weft-cni", lab, **more)
    yield home / "bin"
    shutil.rmtree(home)


def test_what_is_installed_runs(commands):
    assert run(commands / "weft", "--version") == f"weft {__version__}\n"
    assert "--etcd-endpoints" in run(commands / "weftd", "--help")
    assert json.loads(run(commands / "weft", "version", "-o", "json")) == {"version": __version__}


def test_what_is_installed_shows_a_lab(commands):
    path = f"{commands}:/usr/sbin:/usr/bin:/sbin:/bin"  # nothing of this checkout
    assert "flannel.1" in run(commands / "weft", "lab", "demo", PATH=path)


def test_arm64s_client_asks_a_daemon(programs: Path, tmp_path: Path, make_netns: Callable[[], Netns]):
    """Under qemu-user, as bin/loopback: a daemon of this machine answers it, since nothing else here could."""
    program = tmp_path / "bin" / "loopback"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec qemu-aarch64 -0 "$0" {programs}/cni/bin/weft-cni\n')
    program.chmod(0o755)
    host, pod = make_netns(), make_netns()
    pod.run("ip link set lo down")
    daemon = CniDaemon(tmp_path / "daemon", host, program.parent, ours=True)
    try:
        config = {"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}
        said = daemon.start("ADD", config, plugin="loopback", CNI_NETNS=pod.path, CNI_IFNAME="lo").end()
        assert said.result["interfaces"][0]["name"] == "lo"
        assert "UP" in pod.run("ip -br link show lo")
    finally:
        daemon.stop()


@pytest.mark.parametrize(
    "program, status, said",
    [
        ("cni/bin/weft-init", 127, "/weftd cannot be run: No such file"),  # it starts what lies beside it
        ("forward/bin/weft-relay", 2, ""),  # it needs three arguments
    ],
)
def test_arm64s_other_programs_start(programs: Path, program: str, status: int, said: str):
    command = ["qemu-aarch64", str(programs / program)]
    ran = subprocess.run(command, capture_output=True, check=False, text=True, timeout=SECONDS)
    assert ran.returncode == status, ran
    assert said in ran.stderr
