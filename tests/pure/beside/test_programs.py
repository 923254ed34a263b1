"""Programs are run to their end, whatever the kernel tells of that."""

import errno
import os
import subprocess
import sys

import pytest

from weft.beside import programs

# By asyncio's own means this would wait for ever, or fail, if it waited by descriptors.
_RUNS = """
import asyncio, os, sys
number = int(sys.argv[1])
if number:
    def refuse(pid, flags=0):
        raise OSError(number, os.strerror(number))
    os.pidfd_open = refuse
from weft.beside import programs
async def run():
    return [await programs.run(["/bin/sh", "-c", f"echo {n}; exit {n}"], environ=None, seconds=20) for n in (0, 3)]
print([(ran.status, ran.out) for ran in asyncio.run(run())])
"""


@pytest.mark.parametrize("number", [0, errno.ENOSYS, errno.EPERM], ids=["there", "an older kernel", "a filter"])
def test_a_program_is_waited_for_with_descriptors_of_processes_and_without(number: int):
    ran = subprocess.run([sys.executable, "-c", _RUNS, str(number)], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == (r"[(0, b'0\n'), (3, b'3\n')]" + "\n", "")


async def test_a_program_that_closes_its_output_is_waited_for_without_work(monkeypatch):
    """The end of what it printed is told once, not again and again until the program ends."""
    reads: list[int] = []
    read = os.read

    def counted(descriptor: int, size: int) -> bytes:
        reads.append(descriptor)
        return read(descriptor, size)

    monkeypatch.setattr(programs.os, "read", counted)
    closes = "printf said; exec >&- 2>&-; sleep 0.5"
    ran = await programs.run(["sh", "-c", closes], environ=None, seconds=60)
    assert (ran.status, ran.out) == (0, b"said")
    assert len(reads) < 20


async def test_an_error_has_what_was_printed_last():
    many = "i=0; while :; do i=$((i+1)); echo $i; done"
    with pytest.raises(programs.KilledError, match="it prints more than 200000 bytes") as raised:
        await programs.run(["sh", "-c", many], environ=None, seconds=60, most=200_000)
    assert len(raised.value.said) == 1 << 16
    assert int(raised.value.said.splitlines()[1]) > 20_000
