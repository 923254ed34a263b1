"""Where a user's labs are, who may have made that directory, and which labs are alive; without a supervisor."""

import os
import sys
from pathlib import Path

import pytest

from weft.lab import places
from weft.lab.commands import ending, start
from weft.lab.commands.ending import down
from weft.lab.files import labfile
from weft.lab.places import Place
from weft.model.errors import ConfigError, Unavailable


def user(monkeypatch: pytest.MonkeyPatch, number: int, *, may_write: bool = True) -> None:
    monkeypatch.setattr(places, "outer_uid", lambda: number)
    monkeypatch.setattr(os, "access", lambda _path, mode: may_write and mode == os.W_OK)


@pytest.mark.parametrize(
    "number, may_write, environ, home",
    [
        (0, True, {}, "/run/weft-lab"),
        (0, True, {"XDG_RUNTIME_DIR": "/run/user/0"}, "/run/weft-lab"),
        (0, False, {"XDG_RUNTIME_DIR": "/run/user/0"}, "/tmp/weft-lab-0"),
        (7, True, {"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/weft-lab"),
        (7, True, {}, "/tmp/weft-lab-7"),
        (7, True, {"XDG_RUNTIME_DIR": ""}, "/tmp/weft-lab-7"),
        (7, False, {"XDG_RUNTIME_DIR": "/run/user/7"}, "/tmp/weft-lab-7"),
    ],
)
def test_each_user_has_a_directory(monkeypatch, number: int, may_write: bool, environ: dict[str, str], home: str):
    user(monkeypatch, number, may_write=may_write)
    assert str(places.home(environ)) == home


def test_labs_are_found_by_name_and_only_directories_are_labs(tmp_path: Path):
    base = tmp_path / "labs"
    assert list(places.found(base)) == []
    for name in ("b", "a"):
        places.make(base, name).path.mkdir()
    (base / "file").touch()
    assert [place.name for place in places.found(base)] == ["a", "b"]
    assert base.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o777])
def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path, mode: int):
    base = tmp_path / "labs"
    base.mkdir()
    base.chmod(mode)
    for look in (lambda: list(places.found(base)), lambda: places.make(base, "x")):
        with pytest.raises(ConfigError) as caught:
            look()
        [problem] = caught.value.problems
        assert (problem.code, problem.where) == ("HOST-002", str(base))
        assert problem.seen == f"owner {os.geteuid()}, mode d{'rwx------'[:3]}{text(mode)}"
        assert problem.hint == "Remove it, or give it that owner and mode 0700."


def text(mode: int) -> str:
    return "".join(letter if mode >> bit & 1 else "-" for letter, bit in zip("rwxrwx", range(5, -1, -1), strict=True))


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch):
    base = tmp_path / "labs"
    base.mkdir(mode=0o700)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(ConfigError, match=f"owner {own}, mode drwx------; expected a directory of user {own + 1} that"):
        places.make(base, "x")
    monkeypatch.setattr(places, "_TMP", tmp_path)
    with pytest.raises(ConfigError, match="and mode 0700, or set XDG_RUNTIME_DIR to a directory of yours"):
        places.make(base, "x")


@pytest.mark.parametrize(
    "content, pid", [("12 345", 12), ("12 345\n", 12), ("12", 12), ("", 0), ("x", 0), ("12 x", 0), (None, 0)]
)
def test_the_supervisors_number(tmp_path: Path, content: str | None, pid: int):
    if content is not None:
        (tmp_path / "pid").write_text(content)
    assert Place(tmp_path).pid == pid


def test_a_supervisor_is_opened_only_if_it_is_the_process_that_was_written_down(tmp_path: Path):
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    (tmp_path / "pid").write_text(f"{os.getpid()} {started}")
    process = Place(tmp_path).open_supervisor()
    assert process is not None
    os.close(process)
    for other in (f"{os.getpid()} {int(started) + 1}", f"{os.getpid()}", "0 0", f"{1 << 40} 1", "-1 1"):
        (tmp_path / "pid").write_text(other)
        assert Place(tmp_path).open_supervisor() is None


def test_a_lab_is_alive_while_somebody_holds_its_lock(tmp_path: Path):
    place = Place(tmp_path / "labs" / "x")
    assert not place.alive
    lock = place.claim()
    assert lock is not None
    assert place.alive
    assert place.claim() is None
    assert (place.path.parent.stat().st_mode & 0o777, os.fstat(lock).st_mode & 0o777) == (0o700, 0o600)
    place.remove()
    assert place.path.exists(), "a lab that is up stays"
    os.close(lock)
    assert not place.alive
    place.remove()
    assert not place.path.parent.exists()


def test_what_a_dead_lab_has_left_is_cleared_and_its_lock_stays(tmp_path: Path):
    place = Place(tmp_path / "x")
    lock = place.claim()
    assert lock is not None
    for name in ("pid", "socket", "logs/node1.log"):
        (place.path / name).write_text("1")
    place.clear()
    assert sorted(path.name for path in place.path.rglob("*")) == ["lock", "logs"]
    os.close(lock)


def test_daemons_and_plugins_get_a_few_variables_and_a_whole_path():
    given = {"PATH": "/a:/usr/sbin", "HOME": "/h", "FLANNELD_IFACE": "x", "ETCD_NAME": "y", "TMPDIR": "/t"}
    ours = str(Path(sys.executable).parent)
    path = f"/a:/usr/sbin:/usr/local/sbin:/sbin:{ours}"
    assert start._environment(given) == {"PATH": path, "HOME": "/h", "TMPDIR": "/t"}
    usual = f"/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:{ours}"
    assert start._environment({}) == {"PATH": usual}


@pytest.mark.parametrize(
    "families, nft, missing",
    [
        ((4,), False, ["iptables-restore"]),
        ((6,), False, ["ip6tables-restore"]),
        ((4, 6), False, ["iptables-restore", "ip6tables-restore"]),
        ((4, 6), True, ["nft"]),
    ],
)
def test_every_program_that_is_missing_is_named_before_anything_is_made(monkeypatch, families, nft, missing):
    wanted = labfile.regular(name="x", backend="vxlan", families=families, nft=nft, nodes=1, pods=0)
    monkeypatch.setattr(start.etcd, "program", lambda _: "etcd")
    with pytest.raises(ConfigError) as caught:
        start._check_tools(wanted, {"PATH": "/nonexistent"})
    assert [(problem.code, problem.where) for problem in caught.value.problems] == [
        ("HOST-002", each) for each in missing
    ]
    package = "nftables" if nft else "iptables"
    assert {problem.hint for problem in caught.value.problems} == {f"'apt-get install {package}'."}


def test_a_lab_whose_process_is_not_known_is_not_ended_by_force(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(ending, "_PATIENCE", 0.05)
    place = Place(tmp_path / "x")
    lock = place.claim()
    assert lock is not None
    with pytest.raises(Unavailable, match="LAB-002 x: it is just being started, or its file 'pid' was changed"):
        down(place)
    (place.path / "pid").write_text(f"{os.getpid()} 1")
    pid = os.getpid()
    with pytest.raises(Unavailable, match=f"that process {pid} is its supervisor. If 'ps {pid}' shows that it is:"):
        down(place)
    assert place.path.exists()
    os.close(lock)
    down(place)
    assert not place.path.exists()
