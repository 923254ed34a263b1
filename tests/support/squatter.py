"""Users without rights who hold ports, or abstract names with as many connections waiting as there can be."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from subprocess import PIPE
from typing import Final

from tests.support.netns import Netns

_LESS: Final = ("setpriv", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--pdeathsig", "KILL")
USER: Final = (*_LESS, "--reuid=65534")
# A container in the host's network, with the root of the machine; then with all rights in a user namespace of its own.
ROOT: Final = _LESS
ROOT_IN_A_USER_NAMESPACE: Final = (*_LESS, "unshare", "--user", "--keep-caps")
_PROGRAM: Final = """
import contextlib, socket, sys
held, waiting = [], []
for name in sys.argv[1:]:
    held.append(socket.socket(socket.AF_UNIX))
    for buffer in (socket.SO_RCVBUF, 33):  # SO_RCVBUFFORCE: by this a daemon shows its rights
        with contextlib.suppress(PermissionError):
            held[-1].setsockopt(socket.SOL_SOCKET, buffer, 0x3FFFFFFF)
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

_TAKES: Final = (
    "import socket, sys; made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
    "made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); made.bind(('0.0.0.0', int(sys.argv[1]))); "
    "print(flush=True); sys.stdin.read()"
)


@contextmanager
def taking(netns: Netns, port: int) -> Iterator[int]:
    """A container's root without any capability in the host's network has a UDP port: its process."""
    command = [*_LESS, "--no-new-privs", sys.executable, "-c", _TAKES, str(port)]
    with netns.popen(command, stdin=PIPE, stdout=PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


@contextmanager
def squatting(netns: Netns, *names: str, wrap: Sequence[str] = USER) -> Iterator[None]:
    """Hold `names` in a namespace for as long as the block lasts; `wrap` is a command that gives rights away."""
    with netns.popen([*wrap, sys.executable, "-c", _PROGRAM, *names], stdin=PIPE, stdout=PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield
        finally:
            process.kill()
