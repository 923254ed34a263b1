"""`weft cni install`, `--check`, `uninstall`: what lands where in which order, and that exactly that goes again."""

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import CHECKOUT
from tests.support.waiting import eventually
from weft import cli
from weft.cni import build, registry
from weft.cni.install import conflist, executables
from weft.cni.install.directories import Directories
from weft.diag.sight.nodefiles import networks
from weft.model.errors import ConfigError
from weft.model.value import replace
from weft.wire import cnilist

ENV = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
LIST = "10-flannel.conflist"


@pytest.fixture(autouse=True)
def program():
    assert build.PROGRAM.build()


@pytest.fixture(autouse=True)
def state_dir(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("WEFT_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def bin_dir(tmp_path) -> Path:
    return tmp_path / "bin"


@pytest.fixture
def conf_dir(tmp_path) -> Path:
    return tmp_path / "net.d"


@pytest.fixture
def weft(bin_dir, conf_dir, capfd) -> Callable[..., tuple[int, str, str]]:
    """Run a command line with the directories of this test."""

    def run(verb, *args):
        where = ["--bin-dir", str(bin_dir)]
        if verb == "install":
            where += ["--conf-dir", str(conf_dir)]
        code = cli.run(["cni", verb, *where, *args])
        return code, *capfd.readouterr()

    return run


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_where_the_daemon_is_a_pod_no_python_stands_in_for_it(weft, bin_dir):
    code, out, err = weft("install", "--no-standin", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["interpreter"] is None
    assert names(bin_dir) == sorted([*registry.NAMES, ".weft-installed"])
    assert "removed" not in weft("install", "--no-standin")[1]
    weft("install")
    out = weft("install", "--no-standin")[1]
    assert ".weft-python: removed; while weftd is away, plugins wait for it" in out
    assert names(bin_dir) == sorted([*registry.NAMES, ".weft-installed"])


def test_no_network_is_written_where_none_is_wanted(weft, conf_dir):
    weft("install", "--network=none")
    assert not conf_dir.exists()


def test_a_network_that_is_given_takes_the_place_of_any(weft, conf_dir, tmp_path):
    """As flannel's install-conf has it: the ConfigMap says what the network is."""
    given = tmp_path / "cni-conf.json"
    given.write_text(json.dumps({**conflist.CONFLIST, "name": "edge"}))
    conf_dir.mkdir()
    (conf_dir / LIST).write_text("somebody's")
    assert weft("install", "--network", str(given))[:2][0] == 0
    assert (conf_dir / LIST).read_bytes() == given.read_bytes()
    weft("uninstall")
    assert names(conf_dir) == []


@pytest.mark.parametrize(
    "content, problem",
    [
        (None, "CNI-001 {}: No such file or directory; expected a list of plugins"),
        ('{"cniVersion": "1.0.0", "name": "x"', "CNI-001 {}: "),
        ('{"cniVersion": "1.0.0", "name": "x", "plugins": []}', "CNI-001 {}: "),
    ],
)
def test_what_is_no_network_is_refused_before_anything_is_written(weft, tmp_path, content, problem):
    given = tmp_path / "cni-conf.json"
    if content is not None:
        given.write_text(content)
    code, _, err = weft("install", "--network", str(given))
    assert code != 0
    assert problem.format(given) in err
    assert {path.name for path in tmp_path.iterdir()} <= {given.name}


def test_plugins_then_the_list_and_nothing_else(weft, bin_dir, conf_dir):
    code, out, err = weft("install")
    assert (code, err) == (0, "")
    assert out == f"{bin_dir}: {', '.join(registry.NAMES)}\n{conf_dir}/{LIST}: written\n"
    assert names(bin_dir) == sorted([*registry.NAMES, ".weft-installed", ".weft-python"])
    assert names(conf_dir) == [LIST]
    assert json.loads((conf_dir / LIST).read_text()) == conflist.CONFLIST
    assert (conf_dir / LIST).stat().st_mode & 0o777 == 0o644
    again = weft("install", "-o", "json")
    assert again[0] == 0
    assert json.loads(again[1])["conflist"]["done"] == "written"
    assert json.loads(again[1])["replaced"] == []


def _identities(*directories: Path) -> dict[str, tuple[int, int]]:
    statuses = {each.name: each.stat() for directory in directories for each in directory.iterdir() if each.is_file()}
    return {name: (each.st_ino, each.st_ctime_ns) for name, each in statuses.items() if name != ".weft-installed"}


def test_again_changes_what_is_not_as_it_should_be_and_nothing_else(weft, bin_dir, conf_dir, tmp_path):
    weft("install")
    before = _identities(bin_dir, conf_dir)
    weft("install")
    after = _identities(bin_dir, conf_dir)
    # The settings say that this installation may be another one by now, in its place: client/standin.c.
    assert [name for name in before if before[name] != after[name]] == [".weft-python"]
    assert before[".weft-python"][0] == after[".weft-python"][0]
    (bin_dir / "bridge").chmod(0o700)
    os.chown(bin_dir / "flannel", 1234, 0)
    os.link(bin_dir / "ptp", tmp_path / "ptp")
    (bin_dir / "tuning").write_bytes(b"another program")
    (bin_dir / "sbr").rename(tmp_path / "sbr")
    (bin_dir / "sbr").symlink_to(tmp_path / "sbr")
    spoiled = {"bridge", "flannel", "ptp", "tuning", "sbr"}
    weft("install")
    last = _identities(bin_dir)
    assert {name for name in last if last[name][0] != after[name][0] and name in registry.NAMES} == spoiled
    for name in spoiled:
        status = (bin_dir / name).lstat()
        assert (status.st_mode, status.st_uid, status.st_nlink) == (0o100755, 0, 1)
        assert (bin_dir / name).read_bytes() == executables.as_plugin(executables.client(bin_dir), name)


def test_a_runtime_never_sees_half(weft, bin_dir, conf_dir, monkeypatch):
    """Each file gets its name when it is whole, and the list when all plugins have theirs."""
    named: list[Path] = []
    rename = Path.rename

    def watched(self, target):
        assert self.name.startswith(".weft-"), "a runtime would take it for a plugin or a network"
        assert self.stat().st_size
        assert (Path(target).parent == conf_dir) <= set(registry.NAMES).issubset(names(bin_dir))
        named.append(Path(target))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", watched)
    assert weft("install")[0] == 0
    assert named[-1] == conf_dir / LIST
    assert named.index(bin_dir / ".weft-python") < named.index(bin_dir / registry.NAMES[0])


def test_what_others_have_put_there_comes_back(weft, bin_dir, conf_dir):
    bin_dir.mkdir()
    (bin_dir / "bridge").write_text("upstream's")
    (bin_dir / "portmap").symlink_to("bridge")
    (bin_dir / "dhcp").write_text("upstream's, and not one of ours")
    assert "replaced, and kept in .weft-replaced: bridge, portmap\n" in weft("install")[1]
    assert (bin_dir / ".weft-replaced" / "bridge").read_text() == "upstream's"
    assert "replaced" not in weft("install")[1]
    client = build.PROGRAM.built().read_bytes()
    assert (bin_dir / "portmap").read_bytes() == executables.as_plugin(client, "portmap")
    code, out, _ = weft("uninstall")
    assert code == 0
    assert {"bridge: put back", "portmap: put back", "loopback: removed"} < set(out.splitlines())
    assert names(bin_dir) == ["bridge", "dhcp", "portmap"]
    assert (bin_dir / "portmap").read_text() == "upstream's"
    assert (bin_dir / "portmap").is_symlink()
    assert names(conf_dir) == []


def _run_with(rights: str, verb: str, *args: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as root with no other capabilities than these."""
    only = ["setpriv", f"--bounding-set=-all{rights}", "--inh-caps=-all", "--no-new-privs"]
    command = [*only, Path(sys.executable).with_name("weft"), "cni", verb, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _rights(manifest: str) -> str:
    """The capabilities that a manifest's first container has, as setpriv(1) wants them."""
    objects = yaml.safe_load_all((CHECKOUT / "deploy" / manifest).read_text())
    [spec] = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "DaemonSet"]
    kept = spec["initContainers"][0]["securityContext"]["capabilities"]
    assert kept["drop"] == ["ALL"]
    return "".join(f",+{name.lower()}" for name in kept.get("add", ()))


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o4755])
def test_what_another_user_has_put_there_comes_back_as_it_was(bin_dir, conf_dir, mode):
    """As the directory of kubespray is. A pod has the capabilities of its manifest alone."""
    program = "#!/bin/sh\n" + 'echo \'{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}\'\n'
    for path in (bin_dir, conf_dir):
        path.mkdir()
    (bin_dir / "bridge").write_text(program)
    for path in (bin_dir / "bridge", bin_dir, conf_dir):
        os.chown(path, 1001, 1001)
        path.chmod(mode if path.is_file() else 0o755)
    where = ("--bin-dir", str(bin_dir))
    installed = _run_with(_rights("kubernetes.yaml"), "install", *where, "--conf-dir", str(conf_dir), "--no-standin")
    assert (installed.returncode, installed.stderr) == (0, "")
    kept = bin_dir / ".weft-replaced" / "bridge"
    assert kept.read_text() == program
    assert (kept.stat().st_uid, kept.stat().st_gid, kept.stat().st_mode & 0o777) == (1001, 1001, mode & 0o777)
    done = _run_with(_rights("handback.yaml"), "handback", *where)
    assert "bridge: put back" in done.stdout, done.stderr
    status = (bin_dir / "bridge").stat()
    assert ((bin_dir / "bridge").read_text(), status.st_uid, status.st_mode & 0o777) == (program, 1001, mode & 0o777)


def test_a_program_of_another_user_is_kept_where_no_owner_can_be_given(bin_dir, conf_dir):
    bin_dir.mkdir()
    (bin_dir / "bridge").write_text("upstream's")
    os.chown(bin_dir / "bridge", 1001, 1001)
    where = ("--bin-dir", str(bin_dir), "--conf-dir", str(conf_dir), "--no-standin")
    installed = _run_with("", "install", *where)
    assert (installed.returncode, installed.stderr) == (0, "")
    kept = bin_dir / ".weft-replaced" / "bridge"
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("upstream's", 0o644)


def test_a_directory_of_another_user_is_refused_with_what_a_container_needs(bin_dir, conf_dir):
    bin_dir.mkdir()
    os.chown(bin_dir, 1001, 1001)
    refused = _run_with("", "install", "--bin-dir", str(bin_dir), "--conf-dir", str(conf_dir), "--no-standin")
    assert refused.returncode != 0
    assert "Permission denied. Root was refused: a container needs the capabilities" in refused.stderr


def test_what_is_newer_than_ours_stays(weft, bin_dir, conf_dir):
    weft("install")
    for path in (bin_dir / "bridge", conf_dir / LIST):
        path.unlink()
        path.write_text("somebody's")
    code, out, _ = weft("uninstall", "-o", "json")
    done = json.loads(out)["done"]
    assert (code, done["bridge"], done[str(conf_dir / LIST)]) == (0, "left", "left")
    assert names(bin_dir) == ["bridge"]
    assert names(conf_dir) == [LIST]
    assert weft("uninstall")[1] == f"nothing of weft is in {bin_dir}\n"


def test_where_nothing_was_installed_nothing_is_taken_away(weft, bin_dir):
    assert weft("uninstall") == (0, f"nothing of weft is in {bin_dir}\n", "")
    assert not bin_dir.exists()


def test_the_list_goes_before_the_plugins(weft, conf_dir, monkeypatch):
    weft("install")
    gone: list[str] = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda self, **more: (gone.append(self.name), unlink(self, **more))[1])
    weft("uninstall")
    gone = [name for name in gone if not name.endswith(".new")]
    assert (gone[0], gone[-3:-1]) == (LIST, [".weft-installed", ".weft-python"])


