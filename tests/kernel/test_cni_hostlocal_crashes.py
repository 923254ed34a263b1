"""host-local beside strangers and damaged files, and killed at every step."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.hostlocal import Beside, add, check, delete, got, put_before, request, status
from weft.cni.host import files, openat


@pytest.mark.parametrize("when", ["later", "in the same tick of the file system's clock"])
def test_what_we_remember_gives_way_to_what_is_there(site, when):
    conf = request(site)
    add(site, conf, "a")
    add(site, conf, "b")
    store = site.store / "net"
    before = store.stat()
    (store / "192.168.1.2").unlink()
    (store / "192.168.1.4").write_bytes(b"stranger\r\neth0")
    if when != "later":
        os.utime(store, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert got(add(site, conf, "c")) == ["192.168.1.5/29"]
    assert got(add(site, conf, "a")) == ["192.168.1.6/29"]
    assert got(add(site, conf, "d")) == ["192.168.1.2/29"]


@pytest.mark.parametrize("content", [b"", b"torn", b"\xff\xfe"])
def test_damaged_files_are_nobodys_and_harm_nobody(site, content):
    conf = request(site)
    store = site.store / "net"
    store.mkdir(parents=True)
    (store / "192.168.1.2").write_bytes(content)
    (store / "last_reserved_ip.0").write_bytes(content)
    (store / "192.168.1.3").mkdir()
    (store / ".weft-0123456789abcdef").write_bytes(b"c1\r\neth0")
    assert got(add(site, conf)) == ["192.168.1.4/29"]
    assert not (store / ".weft-0123456789abcdef").exists()
    assert delete(site, conf).exit == 0
    assert (store / "192.168.1.2").read_bytes() == content


@pytest.mark.parametrize("count", [1, 200])
def test_a_request_reads_what_it_names_whatever_else_there_is(site, count):
    conf = request(site, {"subnet": "10.3.0.0/23"}, version="1.1.0")
    for number in range(count):
        add(site, conf, f"other{number}")
    seen: list[str] = []

    class Watched(Beside):
        def read(self, path):
            seen.append(f"read {Path(path).name}")
            return self._files.read(path)

        def list(self, path):
            seen.append("list")
            return self._files.list(path)

    put_before(site, Watched)
    [address] = got(add(site, conf))
    ip = address.partition("/")[0]
    assert seen == ["read last_reserved_ip.0"]
    seen.clear()
    assert check(site, conf).exit == status(site, conf).exit == 0
    assert seen == [f"read {ip}", "read last_reserved_ip.0"]
    seen.clear()
    assert delete(site, conf).exit == 0
    assert seen == [f"read {ip}"]


# What Python announces before it asks the kernel (sys.audit): each is a moment to die at.
STEPS = ("open", "os.", "fcntl.")


def die_at(step: int) -> None:
    """Kill this process just before the system call of that number on a file. For a process of its own."""
    left = step

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(call: Callable[..., int]) -> Callable[..., int]:
        def counting(*args: object) -> int:
            count()
            return call(*args)

        return counting

    sys.addaudithook(lambda event, _: count() if event.startswith(STEPS) else None)
    # Those that Python does not know of.
    openat._syscall, files._renameat2 = counted(openat._syscall), counted(files._renameat2)


def test_killed_at_every_step_nothing_is_given_twice_and_no_lock_is_lost(site):
    conf = request(site, {"ranges": [[{"subnet": "10.5.0.0/24"}], [{"subnet": "fd00::/120"}]]})
    seen: set[str] = set()
    step = 0
    finished = False
    while not finished:
        step += 1

        def in_child(step=step) -> None:
            site.by, site.wrap = "here", lambda host: die_at(step) or host
            os._exit(0 if add(site, conf, f"killed{step}").exit == 0 else 3)

        status = site.host.fork(in_child)
        assert status in (0, -signal.SIGKILL)
        finished = status == 0
        held = {name for name, owner in site.reservations("net").items() if owner == f"killed{step}\r\neth0".encode()}
        assert not held & seen
        seen |= held
        addresses = {ip.partition("/")[0] for ip in got(add(site, conf, f"next{step}"))}
        assert not addresses & seen
        seen |= addresses
        # What the runtime does after a failed ADD:
        assert delete(site, conf, f"killed{step}").exit == 0
        owners = list(site.reservations("net").values())
        assert f"killed{step}\r\neth0".encode() not in owners
    assert step > 15
    assert not [path for path in (site.store / "net").iterdir() if path.name.startswith(".weft-")]
