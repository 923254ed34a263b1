"""Files below a root: nothing leads out of it, and what is written is whole."""

import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path

import pytest

from tests.support.netns import Netns
from tests.support.waiting import eventually
from weft.cni.host.files import RootedFiles
from weft.cni.host.locks import VARIABLE, ContainerLocks
from weft.cni.host.openat import fs_magic, open_root
from weft.cni.host.sysctls import Settings, open_all_settings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def files(root: Path) -> Iterator[RootedFiles]:
    """The files below `root`; a test must not leave any of them open."""
    fd = open_root(str(root))
    yield RootedFiles(fd)
    still = [path for path in open_files() if path == str(root) or path.startswith(f"{root}/")]
    os.close(fd)
    assert still == [str(root)]


def open_files() -> Iterator[str]:
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that by which they are listed
            yield str(each.readlink())


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


class TestStayingInside:
    def test_dots_stop_at_the_root(self, files: RootedFiles, root: Path):
        (root / "outside").write_text("inside")
        assert files.read("/../../outside") == b"inside"

    def test_an_absolute_link_starts_at_the_root(self, files: RootedFiles, root: Path, tmp_path: Path):
        (root / "link").symlink_to(tmp_path / "outside")
        with pytest.raises(FileNotFoundError):
            files.read("/link")

    def test_a_relative_link_inside_is_followed(self, files: RootedFiles, root: Path):
        (root / "etc").mkdir()
        (root / "run").write_text("nameserver")
        (root / "etc" / "resolv.conf").symlink_to("../run")
        assert files.read("/etc/resolv.conf") == b"nameserver"

    def test_magic_links_are_not_followed(self):
        fd = open_root("/")
        with pytest.raises(OSError, match="symbolic links"):
            RootedFiles(fd).read("/proc/self/root/etc/hostname")
        os.close(fd)

    def test_what_is_made_through_a_link_is_made_inside(self, files: RootedFiles, root: Path, tmp_path: Path):
        (root / "var").symlink_to(tmp_path)
        with pytest.raises(FileNotFoundError):
            files.replace("/var/new", b"")
        assert not (tmp_path / "new").exists()

    def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(self, files: RootedFiles, root: Path):
        (root / "target").write_text("old")
        (root / "file").symlink_to("target")
        files.replace("/file", b"new")
        assert (root / "target").read_text() == "old"
        assert not (root / "file").is_symlink()
        files.unlink("/file")

    @pytest.mark.parametrize("path, why", [("/a\0b", "NUL"), ("/etc/\0", "NUL"), ("/\ud800", "no text")])
    def test_what_the_kernel_would_read_otherwise_is_refused(self, files: RootedFiles, path: str, why: str):
        for act in (files.read, files.unlink, files.list, files.makedirs, lambda path: files.replace(path, b"")):
            with pytest.raises(OSError, match=why):
                act(path)
        with pytest.raises(OSError, match=why):
            fs_magic(path)

    @pytest.mark.parametrize("path", ["/", "/..", "/a/.", ""])
    def test_a_directory_has_no_content(self, files: RootedFiles, path: str):
        with pytest.raises(OSError, match="directory"):
            files.replace(path, b"")