def test_a_network_of_others_stays(weft, bin_dir, conf_dir):
    conf_dir.mkdir()
    own = json.dumps({**conflist.CONFLIST, "name": "other"})
    (conf_dir / LIST).write_text(own)
    assert "stays as it is, somebody else's; remove it first" in weft("install")[1]
    assert (conf_dir / LIST).read_text() == own
    weft("uninstall")
    assert (conf_dir / LIST).read_text() == own
    (conf_dir / LIST).write_bytes(conflist.render())
    assert "the same was there already" in weft("install")[1]
    weft("uninstall")
    assert names(conf_dir) == [LIST], "flannel's own, not weft's"
    assert names(bin_dir) == []


@pytest.mark.parametrize("name", ["05-other.conflist", "05-other.conf", "05-other.json", "10-flannel.conf"])
def test_a_network_that_comes_first_is_told(weft, conf_dir, name):
    """Runtimes sort all three endings together."""
    conf_dir.mkdir()
    own = {"name": "other", "cniVersion": "0.3.1", "type": "loopback"}
    (conf_dir / name).write_text(json.dumps({**own, "plugins": [own]} if name.endswith("list") else own))
    for way in ([], ["--check"]):
        assert (
            f"{conf_dir}/{name} comes first there: that is the network that runtimes use\n" in weft("install", *way)[1]
        )
        assert json.loads(weft("install", *way, "-o", "json")[1])["comes_first"] == f"{conf_dir}/{name}"
    assert [network.name for network in networks(conf_dir)] == ["other", "cbr0"]
    (conf_dir / name).rename(conf_dir / f"20-{name}")
    assert "comes first" not in weft("install")[1] + weft("install", "--check")[1]
    assert [network.name for network in networks(conf_dir)] == ["cbr0", "other"]


