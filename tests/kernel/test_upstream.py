"""install-conf and mk-docker-opts.sh: called by upstream's names, with upstream's arguments."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

WEFT = Path(sys.executable).with_name("weft")
ENV = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.74.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=false\n"
OPTS = " --bip=10.1.74.1/24 --ip-masq=true --mtu=1472"

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
        return subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)

    return run


@pytest.fixture
def subnet_env(tmp_path) -> Path:
    path = tmp_path / "subnet.env"
    path.write_text(ENV)
    return path


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class TestDockerOpts:
    @pytest.fixture
    def out(self, tmp_path) -> Path:
        (tmp_path / "run").mkdir()
        return tmp_path / "run" / "docker_opts.env"

    @pytest.fixture
    def make(self, program, subnet_env, out) -> Program:
        return lambda *args, **environ: program("mk-docker-opts.sh", "-f", subnet_env, "-d", out, *args, **environ)

    def test_a_shell_reads_what_was_written(self, make, out):
        made = make(DOCKER_OPTS='--label "a$b"')
        assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
        shown = subprocess.run(
            ["sh", "-c", '. "$0"; printf "%s|%s" "$DOCKER_OPT_MTU" "$DOCKER_OPTS"', out],
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout == f'--mtu=1472|--label "a$b" {OPTS}'

    @pytest.mark.parametrize(
        "options, lines",
        [
            ([], ["DOCKER_OPT_BIP", "DOCKER_OPT_IPMASQ", "DOCKER_OPT_MTU", "DOCKER_OPTS"]),
            (["-i"], ["DOCKER_OPT_BIP", "DOCKER_OPT_IPMASQ", "DOCKER_OPT_MTU"]),
            (["-c"], ["DOCKER_OPTS"]),
            (["-ic"], ["DOCKER_OPT_BIP", "DOCKER_OPT_IPMASQ", "DOCKER_OPT_MTU", "DOCKER_OPTS"]),
            (["-m", "-k", "KEY"], ["DOCKER_OPT_BIP", "DOCKER_OPT_MTU", "KEY"]),
        ],
    )
    @pytest.mark.spec("flannel.md §9/key")
    def test_the_options_say_what_is_written(self, make, out, options, lines):
        assert make(*options).returncode == 0
        assert [line.partition("=")[0] for line in out.read_text().splitlines()] == lines

    @pytest.mark.spec("flannel.md §9/docker-env")
    def test_the_file_is_replaced_whole_and_keeps_its_mode(self, make, out):
        assert make("-c").returncode == 0
        assert out.stat().st_mode & 0o777 == 0o644
        out.chmod(0o600)
        before = out.open()
        assert make("-i").returncode == 0
        with before:
            assert before.read() == f'DOCKER_OPTS="{OPTS}"\n'
        assert out.read_text().startswith("DOCKER_OPT_BIP=")
        assert out.stat().st_mode & 0o777 == 0o600
        assert left(out.parent) == [out.name]

    def test_what_is_no_file_is_written_to_and_not_replaced(self, program, subnet_env, tmp_path, out):
        assert program("mk-docker-opts.sh", "-c", "-f", subnet_env, "-d", "/dev/stdout").stdout == (
            f'DOCKER_OPTS="{OPTS}"\n'
        )
        link = tmp_path / "link"
        link.symlink_to(out)
        assert program("mk-docker-opts.sh", "-c", "-f", subnet_env, "-d", link).returncode == 0
        assert link.is_symlink()
        assert out.read_text() == f'DOCKER_OPTS="{OPTS}"\n'

    def test_without_subnet_env_there_are_no_options(self, make, subnet_env, out):
        subnet_env.unlink()
        made = make()
        assert (made.returncode, made.stderr, out.read_text()) == (0, "", 'DOCKER_OPTS=""\n')

    def test_what_cannot_be_used_leaves_the_file_as_it_was(self, make, subnet_env, out):
        out.write_text("before\n")
        subnet_env.write_text("FLANNEL_IPMASQ=maybe\n")
        made = make()
        assert made.returncode == 1
        assert made.stderr.startswith(f"weft: LEASE-001 {subnet_env}: FLANNEL_IPMASQ='maybe'; expected true or false")
        assert out.read_text() == "before\n"

    def test_a_directory_that_is_not_there_is_named(self, program, subnet_env, tmp_path):
        missing = tmp_path / "nowhere" / "opts"
        made = program("mk-docker-opts.sh", "-f", subnet_env, "-d", missing)
        assert made.returncode == 1
        assert made.stderr == f"weft: HOST-002 {missing}: cannot be written: No such file or directory\n"

    @pytest.mark.parametrize("args", [["-h"], ["-x"], ["word"], ["-f"], ["-k", "a b"]])
    @pytest.mark.spec("flannel.md §9/usage")
    def test_the_usage_goes_to_standard_error(self, make, out, args):
        made = make(*args)
        assert (made.returncode, made.stdout) == (1, "")
        assert "Usage: weft mk-docker-opts" in made.stderr
        assert "-f PATH" in made.stderr
        assert not out.exists()

    def test_a_route_in_the_way_is_said_and_the_file_stays(self, make, netns, out):
        netns.bridge("eth0", "10.0.0.1/24")
        netns.run("ip route add 10.1.74.0/24 via 10.0.0.2")
        made = make("-c")
        assert made.returncode == 1
        assert made.stderr.startswith("weft: ROUTE-002 main table: the route 10.1.74.0/24 via 10.0.0.2 dev eth0 leads")
        assert out.read_text() == f'DOCKER_OPTS="{OPTS}"\n'
        netns.run("ip route replace 10.1.74.0/24 dev eth0")
        assert make("-c").returncode == 0


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
