"""What is left to do when a plugin without a daemon has done its work: a process of its own does it, nobody waits.

To delete a link takes 20 ms, and to close a socket through which elements were deleted 14: the kernel waits for a
grace period. Should that process die, the next daemon finds the links: they are marked.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress

from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl


def leave(links: Sequence[int], sockets: Sequence[NfSocket]) -> None:
    """Have the links deleted, by index, and wait for the sockets; without room for a process do it here."""
    slow = [sock for sock in sockets if sock.slow_to_close]
    writer = None
    if links or slow:
        try:
            writer = _start(links, slow)
        except OSError:
            delete(links)
    for sock in sockets:
        sock.close()
    if writer is not None:
        os.close(writer)


def delete(links: Sequence[int]) -> None:
    """Delete them, those that are there."""
    with suppress(OSError), Rtnl.open() as rtnl:
        for index in links:
            with suppress(NetlinkError):
                rtnl.delete_link(index)


def _start(links: Sequence[int], sockets: Sequence[NfSocket]) -> int:
    """Start the process; returns a descriptor to close once the sockets are closed here.

    Only whoever closes a socket last waits, and that is to be the other one.
    """
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if child:
        os.close(reader)
        return writer
    try:
        os.setsid()
        os.chdir("/")
        # Whoever reads the answer, or waits for a lock of ours, waits until nobody has the descriptor any more.
        _close_all(but={reader, *(sock.fileno() for sock in sockets)})
        delete(links)
        os.read(reader, 1)
    finally:
        os._exit(0)


def _close_all(*, but: Collection[int]) -> None:
    # Not a range: without close_range(2), before Linux 5.9, that would be a million calls.
    with suppress(OSError):
        for number in map(int, os.listdir("/proc/self/fd")):
            if number not in but:
                with suppress(OSError):  # the one that listed them
                    os.close(number)