ENDINGS = (".conf", ".json", ".conflist")


@pytest.mark.parametrize("seed", range(6))
def test_whatever_else_lies_there_the_first_network_by_bytes_is_told(weft, conf_dir, seed):
    """As Go's `sort.Strings` and `filepath.Ext` have it in runtimes: capitals before small letters, and no locale."""
    chance = random.Random(seed)
    conf_dir.mkdir()
    of: dict[str, str] = {LIST: conflist.CONFLIST["name"]}
    for number in range(12):
        stem = "".join(chance.choice("0159aZz-_. ~\u00e9\u4e2d") for _ in range(chance.randrange(8)))
        path = conf_dir / f"{stem}{chance.choice((*ENDINGS, '.CONF', '.conf.bak', '.yaml', ''))}"
        if path.name in (".", "..", "", LIST) or path.exists():
            continue
        if chance.random() < 0.2:
            path.mkdir()
            continue
        own = {"name": f"n{number}", "cniVersion": "0.3.1", "type": "loopback"}
        path.write_text(json.dumps({**own, "plugins": [own]} if path.name.endswith("list") else own))
        if path.name.endswith(ENDINGS):
            of[path.name] = own["name"]
    sorted_ = sorted(of, key=os.fsencode)
    first = None if sorted_[0] == LIST else f"{conf_dir}/{sorted_[0]}"
    assert json.loads(weft("install", "-o", "json")[1])["comes_first"] == first
    assert [network.name for network in networks(conf_dir)] == [of[name] for name in sorted_]


