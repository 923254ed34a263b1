"""Programs are run to their end, whatever the kernel tells of that."""

import errno
import subprocess
import sys

import pytest

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
