"""A user without rights who holds abstract names, with as many connections waiting on each as there can be."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE
from typing import Final

from tests.support.netns import Netns

_USER: Final = ("setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-all", "--pdeathsig", "KILL")
_PROGRAM: Final = """
import socket, sys
held, waiting = [], []
for name in sys.argv[1:]:
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].bind("\\0" + name)
    held[-1].listen(0)
    while True:
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        if waiting[-1].connect_ex("\\0" + name):
            break
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def squatting(netns: Netns, *names: str) -> Iterator[None]:
    """Hold `names` in a namespace for as long as the block lasts."""
    with netns.popen([*_USER, sys.executable, "-c", _PROGRAM, *names], stdin=PIPE, stdout=PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield
        finally:
            process.kill()