class TestReadingAndWriting:
    @pytest.mark.parametrize("data", [b"", b"a", b"x" * 200_000])
    def test_what_is_written_is_read(self, files: RootedFiles, root: Path, data: bytes):
        files.write_new("/file", data)
        assert files.read("/file") == data
        files.replace("/file", data + b"!", mode=0o640)
        assert files.read("/file") == data + b"!"
        assert stat.S_IMODE((root / "file").stat().st_mode) == 0o640
        assert names(root) == ["file"]

    def test_a_directory_is_not_replaced(self, files: RootedFiles, root: Path):
        (root / "directory" / "content").mkdir(parents=True)
        with pytest.raises(IsADirectoryError, match=r"Is a directory: ./directory.$"):
            files.replace("/directory", b"data")
        assert (root / "directory" / "content").is_dir()
        assert names(root) == ["directory"]

    def test_a_file_system_that_cannot_exchange(self, files: RootedFiles, root: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("weft.cni.host.files._renameat2", None)
        files.replace("/file", b"old")
        files.replace("/file", b"new")
        assert files.read("/file") == b"new"
        assert names(root) == ["file"]

    def test_a_file_system_that_knows_no_renameat2(
        self, files: RootedFiles, root: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("weft.cni.host.files._renameat2", None)
        files.write_new("/file", b"first")
        with pytest.raises(FileExistsError):
            files.write_new("/file", b"second")
        assert files.read("/file") == b"first"
        assert names(root) == ["file"]

    @pytest.mark.parametrize("new", [b"a", b"as long as", b"longer than before"])
    def test_what_is_written_in_place_is_read(self, files: RootedFiles, root: Path, new: bytes):
        files.rewrite("/file", b"10.2.3.400")
        before = (root / "file").stat()
        assert (files.read("/file"), stat.S_IMODE(before.st_mode)) == (b"10.2.3.400", 0o600)
        files.rewrite("/file", new)
        assert files.read("/file") == new
        assert (root / "file").stat().st_ino == before.st_ino

    def test_what_is_written_in_place_of_a_link_goes_nowhere_else(self, files: RootedFiles, root: Path):
        (root / "target").write_text("old")
        (root / "file").symlink_to("target")
        files.rewrite("/file", b"new")
        assert (root / "target").read_text() == "old"
        assert (root / "file").read_text() == "new"

    def test_a_name_is_taken_once(self, files: RootedFiles, root: Path):
        files.write_new("/file", b"first")
        with pytest.raises(FileExistsError):
            files.write_new("/file", b"second")
        assert files.read("/file") == b"first"
        assert names(root) == ["file"]

    def test_many_threads_want_one_name(self, files: RootedFiles, root: Path):
        won: list[int] = []

        def take(number: int) -> None:
            try:
                files.write_new("/10.0.0.2", str(number).encode())
            except FileExistsError:
                return
            won.append(number)

        threads = [threading.Thread(target=take, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert files.read("/10.0.0.2") == str(won[0]).encode()
        assert names(root) == ["10.0.0.2"]

    def test_modes_do_not_depend_on_the_umask(self, files: RootedFiles, root: Path):
        before = os.umask(0o077)
        try:
            files.makedirs("/a/b", mode=0o755)
            files.write_new("/a/b/c", b"", mode=0o644)
        finally:
            os.umask(before)
        modes = [stat.S_IMODE((root / path).stat().st_mode) for path in ("a", "a/b", "a/b/c")]
        assert modes == [0o755, 0o755, 0o644]

    def test_a_file_is_its_owners_alone_unless_it_is_said(self, files: RootedFiles, root: Path):
        files.write_new("/new", b"")
        files.replace("/replaced", b"")
        files.replace("/a/b/made", b"x", parents=0o750)
        files.rewrite("/rewritten", b"")
        for name in ("new", "replaced", "a/b/made", "rewritten"):
            assert stat.S_IMODE((root / name).stat().st_mode) == 0o600
        assert [stat.S_IMODE((root / name).stat().st_mode) for name in ("a", "a/b")] == [0o750] * 2
        assert files.read("/a/b/made") == b"x"

    def test_a_socket_below_the_root_is_waited_for_no_longer_than_was_said(self, files: RootedFiles, root: Path):
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(root / "socket"))
            listening.listen()
            with files.connect("/socket", seconds=7.0) as connected:
                assert connected.gettimeout() == 7.0
                assert not os.get_inheritable(connected.fileno())
        with pytest.raises(ConnectionRefusedError):
            files.connect("/socket", seconds=7.0)

    def test_directories_that_exist_stay_as_they_are(self, files: RootedFiles, root: Path):
        (root / "a").mkdir(mode=0o700)
        files.makedirs("/a/b/c/", mode=0o755)
        files.makedirs("/a/b/c")
        assert stat.S_IMODE((root / "a").stat().st_mode) == 0o700
        assert files.list("/a/b") == ["c"]

    def test_only_regular_files_are_read(self, files: RootedFiles, root: Path):
        os.mkfifo(root / "fifo")
        (root / "directory").mkdir()
        for path in ("/fifo", "/directory"):
            with pytest.raises(OSError, match="not a regular file"):
                files.read(path)

    def test_a_file_without_end_is_refused(self, files: RootedFiles, root: Path):
        with (root / "huge").open("wb") as huge:
            huge.truncate(1 << 30)
        with pytest.raises(OSError, match="larger than"):
            files.read("/huge")

    def test_a_stamp_changes_with_the_names(self, files: RootedFiles):
        before = files.stamp("/")
        assert files.stamp("/") == before
        files.write_new("/file", b"")
        assert files.stamp("/")[:2] == before[:2]
        assert files.stamp("/") != before

    @pytest.mark.parametrize(
        "options, wrong",
        [("size=1m", ""), ("size=8k", "No space"), ("size=1m,nr_inodes=3", "No space"), ("ro", "Read")],
    )
    def test_whether_there_is_room_is_told_without_writing(self, tmp_path: Path, options: str, wrong: str):
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tmp_path)], check=True)
        fd = open_root(str(tmp_path))
        try:
            with pytest.raises(OSError, match=wrong) if wrong else nullcontext():
                RootedFiles(fd).check_room(1 << 15, 8)
        finally:
            os.close(fd)
            subprocess.run(["umount", str(tmp_path)], check=True)

    def test_the_file_system_is_told(self, tmp_path: Path):
        assert fs_magic("/proc/self/ns/net") == 0x6E736673
        assert fs_magic("/proc") == 0x9FA0
        with pytest.raises(FileNotFoundError):
            fs_magic(str(tmp_path / "none"))


