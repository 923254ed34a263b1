"""What is left out of weft's image, and of its copy on a node, is not needed: everything is imported in them."""

import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.weftd import eventually
from weft.cni import build
from weft.cni.install import nodepart
from weft.lab.kubernetes import images
from weft.lab.kubernetes.images import Image

# But for the fixtures of pytest, which their users bring.
IMPORT_ALL = """
import importlib, pkgutil, weft
names = [module.name for module in pkgutil.walk_packages(weft.__path__, "weft.")]
failed = []
for name in names:
    if not name.endswith((".__main__", "lab.fixtures")):
        try:
            importlib.import_module(name)
        except ImportError as error:
            failed.append(f"{name}: {error}")
print(*failed or [len(names)], sep="\\n")
"""
SECONDS = 120


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's root file system, as a runtime unpacks it."""
    folder = tmp_path_factory.mktemp("image")
    Image(names=("x",), tree=images.weft(), command=(), environ=()).write(folder / "image.tar")
    with tarfile.open(folder / "image.tar") as image:
        blobs = [member for member in image.getmembers() if member.name.startswith("blobs/")]
        layer = image.extractfile(max(blobs, key=lambda member: member.size))
        assert layer is not None
        with tarfile.open(fileobj=layer) as files:
            files.extractall(folder / "root")  # noqa: S202 - made here
    return folder / "root"


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the copy that is put on nodes."""
    return nodepart.put(tmp_path_factory.mktemp("state") / "node")


@pytest.fixture(scope="module", params=["image", "copy"])
def python(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "copy":
        return [str(request.getfixturevalue("copied"))]
    return ["chroot", str(request.getfixturevalue("unpacked")), "/opt/weft/bin/python3"]


def run(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS, env={"PATH": "/usr/sbin:/usr/bin"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_of_weft_can_be_imported(python: list[str]):
    said = run([*python, "-I", "-c", IMPORT_ALL])
    assert said.strip().isdigit(), said
    assert int(said) > 400


def test_neither_the_lab_nor_the_page_is_in_them(python: list[str]):
    code = (
        "from importlib.util import find_spec; print(*map(find_spec, ('weft.lab', 'weft.ui', 'starlette', 'uvicorn')))"
    )
    assert run([*python, "-I", "-c", code]).split() == ["None"] * 4


def test_its_packet_filters_run(unpacked: Path):
    for program in ("nft --version", "iptables --version", "ip6tables-legacy --version", "iptables-nft-save --version"):
        assert run(["chroot", str(unpacked), *f"/usr/sbin/{program}".split()])


@contextmanager
def first_process(folder: Path, daemon: str) -> Iterator["subprocess.Popen[str]"]:
    """The image's first process in a pid namespace of its own, beside a shell script as its daemon."""
    init = build.INIT.build()
    assert init, "musl-gcc is missing"
    (folder / "flanneld").write_bytes(init.read_bytes())
    (folder / "weftd").write_text(f"#!/bin/sh\ncd {folder}\necho started >>log\n{daemon}\n")
    for name in ("flanneld", "weftd"):
        (folder / name).chmod(0o755)
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", str(folder / "flanneld"), "--ip-masq"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def said_by(folder: Path) -> list[str]:
    """What the daemon has said, a word at a time."""
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


def starts(folder: Path) -> int:
    return said_by(folder).count("started")


class TestFirstProcess:
    def test_a_daemon_that_is_killed_is_started_again_a_few_times(self, tmp_path: Path):
        with first_process(tmp_path, "sleep 1.1; kill -9 $$") as init:
            _, said = init.communicate(timeout=SECONDS)
        assert starts(tmp_path) == 6
        assert init.returncode == 128 + signal.SIGKILL
        assert said.count("weftd was ended by signal 9 (Killed)") == 6
        assert "it is started again" in said
        assert "the 6th time within 60 s: the container ends" in said

    def test_one_that_refuses_to_start_is_the_kubelets_to_report(self, tmp_path: Path):
        with first_process(tmp_path, "echo no >&2; exit 3") as init:
            _, said = init.communicate(timeout=SECONDS)
        assert (starts(tmp_path), init.returncode, said) == (1, 3, "no\n")

    def test_one_that_fails_after_it_has_run_is_started_again(self, tmp_path: Path):
        with first_process(tmp_path, "if [ -e ran ]; then exit 4; fi; touch ran; sleep 12; exit 1") as init:
            _, said = init.communicate(timeout=SECONDS)
        assert (starts(tmp_path), init.returncode) == (2, 4)
        assert "weftd ended with status 1 after" in said

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_stop_is_passed_on_and_awaited(self, tmp_path: Path, number: signal.Signals):
        script = f"trap 'echo stopping >>log; exit 0' {number.name[3:]}\necho ready >>log\nwhile :; do sleep 0.1; done"
        with first_process(tmp_path, script) as init:
            eventually(lambda: "ready" in said_by(tmp_path))
            os.kill(child_of(init.pid), number)
            _, said = init.communicate(timeout=SECONDS)
        assert (starts(tmp_path), init.returncode, said) == (1, 0, "")
        assert said_by(tmp_path)[-1] == "stopping"

    def test_a_stop_that_kills_the_daemon_is_no_crash(self, tmp_path: Path):
        with first_process(tmp_path, "exec sleep 100") as init:
            eventually(lambda: starts(tmp_path))
            time.sleep(0.2)  # until the shell has become another program
            os.kill(child_of(init.pid), signal.SIGTERM)
            _, said = init.communicate(timeout=SECONDS)
        assert (starts(tmp_path), init.returncode, said) == (1, 128 + signal.SIGTERM, "")

    @pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
    def test_a_signal_that_is_no_stop_reaches_the_daemon(self, tmp_path: Path, number: signal.Signals):
        script = f"trap 'echo state >>log' {number.name[3:]}\necho ready >>log\nwhile :; do sleep 0.1; done"
        with first_process(tmp_path, script) as init:
            eventually(lambda: "ready" in said_by(tmp_path))
            os.kill(child_of(init.pid), number)
            eventually(lambda: "state" in said_by(tmp_path))
            assert init.poll() is None

    def test_orphans_are_reaped_and_outlive_a_daemon(self, tmp_path: Path):
        again = "[ -e ran ] && { sleep 0.5; ps -eo stat,args >seen; exit 0; }"
        script = f"{again}; touch ran; (sleep 50 &); (sleep 0.1 &); kill -9 $$"
        with first_process(tmp_path, script) as init:
            init.communicate(timeout=SECONDS)
        seen = (tmp_path / "seen").read_text()
        assert "sleep 50" in seen
        assert not [line for line in seen.splitlines() if line.startswith("Z")]


def child_of(pid: int) -> int:
    """The first process in the namespace, as it is called outside."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
