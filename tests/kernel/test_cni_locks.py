"""Turns of containers and of GC: who waits for whom, and no longer than it says."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.cni.call import SECONDS
from tests.support.waiting import eventually
from weft.cni.host.files import RootedFiles
from weft.cni.host.locks import GC_SECONDS, PATIENCE_SECONDS, ContainerLocks
from weft.wire.cni import CniError

ONE, OTHER, GC = {"CNI_CONTAINERID": "one"}, {"CNI_CONTAINERID": "other"}, {"CNI_COMMAND": "GC"}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[RootedFiles]:
    root = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield RootedFiles(root)
    os.close(root)


@pytest.mark.parametrize(
    "holder, waiter, what",
    [(ONE, ONE, "another call for it"), (GC, ONE, "a GC"), (ONE, GC, "calls for containers"), (GC, GC, "calls for")],
)
def test_a_turn_that_does_not_come_is_an_error_to_try_again(files: RootedFiles, holder, waiter, what):
    locks = ContainerLocks(files, patience=0.05)
    refused = pytest.raises(CniError, match=f"^{what}.* within 0.05 s")
    with locks.hold(holder), refused as caught, locks.hold(waiter):
        pytest.fail("it was let in")
    assert caught.value.code == 11
    assert "nothing was done" in caught.value.details
    assert "stopped" in caught.value.details
    with locks.hold(waiter) as turn:
        assert turn


def test_others_do_not_wait(files: RootedFiles):
    locks = ContainerLocks(files, patience=0)
    with locks.hold(ONE), locks.hold(OTHER), locks.hold({"CNI_COMMAND": "STATUS"}) as turn:
        assert turn is None


def test_a_turn_that_another_process_ends_is_noticed(files: RootedFiles, tmp_path: Path):
    script = (
        "import os, sys; from weft.cni.host.files import RootedFiles; from weft.cni.host.locks import ContainerLocks\n"
        "locks = ContainerLocks(RootedFiles(os.open(sys.argv[1], os.O_PATH)))\n"
        "with locks.hold({'CNI_CONTAINERID': 'one'}): print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=CHECKOUT, stdin=pipe, stdout=pipe) as other:
        assert other.stdout
        assert other.stdin
        other.stdout.readline()
        threading.Timer(0.3, other.stdin.close).start()
        with ContainerLocks(files, patience=SECONDS).hold(ONE) as turn:
            assert turn
            other.wait(SECONDS)
        other.stdin = None


def test_the_next_gc_comes_after_those_that_waited_for_this_one(files: RootedFiles):
    """Else one GC after the other, each of which hangs for a while, bars everybody."""
    locks = ContainerLocks(files, patience=SECONDS)
    order: list[str] = []

    def take(env: dict[str, str], name: str) -> None:
        with locks.hold(env):
            order.append(name)

    first = locks.hold(GC)
    first.__enter__()
    waiting = threading.Thread(target=take, args=[ONE, "one"])
    waiting.start()
    eventually(lambda: locks._kept_away == 1)
    following = threading.Thread(target=take, args=[GC, "gc"])
    following.start()
    first.__exit__(None, None, None)
    waiting.join(SECONDS)
    following.join(SECONDS)
    assert order == ["one", "gc"]


def test_the_limits_fit_together():
    """A GC that hangs ends before those that wait for it give up, and they before their clients do."""
    header = (CHECKOUT / "src" / "weft" / "cni" / "client" / "weft.h").read_text()
    begin = int(header.partition("#define BEGIN_SECONDS ")[2].split()[0])
    assert GC_SECONDS < PATIENCE_SECONDS < begin
