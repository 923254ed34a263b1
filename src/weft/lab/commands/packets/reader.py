"""Reads packet sockets that the supervisor has opened in nodes and pods, in order of time.

The kernel stamps all of them by one clock, but they are read one after the other. So a packet is held back until no
socket can still bring an earlier one.
"""

import errno
import os
import select
import socket
import time
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Final

from weft.kernel import packetsocket
from weft.lab.system import ANCILLARY, arrival
from weft.model.value import Value

SNAPLEN: Final = 1 << 18
_OUTGOING: Final = 4  # linux/if_packet.h, PACKET_OUTGOING
_ETHERNET: Final = (1, 772)  # linux/if_arp.h: ARPHRD_ETHER, ARPHRD_LOOPBACK; tunnels of IP have no header before IP's
_TURN: Final = 512  # packets of one socket before the others get their turn
_LATEST: Final = 20_000_000  # nanoseconds from a packet's stamp until its socket can be read, with room to spare


class Packet(Value, gc=False):
    """A frame of at most SNAPLEN bytes; without `ethernet` it begins with the IP header."""

    place: str
    link: str
    data: bytes
    nanoseconds: int
    inbound: bool
    ethernet: bool


class PacketReader:
    def __init__(self, place: str, descriptor: int) -> None:
        self.place = place
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)  # noqa: FBT003 - that is how socket has it
        self._dropped = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def take(self) -> tuple[list[Packet], bool]:
        """At most a turn's packets, and whether more may wait."""
        packets: list[Packet] = []
        while len(packets) < _TURN:
            try:
                data, ancillary, _, address = self._socket.recvmsg(SNAPLEN, ANCILLARY)
            except OSError as error:
                # A link that goes down says so once, and is heard again when it is up.
                if error.errno not in (errno.EAGAIN, errno.ENETDOWN):
                    raise
                return packets, False
            # Python asks the socket's own namespace for the link's name.
            link, _, kind, hardware, _ = address
            packet = Packet(
                place=self.place,
                link=link,
                data=data,
                nanoseconds=arrival(ancillary),
                inbound=kind != _OUTGOING,
                ethernet=hardware in _ETHERNET,
            )
            packets.append(packet)
        return packets, True

    def dropped(self) -> int:
        """Packets that the kernel could not keep until they were read."""
        self._dropped += packetsocket.dropped(self._socket)
        return self._dropped


class Order:
    def __init__(self) -> None:
        self._held: list[tuple[int, int, Packet]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, packet: Packet) -> None:
        heappush(self._held, (packet.nanoseconds, next(self._numbers), packet))

    def release(self, before: int) -> Iterator[Packet]:
        """Those before this time, the oldest first; of one time as they came in."""
        while self._held and self._held[0][0] < before:
            yield heappop(self._held)[2]


class Readers:
    def __init__(self) -> None:
        self._readers: list[PacketReader] = []
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._reader_of: int | None = None

    def close(self) -> None:
        os.close(self._stop)
        for reader in self._readers:
            reader.close()

    def stop(self) -> None:
        """End `batches` with what has come until now; for signal handlers, too."""
        os.eventfd_write(self._stop, 1)

    def add(self, place: str, descriptor: int) -> None:
        self._readers.append(PacketReader(place, descriptor))

    def end_with(self, descriptor: int) -> None:
        """End `batches` once nobody reads what is written to this descriptor."""
        self._reader_of = descriptor

    def dropped(self) -> dict[str, int]:
        """Lost packets by node or pod; those that lost none are left out."""
        lost: dict[str, int] = {}
        for reader in self._readers:
            if number := reader.dropped():
                lost[reader.place] = lost.get(reader.place, 0) + number
        return lost

    def batches(self, *, until: float | None = None) -> Iterator[list[Packet]]:
        """Lists of packets in order of time, until the clock (`time.monotonic`) shows `until`, or `stop`."""
        order = Order()
        waiting, stopped = select.poll(), False
        waiting.register(self._stop, select.POLLIN)
        if self._reader_of is not None:
            waiting.register(self._reader_of, 0)  # poll reports errors and hang-ups unasked
        for reader in self._readers:
            waiting.register(reader, select.POLLIN)
        while not stopped and (until is None or time.monotonic() < until):
            if batch := list(order.release(self._take(order))):
                yield batch
            seconds = [_LATEST / 1_000_000_000] if order else []
            if until is not None:
                seconds.append(max(0.0, until - time.monotonic()))
            ready = waiting.poll(1000 * min(seconds) if seconds else None)
            stopped = any(descriptor in (self._stop, self._reader_of) for descriptor, _ in ready)
        end = time.time_ns()
        while self._take(order) < end - _LATEST:
            pass
        yield list(order.release(end))

    def _take(self, order: Order) -> int:
        """Take in what waits; returns the time before which nothing more can come."""
        complete = time.time_ns() - _LATEST
        for reader in self._readers:
            packets, more = reader.take()
            for packet in packets:
                order.hold(packet)
            if more:
                complete = min(complete, packets[-1].nanoseconds)
        return complete
