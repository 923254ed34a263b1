"""Ending processes whose numbers may be others' by now, and what keeps a network namespace alive with it."""

import errno
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.support import oldkernel
from tests.support.netns import Netns
from weft.kernel.ending import end


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "600"])


def sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x00600\x00"


def test_a_process_that_has_a_number_now_is_not_ended_for_the_one_that_had_it():
    """The process ends after it was looked for, and the kernel gives its number to another one."""
    known, later = sleeper(), []

    def is_it(pid: int) -> bool:
        if later:
            return False
        known.kill()
        known.wait()
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        later.append(sleeper())
        return True

    end(known.pid, is_it, signal.SIGTERM, signal.SIGKILL)
    [other] = later
    try:
        assert other.pid == known.pid, "the test has its own namespace of processes"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1)
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM], ids=["before Linux 5.3", "a filter"])
def test_where_the_kernel_gives_no_descriptors_of_processes_it_ends_all_the_same(number: int):
    process = sleeper()

    def old() -> None:
        oldkernel.refuse("pidfd_open", number)
        end(process.pid, sleeps, signal.SIGTERM)

    thread = threading.Thread(target=old)
    thread.start()
    thread.join()
    try:
        assert process.wait(100) == -signal.SIGTERM
    finally:
        process.kill()


def test_a_process_that_is_in_another_network_namespace_is_left_alone(netns: Netns):
    """It was found here, and has entered another one since; or it has the number of one that was found."""
    process = sleeper()
    try:
        netns.call(lambda: end(process.pid, sleeps, signal.SIGKILL))
        assert process.poll() is None
        end(process.pid, sleeps, signal.SIGKILL)
        assert process.wait(100) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_what_heeds_no_word_is_killed_and_what_is_another_is_left_alone():
    deaf = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"], stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    deaf.stdout.readline()
    try:
        end(deaf.pid, lambda _: False, signal.SIGKILL)
        assert deaf.poll() is None
        end(deaf.pid, lambda _: deaf.poll() is None, signal.SIGTERM, signal.SIGKILL)
        assert deaf.returncode == -signal.SIGKILL
    finally:
        deaf.kill()
        deaf.wait()
        deaf.stdout.close()
