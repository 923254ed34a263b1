"""install-conf: called by upstream's name, with upstream's arguments."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

WEFT = Path(sys.executable).with_name("weft")
ENV = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.74.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=false\n"

Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def program(tmp_path, netns) -> Program:
    """Runs weft by a link of another name, in a network namespace of its own."""

    def run(name: str, *args: object, **environ: str) -> subprocess.CompletedProcess[str]:
        link = tmp_path / "bin" / name
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(WEFT)
        words = ["nsenter", f"--net={netns.path}", str(link), *map(str, args)]
        env = {**os.environ, **environ}
        return subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)

    return run


@pytest.fixture
def subnet_env(tmp_path) -> Path:
    path = tmp_path / "subnet.env"
    path.write_text(ENV)
    return path


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class TestInstallConf:
    @pytest.fixture
    def net_d(self, tmp_path) -> Path:
        (tmp_path / "net.d").mkdir()
        return tmp_path / "net.d"

    @pytest.mark.spec("flannel.md §10.7/install-conf")
    def test_the_file_is_replaced_whole_with_the_mode_of_its_source(self, program, tmp_path, net_d):
        kept, source, target = tmp_path / "..data", tmp_path / "cni-conf.json", net_d / "10-flannel.conflist"
        kept.write_text("{}")
        kept.chmod(0o640)
        source.symlink_to(kept)  # as in a volume of a ConfigMap
        target.write_text("before")
        before = target.open()
        done = program("install-conf", source, target)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        with before:
            assert before.read() == "before"
        assert target.read_text() == "{}"
        assert target.stat().st_mode & 0o777 == 0o640
        assert left(net_d) == [target.name]

    @pytest.mark.parametrize("words", [[], ["a"], ["a", "b", "c"]])
    def test_anything_but_two_arguments_is_answered_with_the_usage(self, program, words):
        done = program("install-conf", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Usage: weft install-conf [OPTIONS] SOURCE DESTINATION" in done.stderr

    @pytest.mark.usefixtures("subnet_env")
    @pytest.mark.parametrize("source, target", [("nothing", "net.d/x"), ("subnet.env", "nowhere/x"), (".", "net.d/x")])
    def test_what_fails_is_said_and_leaves_nothing(self, program, net_d, source, target):
        done = program("install-conf", source, target)
        assert done.returncode == 1
        assert done.stderr.startswith("weft: HOST-002 ")
        assert left(net_d) == []

    def test_a_directory_is_not_replaced(self, program, subnet_env, net_d):
        done = program("install-conf", subnet_env, net_d)
        assert done.returncode == 1
        assert done.stderr == f"weft: HOST-002 {net_d}: cannot be written: Is a directory\n"
        assert [name for name in left(net_d.parent) if name.startswith(".")] == []