class TestLocks:
    def test_threads_exclude_each_other(self, files: RootedFiles):
        seen: list[int] = []

        def add(number: int) -> None:
            with files.lock("/lock"):
                seen.append(number)
                assert len(seen) == 1
                seen.remove(number)

        threads = [threading.Thread(target=add, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_a_held_lock_can_be_asked_about(self, files: RootedFiles):
        with files.lock("/lock"), pytest.raises(BlockingIOError), files.lock("/lock", wait=False):
            pass
        with files.lock("/lock", wait=False):
            pass

    def test_a_directory_in_the_place_of_a_lock_is_set_aside(self, files: RootedFiles):
        files.makedirs("/lock/in the way")
        with files.lock("/lock"), pytest.raises(BlockingIOError), files.lock("/lock", wait=False):
            pass
        assert sorted(name.partition(".")[0] for name in files.list("/")).count("lock") == 2

    def test_a_lock_ends_although_a_program_that_is_being_started_has_its_descriptor(self, files: RootedFiles):
        read, write = os.pipe()
        with ExitStack() as held:
            held.enter_context(files.lock("/lock"))
            held.enter_context(files.locks("/locks")).take(7)
            child = os.fork()
            if child == 0:  # as between fork and exec
                os.close(write)
                os.read(read, 1)
                os._exit(0)
        try:
            with files.lock("/lock", wait=False), files.locks("/locks") as locks:
                locks.take(7)
        finally:
            os.close(write)
            os.waitpid(child, 0)
            os.close(read)

    def test_a_lock_whose_file_was_removed_keeps_nobody_out(self, files: RootedFiles):
        """Whoever waited for the old file takes the new one, like everybody after."""
        asked: list[bool] = []

        def wait() -> None:
            with files.lock("/lock"):
                with pytest.raises(BlockingIOError), files.lock("/lock", wait=False):
                    pass
                asked.append(True)

        waiting = threading.Thread(target=wait)
        with files.lock("/lock"):
            waiting.start()
            files.unlink("/lock")
        waiting.join()
        assert asked


ENV = {"CNI_CONTAINERID": "c" * 300}


class TestContainers:
    def test_one_at_a_time_and_others_beside(self, files: RootedFiles):
        locks = ContainerLocks(files)
        order: list[str] = []

        def second() -> None:
            with locks.hold(ENV):
                order.append("second")

        with locks.hold(ENV):
            thread = threading.Thread(target=second)
            thread.start()
            with locks.hold({"CNI_CONTAINERID": "other"}):
                order.append("other")
            order.append("first")
        thread.join()
        assert order == ["other", "first", "second"]

    def test_without_a_container_there_is_nothing_to_wait_for(self, files: RootedFiles):
        locks = ContainerLocks(files)
        with locks.hold({}) as first, locks.hold({}) as second:
            assert first is None
            assert second is None

    def test_who_knows_the_token_is_let_through(self, files: RootedFiles):
        locks = ContainerLocks(files)
        with locks.hold(ENV) as turn:
            assert turn is not None
            inner = {**ENV, VARIABLE: turn.token()}
            assert locks.inside(inner)
            with locks.hold(inner) as nested:
                assert nested is None
            assert not locks.inside({**inner, "CNI_CONTAINERID": "other"})
            assert not locks.inside({**inner, VARIABLE: "guessed"})
        assert not locks.inside(inner)

    def test_a_sweep_removes_what_a_crash_has_left_and_nothing_else(self, files: RootedFiles):
        locks = ContainerLocks(files)
        files.write_new("/turns/1234", b"left")
        with locks.hold(ENV) as turn:
            assert turn is not None
            inner = {**ENV, VARIABLE: turn.token()}
            locks.sweep()
            assert locks.inside(inner)
            assert len(files.list("/turns")) == 1

    @pytest.mark.parametrize("name", ["f" * 40, "8" + "0" * 15, "-1", "none", "1_0"])
    def test_a_sweep_survives_names_that_are_no_tokens(self, files: RootedFiles, name: str):
        locks = ContainerLocks(files)
        files.write_new(f"/turns/{name}", b"stray")
        files.write_new("/turns/1234", b"left")
        locks.sweep()
        assert "1234" not in files.list("/turns")

    def test_a_process_that_dies_gives_its_lock_back(self, files: RootedFiles):
        locks = ContainerLocks(files)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with locks.hold(ENV):
                os.write(write, b"!")
                os.kill(os.getpid(), 9)
        os.read(read, 1)
        with locks.hold(ENV):
            pass
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


class TestSettings:
    @pytest.fixture
    def opened(self, netns: Netns) -> Iterator[dict[str, int]]:
        opened = netns.call(open_all_settings)
        yield opened
        for fd in opened.values():
            os.close(fd)

    def test_they_are_of_the_namespace_they_were_opened_in(self, netns: Netns, opened: dict[str, int]):
        assert sorted(opened) == netns.run("cd /proc/sys/net; ls -d */ | tr -d /").split()
        settings = Settings(opened)
        machine = Path("/proc/sys/net/ipv4/ip_forward").read_text()
        settings.write("net/ipv4/ip_forward", "1")
        assert settings.read("net/ipv4/ip_forward") == "1"
        assert netns.run("cat /proc/sys/net/ipv4/ip_forward") == "1\n"
        assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == machine

    def test_those_of_another_namespace_are_told_apart(self, opened: dict[str, int]):
        machine = open_all_settings()
        assert [name for name, fd in opened.items() if Settings(machine).same(name, fd)] == []
        assert all(Settings(opened).same(name, fd) for name, fd in opened.items())
        assert not Settings({}).same("ipv4", opened["ipv4"])
        for fd in machine.values():
            os.close(fd)

    @pytest.mark.parametrize(
        "name",
        ["net/ipv6/conf/all/forwarding", "ipv4/ip_forward", "net", "net/ipv4", "net/ipv4/none", "net/ipv4/../core/x"],
    )
    def test_what_is_not_there_is_an_error(self, opened: dict[str, int], name: str):
        with pytest.raises(OSError, match=r"No such file|Is a directory"):
            Settings({"ipv4": opened["ipv4"]}).read(name)

    def test_dots_do_not_lead_to_the_hosts_settings(self, netns: Netns, opened: dict[str, int]):
        settings = Settings(opened)
        machine = Path("/proc/sys/net/ipv4/ip_forward").read_text()
        settings.write("net/ipv4/../ip_forward", "1")
        assert netns.run("cat /proc/sys/net/ipv4/ip_forward") == "1\n"
        assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == machine


def test_helpers_wait_in_vain():
    with pytest.raises(AssertionError, match="last seen"):
        eventually(lambda: False, seconds=0.01)