def test_only_files_of_networks_count(weft, conf_dir):
    conf_dir.mkdir()
    (conf_dir / "00-directory.conf").mkdir()
    (conf_dir / "05-other.yaml").write_text("{}")
    os.mkfifo(conf_dir / "20-fifo.conf")
    assert "comes first" not in weft("install")[1]
    assert (
        f"CONF-002 {conf_dir}/20-fifo.conf: error reading {conf_dir}/20-fifo.conf: not a regular file"
        in (weft("install", "--check")[2])
    )


def test_what_an_older_weft_has_put_there_is_replaced(weft, bin_dir, conf_dir, monkeypatch):
    monkeypatch.setattr(build, "PROGRAM", replace(build.PROGRAM, path=bin_dir / "none"))
    monkeypatch.setattr(conflist, "CONFLIST", {**conflist.CONFLIST, "cniVersion": "0.3.0"})
    weft("install")
    monkeypatch.undo()
    assert json.loads(weft("install", "-o", "json")[1])["replaced"] == []
    assert json.loads((conf_dir / LIST).read_text())["cniVersion"] == "0.3.1"
    weft("uninstall")
    assert names(bin_dir) == names(conf_dir) == []


def test_a_crash_in_the_middle_loses_nothing_of_others(weft, bin_dir, monkeypatch):
    bin_dir.mkdir()
    (bin_dir / "bridge").write_text("upstream's")
    weft("install")
    # An upgrade that ends after its list was written: the program there is still the old one of ours.
    newer = bin_dir.with_name("newer")
    newer.write_bytes(b"newer")
    monkeypatch.setattr(build, "PROGRAM", replace(build.PROGRAM, path=newer))
    monkeypatch.setattr(
        "weft.cni.install.executables.put", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    assert weft("install")[0] == 1
    monkeypatch.undo()
    weft("install")
    weft("uninstall")
    assert (bin_dir / "bridge").read_text() == "upstream's"
    assert names(bin_dir) == ["bridge"]


def test_a_list_that_somebody_has_broken_is_no_licence(weft, bin_dir):
    weft("install")
    before = names(bin_dir)
    for text in ("{", "[]", '{"bridge": 3}'):
        (bin_dir / ".weft-installed").write_text(text)
        code, _, err = weft("uninstall")
        assert code == 2
        assert f"HOST-002 {bin_dir}/.weft-installed: it cannot be read" in err
        assert "'weft cni install' writes it again" in err
        assert names(bin_dir) == before
    weft("install")
    assert weft("uninstall")[0] == 0
    assert names(bin_dir) == []


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.name)])
def test_whatever_lies_under_the_lists_name_makes_room(weft, conf_dir, make):
    conf_dir.mkdir()
    make(conf_dir / LIST)
    assert f"{conf_dir}/{LIST}: written" in weft("install")[1]
    assert (conf_dir / LIST).read_bytes() == conflist.render()
    weft("uninstall")
    assert names(conf_dir) == []


