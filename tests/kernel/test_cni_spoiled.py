"""Others change the CNI directory: no plugin goes with another; `--check`, `install` and `handback` know and mend."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.cni import build, registry
from weft.cni.install import check, conflist, executables
from weft.cni.install.inventory import Inventory

# A plugin as a runtime and people see it: VERSION, and what it says that it is.
PROGRAM = """#!/bin/sh
[ "$CNI_COMMAND" = VERSION ] && echo '{{"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "1.0.0", "1.1.0"]}}'
[ -n "$CNI_COMMAND" ] || echo "CNI {about}" >&2
# {mark}
"""
FLANNELS = PROGRAM.format(about="Plugin flannel version v1.9.1 (linux/amd64) commit 0 built on 1", mark="flannel's")
SILENT = "#!/bin/true\n"
FIRST = ("bridge", "host-local", "loopback", "portmap")  # what the reference's plugins are there before weft's


def reference(name: str, mark: str = "first") -> str:
    return PROGRAM.format(about=f"{name} plugin v1.1", mark=mark)


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


class Site:
    """A CNI bin directory with weft's plugins, of which some have replaced the reference's."""

    def __init__(self, directory: Path) -> None:
        self.bin_dir, self.conf_dir = directory / "bin", directory / "net.d"
        self.replaced = self.bin_dir / ".weft-replaced"
        self.source = directory / "source"
        for each in (self.bin_dir, self.conf_dir):
            each.mkdir(parents=True)
        (self.conf_dir / conflist.NAME).write_bytes(conflist.render())
        for name in FIRST:
            write(self.bin_dir / name, reference(name))
        self.install()

    def install(self) -> None:
        executables.install(self.bin_dir, interpreter=Path("/usr/bin/true"))

    def handback(self) -> dict[str, str]:
        return dict(executables.hand_back(Inventory.found(self.bin_dir)))

    def problems(self) -> list[str]:
        return [str(each) for each in check.check(self.conf_dir, self.bin_dir).problems]

    def copy(self, name: str, text: str) -> None:
        """`cp -f`: what lies there stays the same file."""
        write(self.source, text)
        subprocess.run(["cp", "-f", self.source, self.bin_dir / name], check=True)

    def holds(self, name: str) -> str:
        """Whose program lies under a name, in a word."""
        path = self.bin_dir / name
        status = path.lstat()
        if path.is_symlink() or not path.is_file():
            return "no file"
        if path.read_bytes() in (client(), executables.as_plugin(client(), name)):
            return "weft's" if (status.st_nlink, status.st_mode & 0o777) == (1, 0o755) else "weft's, spoilt"
        whose = {reference(name): "first", reference(name, "newer"): "newer", FLANNELS: "flannel's"}
        return whose.get(path.read_text(errors="replace"), "something")

    def state(self) -> dict[str, object]:
        """Everything below: contents, where links lead, kinds of what else there may be."""
        found: dict[str, object] = {}
        for path in self.bin_dir.rglob("*"):
            what = (
                path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else path.stat().st_mode
            )
            found[str(path.relative_to(self.bin_dir))] = what
        return found

    def as_an_older_weft_has_it(self) -> None:
        """All of weft's plugins as names of one file."""
        first, *others = registry.NAMES
        (self.bin_dir / first).write_bytes(client())
        for name in others:
            (self.bin_dir / name).unlink()
            (self.bin_dir / name).hardlink_to(self.bin_dir / first)


@pytest.fixture
def site(tmp_path: Path) -> Callable[[], Site]:
    assert build.PROGRAM.build()
    return lambda: Site(tmp_path / str(len([*tmp_path.iterdir()])))


def client() -> bytes:
    program = build.PROGRAM.built()
    assert program is not None
    return program.read_bytes()


def first_or_ours(name: str) -> str:
    return "first" if name in FIRST else "weft's"


