"""Freed memory goes back to the kernel."""

import subprocess
import sys

# Frees a block of 20 MB after which glibc would keep blocks up to that size, then many of 1 MB with a small one above.
_SCRIPT = """
import ctypes, sys
from weft.daemon.main import give_back
if sys.argv[1] == "give back":
    give_back()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def block(size):
    made = libc.malloc(size)
    ctypes.memset(made, 1, size)
    return made

libc.free(block(20 << 20))
blocks = [block(1 << 20) for _ in range(30)]
above = block(1 << 10)
for each in blocks:
    libc.free(each)
print(open("/proc/self/statm").read().split()[1])
"""


def resident(how: str) -> int:
    """Megabytes that such a process has at the end; pages have 4 KB."""
    ran = subprocess.run([sys.executable, "-c", _SCRIPT, how], capture_output=True, text=True, check=True)
    return int(ran.stdout) * 4 // 1024


def test_what_was_needed_for_a_moment_does_not_stay():
    assert resident("give back") + 20 < resident("keep")