def test_the_network_is_configured_when_there_is_a_lease(weft, bin_dir, conf_dir, tmp_path):
    subnet_file = tmp_path / "subnet.env"
    subnet_file.write_text("FLANNEL_NETWORK\n")
    done = []
    thread = threading.Thread(target=lambda: done.append(weft("install", "--wait", "--subnet-file", str(subnet_file))))
    thread.start()
    eventually((bin_dir / registry.NAMES[-1]).exists)
    assert not conf_dir.exists()
    subnet_file.unlink()
    whole = tmp_path / "new"
    whole.write_text(ENV)
    os.rename(whole, subnet_file)  # noqa: PTH104 - Path.rename is what another test watches
    thread.join(20)
    assert done[0][0] == 0
    assert names(conf_dir) == [LIST]


class TestCheck:
    """What `--check` finds."""

    def test_all_that_flannel_needs_is_there(self, weft, bin_dir, conf_dir):
        weft("install")
        code, out, err = weft("install", "--check", "-o", "json")
        assert (code, err) == (0, "")
        found = json.loads(out)
        assert found["problems"] == []
        assert [line["plugin"] for line in found["plugins"]] == ["flannel", "bridge", "host-local", "portmap"]
        assert {line["version"] for line in found["plugins"]} == {f"weft {cli.__version__}"}
        assert found["plugins"][0] == {
            "network": "cbr0",
            "file": str(conf_dir / LIST),
            "plugin": "flannel",
            "path": str(bin_dir / "flannel"),
            "version": f"weft {cli.__version__}",
            "speaks": ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"],
        }

    def test_the_references_plugins(self, conf_dir, capfd):
        conf_dir.mkdir()
        (conf_dir / LIST).write_bytes(conflist.render())
        code = cli.run(["cni", "install", "--check", "--bin-dir", "/usr/lib/cni", "--conf-dir", str(conf_dir)])
        out, err = capfd.readouterr()
        assert code == 1
        rows = {line.split()[1]: line.split(maxsplit=4) for line in out.splitlines()[1:]}
        assert rows["flannel"] == ["cbr0", "flannel", "missing"]
        assert rows["bridge"][2:4] == ["/usr/lib/cni/bridge", "unknown"]
        assert rows["bridge"][4].endswith(", 1.0.0")
        assert err.startswith(f'weft: CNI-001 network cbr0 in {conf_dir}/{LIST}: failed to find plugin "flannel" in')

    def test_what_a_network_names_in_all_places(self, weft, conf_dir):
        weft("install")
        plugins_of = [
            {"type": "flannel", "delegate": {"type": "macvlan"}, "ipam": {"type": "dhcp"}},
            {"type": "bridge", "ipam": {"type": "static"}},
            {"type": "x", "ipam": 3},
        ]
        (conf_dir / "20-x.conflist").write_text(json.dumps({"name": "x", "plugins": plugins_of}))
        (conf_dir / "30-bad.conflist").write_text("{")
        code, out, _ = weft("install", "--check", "-o", "json")
        needed = [line["plugin"] for line in json.loads(out)["plugins"] if line["network"] == "x"]
        assert (code, needed) == (1, ["flannel", "macvlan", "dhcp", "bridge", "static", "x"])
        err = weft("install", "--check")[2]
        assert f"CONF-002 {conf_dir}/30-bad.conflist: error parsing" in err
        assert f"CONF-002 {conf_dir}/20-x.conflist: x: cannot use an integer as ipam" in err

    def test_a_version_that_a_plugin_does_not_speak(self, weft, conf_dir):
        weft("install")
        (conf_dir / LIST).unlink()
        (conf_dir / "20-x.conflist").write_text(
            '{"name": "x", "cniVersion": "9.0.0", "plugins": [{"type": "loopback"}]}'
        )
        code, _, err = weft("install", "--check")
        assert code == 1
        assert "CNI-001 plugin" in err
        assert "it speaks 0.1.0" in err

    def test_no_network_at_all(self, weft, conf_dir):
        assert weft("install", "--check") == (0, f"no network in {conf_dir}\n", "")