def gone(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def renamed(site: Site, name: str) -> None:
    write(site.source, reference(Path(name).name, "newer"))
    gone(site.bin_dir / name)
    site.source.rename(site.bin_dir / name)


def instead(make: Callable[[Path], object]) -> Callable[[Site, str], None]:
    def change(site: Site, name: str) -> None:
        gone(site.bin_dir / name)
        make(site.bin_dir / name)

    return change


def full(path: Path) -> None:
    path.mkdir()
    (path / "somebody's").write_text("kept")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


DAMAGES: dict[str, Callable[[Site, str], object]] = {
    "newer": lambda site, name: site.copy(name, reference(Path(name).name, "newer")),
    "newer, renamed": renamed,
    "flannel's": lambda site, name: site.copy(name, FLANNELS),
    "silent": lambda site, name: site.copy(name, SILENT),
    "empty": lambda site, name: (site.bin_dir / name).write_bytes(b""),
    "truncated": lambda site, name: os.truncate(site.bin_dir / name, 100),
    "nonsense": lambda site, name: (site.bin_dir / name).write_bytes(os.urandom(5000)),
    "gone": lambda site, name: gone(site.bin_dir / name),
    "not executable": lambda site, name: (site.bin_dir / name).chmod(0o644),
    "directory": instead(Path.mkdir),
    "full directory": instead(full),
    "FIFO": instead(os.mkfifo),
    "socket": instead(listening),
    "link to another": instead(lambda path: path.symlink_to("tuning")),
    "link to nothing": instead(lambda path: path.symlink_to("/nowhere/at/all")),
    "link to itself": instead(lambda path: path.symlink_to(path.name)),
}
LIST, SETTINGS, KEPT = ".weft-installed", ".weft-python", ".weft-replaced/bridge"
CASES = [(name, damage) for name in ("bridge", "flannel", LIST, SETTINGS, KEPT) for damage in DAMAGES]
CASES += [(name, "flannel's") for name in registry.NAMES if name not in ("bridge", "flannel")]
CASES += [
    (".weft-replaced", damage) for damage in DAMAGES if "link" in damage or damage in ("gone", "FIFO", "directory")
]


def serves(file: str, damage: str) -> bool:
    """Whether others' program is a plugin of that name."""
    return damage.startswith("newer") or (file, damage) == ("flannel", "flannel's")


@pytest.mark.parametrize("file, damage", CASES)
def test_one_file_is_changed_and_no_plugin_goes_with_it(site: Callable[[], Site], file: str, damage: str):
    one = site()
    before = one.state()
    DAMAGES[damage](one, file)
    after = one.state()
    assert {name for name in before if before[name] != after.get(name) and not name.startswith(file)} == set()

    said = one.problems()
    concerned = [each for each in said if f"{one.bin_dir / file}:" in each]
    assert said == concerned
    if file in registry.NAMES:
        assert bool(said) != serves(file, damage)
    if file in (LIST, SETTINGS):
        assert bool(said) == (damage not in ("not executable", *(["gone"] if file == LIST else [])))

    one.handback()
    for name in registry.NAMES:
        expected = first_or_ours(name)
        if name == file and serves(file, damage):
            expected = "flannel's" if "flannel" in damage else "newer"
        if file in (KEPT, ".weft-replaced") and name in (FIRST if file == ".weft-replaced" else ["bridge"]):
            expected = "newer" if damage.startswith("newer") else "weft's"
        assert one.holds(name) == expected, name


@pytest.mark.parametrize("file, damage", CASES)
def test_an_installation_mends_it_and_keeps_what_is_of_others(site: Callable[[], Site], file: str, damage: str):
    one = site()
    DAMAGES[damage](one, file)
    others = (
        (one.bin_dir / file).read_bytes() if damage.startswith("newer") and (one.bin_dir / file).is_file() else None
    )
    one.install()
    assert {name: one.holds(name) for name in registry.NAMES} == dict.fromkeys(registry.NAMES, "weft's")
    assert one.problems() == []
    assert (one.bin_dir / SETTINGS).read_text() == "/usr/bin/true\n"
    if file in registry.NAMES and others is not None:
        assert others in one.state().values()
    if damage == "full directory":
        assert b"kept" in one.state().values()

    one.handback()
    known = {name: first_or_ours(name) for name in registry.NAMES}
    if file == "flannel" and serves(file, damage):
        known["flannel"] = "flannel's" if "flannel" in damage else "newer"
    if file in (KEPT, ".weft-replaced"):
        changed = FIRST if file == ".weft-replaced" else ["bridge"]
        known |= dict.fromkeys(changed, "newer" if damage.startswith("newer") else "weft's")
    assert {name: one.holds(name) for name in registry.NAMES} == known

    executables.uninstall(Inventory.read(one.bin_dir))
    left = {path.name for path in one.bin_dir.iterdir() if not path.name.startswith(".weft-")}
    lost = {"bridge"} if file == KEPT and "link" not in damage else set()
    assert left - lost == {name for name, whose in known.items() if whose != "weft's"} - lost | (
        {"bridge"} if file == KEPT and "link" in damage else set()
    )


class TestFlannelsProgramUnderAllNames:
    """flannel's init container is `cp -f /flannel /opt/cni/bin/flannel`, and weft's plugins were one file."""

    @pytest.fixture
    def node(self, site: Callable[[], Site]) -> Site:
        one = site()
        one.as_an_older_weft_has_it()
        one.copy("flannel", FLANNELS)
        assert {one.holds(name) for name in registry.NAMES} == {"flannel's"}
        return one

    def test_it_is_told(self, node: Site):
        said = node.problems()
        for name in registry.NAMES:
            expected = f"CNI-001 plugin {node.bin_dir / name}: it says that it is flannel"
            assert any(each.startswith(expected) for each in said) == (name != "flannel")

    def test_a_hand_back_gives_each_name_a_program_of_its_own(self, node: Site):
        done = node.handback()
        assert {name: node.holds(name) for name in registry.NAMES} == {
            name: "flannel's" if name == "flannel" else first_or_ours(name) for name in registry.NAMES
        }
        assert (done["bridge"], done["tuning"], done["flannel"]) == ("put back", "weft's again", "left")

    def test_an_installation_keeps_what_was_there_first(self, node: Site):
        node.install()
        assert node.problems() == []
        kept = {path.name: path.read_text() for path in node.replaced.iterdir()}
        assert kept == {"flannel": FLANNELS, **{name: reference(name) for name in FIRST}}
        node.handback()
        assert {node.holds(name) for name in FIRST} == {"first"}
        assert node.holds("flannel") == "flannel's"

    def test_it_is_taken_away(self, node: Site):
        executables.uninstall(Inventory.read(node.bin_dir))
        assert {path.name for path in node.bin_dir.iterdir()} == {*FIRST, "flannel"}
        assert {node.holds(name) for name in FIRST} == {"first"}

    def test_what_an_older_installation_has_kept_of_it_is_never_put_back(self, node: Site):
        """It kept flannel's program for each name, over what was there first."""
        shutil.rmtree(node.replaced)
        node.replaced.mkdir()
        one = node.bin_dir.with_name("one")
        one.hardlink_to(node.bin_dir / "flannel")
        for name in registry.NAMES:
            (node.replaced / name).hardlink_to(one)
            (node.bin_dir / name).unlink()
            (node.bin_dir / name).write_bytes(executables.as_plugin(client(), name))
            (node.bin_dir / name).chmod(0o755)
        assert sum("it would be put back, but it says that it is flannel" in each for each in node.problems()) == 10
        node.install()
        assert node.problems() == []
        assert [path.name for path in node.replaced.iterdir()] == ["flannel"]
        node.handback()
        assert {name: node.holds(name) for name in registry.NAMES} == {
            name: "flannel's" if name == "flannel" else "weft's" for name in registry.NAMES
        }

    def test_a_program_that_does_not_say_what_it_is(self, site: Callable[[], Site]):
        one = site()
        one.as_an_older_weft_has_it()
        one.copy("flannel", SILENT)
        assert any("it is the same program as" in each for each in one.problems())
        one.handback()
        assert {name: one.holds(name) for name in registry.NAMES} == {
            name: first_or_ours(name) for name in registry.NAMES
        }


def test_plugins_that_are_one_file_are_told_and_parted(site: Callable[[], Site]):
    one = site()
    one.as_an_older_weft_has_it()
    [first] = [each for each in one.problems() if f"plugin {one.bin_dir / 'bridge'}:" in each]
    assert "it is one file with bandwidth, firewall" in first
    one.install()
    assert one.problems() == []
    one.copy("flannel", FLANNELS)
    assert {one.holds(name) for name in registry.NAMES if name != "flannel"} == {"weft's"}


def test_a_program_that_is_many_plugins_by_its_name_is_put_back(tmp_path: Path):
    """As that of k3s: links to one program beside them, or copies of it."""
    assert build.PROGRAM.build()
    many = PROGRAM.format(about='$(basename "$0") plugin v1', mark="many")
    write(tmp_path / "cni", many)
    write(tmp_path / "loopback", many)
    write(tmp_path / "portmap", many)
    (tmp_path / "bridge").symlink_to("cni")
    (tmp_path / "host-local").symlink_to("loopback")
    executables.install(tmp_path, interpreter=None)
    done = executables.hand_back(Inventory.read(tmp_path))
    assert [done[name] for name in FIRST] == ["put back"] * 4
    assert [str((tmp_path / name).readlink()) for name in ("bridge", "host-local")] == ["cni", "loopback"]
    assert (tmp_path / "portmap").read_text() == many


def test_a_hand_back_takes_the_list_away_by_choice(tmp_path: Path):
    assert build.PROGRAM.build()
    executables.install(tmp_path / "bin", interpreter=None)
    conflist.install(tmp_path / "net.d", Inventory.read(tmp_path / "bin"))
    listed = tmp_path / "net.d" / conflist.NAME
    assert str(listed) not in executables.hand_back(Inventory.read(tmp_path / "bin"))
    assert listed.exists()
    assert executables.hand_back(Inventory.read(tmp_path / "bin"), networks=True)[str(listed)] == "removed"
    assert not listed.exists()
    conflist.install(tmp_path / "net.d", Inventory.read(tmp_path / "bin"))
    listed.write_text("somebody's")
    assert executables.hand_back(Inventory.read(tmp_path / "bin"), networks=True)[str(listed)] == "left"
    assert listed.read_text() == "somebody's"
    assert "bridge" in executables.uninstall(Inventory.read(tmp_path / "bin"))


def test_what_was_handed_back_whole_leaves_nothing(tmp_path: Path):
    assert build.PROGRAM.build()
    for name in registry.NAMES:
        write(tmp_path / name, reference(name))
    executables.install(tmp_path, interpreter=Path("/usr/bin/true"))
    assert set(executables.hand_back(Inventory.read(tmp_path)).values()) == {"put back"}
    executables.uninstall(Inventory.read(tmp_path))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        name: reference(name) for name in registry.NAMES
    }


def test_a_later_program_of_others_is_kept_beside_the_first(site: Callable[[], Site]):
    one = site()
    for mark in ("newer", "newer", "newest"):
        one.copy("bridge", reference("bridge", mark))
        one.install()
    kept = {path.name: path.read_text() for path in one.replaced.glob("bridge*")}
    assert kept == {
        "bridge": reference("bridge"),
        "bridge.1": reference("bridge", "newer"),
        "bridge.2": reference("bridge", "newest"),
    }
    assert json.loads((one.bin_dir / ".weft-installed").read_text()).keys() >= set(registry.NAMES)