class TestInterpreter:
    """Whoever can exchange it is root whenever no daemon answers."""

    @pytest.fixture
    def python(self, tmp_path) -> Path:
        path = tmp_path / "a" / "b" / "bin" / "python"
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    def test_below_a_directory_of_another_user(self, python, tmp_path, bin_dir):
        os.chown(tmp_path / "a", 65534, 65534)
        with pytest.raises(ConfigError, match=rf"CNI-001 interpreter .*: {tmp_path / 'a'} has uid 65534"):
            executables.install(bin_dir, interpreter=python)
        assert not bin_dir.exists()

    @pytest.mark.parametrize("mode", [0o777, 0o775])
    def test_below_a_directory_that_others_may_write_to(self, python, tmp_path, bin_dir, mode):
        (tmp_path / "a").chmod(mode)
        with pytest.raises(ConfigError, match=f"{tmp_path / 'a'} has uid 0, mode 0{mode:o}"):
            executables.install(bin_dir, interpreter=python)

    @pytest.mark.usefixtures("python")
    @pytest.mark.parametrize("relative", [False, True])
    def test_behind_a_link_that_leads_through_another_users_directory(self, tmp_path, bin_dir, relative):
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / "link").symlink_to(Path("../a") if relative else tmp_path / "a")
        os.chown(theirs, 65534, 65534)
        (tmp_path / "weft").symlink_to(Path("theirs/link/b") if relative else theirs / "link" / "b")
        with pytest.raises(ConfigError, match=f"{theirs} has uid 65534"):
            executables.install(bin_dir, interpreter=tmp_path / "weft" / "bin" / "python")

    def test_behind_a_link_of_another_user(self, python, tmp_path, bin_dir):
        """Where the sticky bit is set he, and he alone, can have it lead elsewhere."""
        (tmp_path / "a").chmod(0o1777)
        (tmp_path / "a" / "link").symlink_to(python)
        os.chown(tmp_path / "a" / "link", 65534, 65534, follow_symlinks=False)
        with pytest.raises(ConfigError, match=f"{tmp_path / 'a' / 'link'} has uid 65534"):
            executables.install(bin_dir, interpreter=tmp_path / "a" / "link")

    def test_links_without_end(self, tmp_path, bin_dir):
        (tmp_path / "python").symlink_to("python")
        with pytest.raises(ConfigError, match="Too many levels of symbolic links"):
            executables.install(bin_dir, interpreter=tmp_path / "python")

    def test_below_a_directory_where_nobody_can_exchange_what_others_own(self, python, tmp_path, bin_dir):
        (tmp_path / "a").chmod(0o1777)
        assert executables.install(bin_dir, interpreter=python).interpreter == python

    def test_whose_weft_others_may_change(self, tmp_path, bin_dir, monkeypatch):
        (tmp_path / "source").mkdir()
        (tmp_path / "source" / "install.py").write_text("")
        os.chown(tmp_path / "source", 65534, 65534)
        monkeypatch.setattr(executables, "__file__", str(tmp_path / "source" / "install.py"))
        with pytest.raises(ConfigError, match=f"{tmp_path / 'source'} has uid 65534"):
            executables.install(bin_dir)


@pytest.mark.parametrize("command", [["cni", "handback"], ["ipam", "list"], ["ipam", "gc"]])
def test_another_user_is_told_to_be_root(monkeypatch, capfd, command):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli.run(command) == 2
    assert f"HOST-002 weft {' '.join(command)}: run by user 1000; expected root. Run the same" in capfd.readouterr().err


def test_the_list_is_read_by_old_runtimes_and_offers_the_newest_version_to_new_ones(weft, conf_dir):
    """An old libcni reads `cniVersion` alone; containerd 1.6 takes the list in tests/runtime."""
    weft("install")
    path = conf_dir / LIST
    assert json.loads(path.read_text())["cniVersion"] == "0.3.1"
    network = cnilist.parse_list(path.read_bytes())
    assert network.version == "1.1.0"


def test_what_is_installed_is_on_the_disk_before_and_after_it_gets_its_name(weft, bin_dir, conf_dir, monkeypatch):
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def watched_fsync(descriptor: int) -> None:
        fsync(descriptor)
        done.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")

    def watched_rename(self, target):
        done.append(f"rename {Path(target).name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "rename", watched_rename)
    assert weft("install")[0] == 0
    for name, directory in ((".weft-python", bin_dir), (registry.NAMES[0], bin_dir), (LIST, conf_dir)):
        named = done.index(f"rename {name}")
        assert done[named - 1] == f"fsync .weft-{name}.new"
        assert f"fsync {directory.name}" in done[named:]


class TestOtherDirectories:
    """What `install` was told once, the other commands know."""

    @pytest.fixture(autouse=True)
    def no_variables(self, monkeypatch):
        for variable in ("CNI_PATH", "NETCONFPATH"):
            monkeypatch.delenv(variable, raising=False)

    def versions(self, capfd, *options):
        code = cli.run(["cni", "version", *options, "-o", "json", "cbr0"])
        out, err = capfd.readouterr()
        return {plugin["path"] for plugin in json.loads(out)["plugins"]} if code == 0 else err

    @pytest.fixture
    def bin_dir(self, tmp_path) -> Path:
        return tmp_path / "other bin"

    def test_commands_look_where_install_has_put_it(self, weft, bin_dir, capfd):
        weft("install")
        assert self.versions(capfd) == {f"{bin_dir}/flannel", f"{bin_dir}/portmap"}
        assert cli.run(["cni", "install", "--check"]) == 0
        assert cli.run(["cni", "install"]) == 0
        assert f"{bin_dir}: " in capfd.readouterr().out
        assert cli.run(["cni", "uninstall"]) == 0
        assert not bin_dir.exists() or names(bin_dir) == []
        assert "/opt/cni/bin" in str(Directories.known(os.environ))

    @pytest.mark.parametrize("option", [True, False])
    def test_what_a_command_is_told_wins(self, weft, tmp_path, capfd, monkeypatch, option):
        weft("install")
        shutil.copytree(tmp_path / "net.d", tmp_path / "nets")
        if not option:
            monkeypatch.setenv("CNI_PATH", str(tmp_path / "nowhere"))
            monkeypatch.setenv("NETCONFPATH", str(tmp_path / "nets"))
        options = ["--path", str(tmp_path / "nowhere"), "--net-dir", str(tmp_path / "nets")] if option else []
        assert f"in path [{tmp_path / 'nowhere'}]" in self.versions(capfd, *options)
        shutil.rmtree(tmp_path / "nets")
        assert "no net configurations found in" in self.versions(capfd, *options)

    def test_the_usual_directories_need_no_note(self, state_dir):
        Directories(bin_dir=Path("/x"), conf_dir=Path("/y")).remember(os.environ, pytest.fail)
        assert names(state_dir) == ["cni-directories.json"]
        Directories().remember(os.environ, pytest.fail)
        assert names(state_dir) == []

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda path: os.chown(path, 65534, 65534),
            lambda path: path.write_text("{"),
            lambda path: path.write_text("[]"),
            lambda path: path.write_text("[" * 10_000),
            lambda path: path.write_text('{"bin_dir": 3, "conf_dir": "/x"}'),
            lambda path: path.write_text('{"bin_dir": "x", "conf_dir": "/x"}'),
            lambda path: path.write_text('{"bin_dir": "/x"}'),
            lambda path: path.unlink() or os.mkfifo(path),
        ],
    )
    def test_a_note_that_is_not_ours_or_cannot_be_read_is_none(self, weft, state_dir, spoil):
        weft("install")
        spoil(state_dir / "cni-directories.json")
        assert Directories.known(os.environ) == Directories()

    def test_where_nothing_can_be_noted_plugins_are_installed_all_the_same(self, weft, tmp_path, bin_dir, conf_dir):
        (tmp_path / "state").write_text("no directory")
        code, _, err = weft("install")
        assert (code, names(conf_dir)) == (0, [LIST])
        assert err.endswith(f"give each `weft cni` command --net-dir {conf_dir} --path '{bin_dir}'\n")

    def test_the_hint_of_a_check_puts_plugins_just_there(self, weft, conf_dir, capfd):
        conf_dir.mkdir()
        (conf_dir / LIST).write_bytes(conflist.render())
        err = weft("install", "--check")[2]
        hint = shlex.split(err.splitlines()[0].partition("`")[2].rpartition("`")[0])
        assert hint[0] == "weft"
        assert cli.run(hint[1:]) == 0
        capfd.readouterr()
        assert weft("install", "--check")[0] == 0
