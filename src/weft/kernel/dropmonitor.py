"""Has the kernel tell of each packet that it drops: why, in which function, and its first bytes (drop_monitor).

Generic netlink of linux/net_dropmon.h, in the mode of packets. A kernel has one monitor, which tells of all network
namespaces and is reached from the first one alone (net_drop_monitor_family is not `netnsok`). It has no owner: it goes
on when the process that started it has ended. So a guard, `python -I -m weft.kernel.dropmonitor …`, waits for the end
of descriptor 3, a pipe that this process holds, and stops the monitor however this process ends. A guard that was
killed is replaced; only if both are killed within a second, the monitor goes on.

The kernel does not say whether a monitor runs, but it is configured only while none does.
"""

import errno
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from struct import Struct
from typing import Final

from weft.kernel import genetlink
from weft.kernel.ending import spawn
from weft.kernel.rtnetlink.attributes import parse, u8, u32
from weft.kernel.rtnetlink.netlink import Message, NetlinkError, NetlinkSocket, join, messages_in, widen
from weft.model.kernel.dropped import Drop
from weft.model.value import Value, replace

_FAMILY: Final = "NET_DM"
_VERSION: Final = 2
_SOL_NETLINK: Final = 270
_NETLINK_NO_ENOBUFS: Final = 5
_SO_MEMINFO: Final = 55  # asm-generic/socket.h
_MEMINFO: Final = Struct("=9I")  # linux/sock_diag.h; the last is SK_MEMINFO_DROPS
_GROUP: Final = 1  # NET_DM_GRP_ALERT: generic netlink keeps this number for it

_CONFIG: Final = 2  # NET_DM_CMD_*
_START: Final = 3
_STOP: Final = 4
_PACKET_ALERT: Final = 5
_CONFIG_GET: Final = 6
_STATS_GET: Final = 8

_ALERT_MODE: Final = 1  # NET_DM_ATTR_*
_SYMBOL: Final = 3
_IN_PORT: Final = 4
_PROTO: Final = 6
_PAYLOAD: Final = 7
_TRUNC_LEN: Final = 9
_QUEUE_LEN: Final = 11
_STATS: Final = 12
_REASON: Final = 23
_PORT_NAME: Final = 1  # NET_DM_ATTR_PORT_NETDEV_NAME
_STATS_DROPPED: Final = 0  # NET_DM_ATTR_STATS_DROPPED

_PACKETS: Final = 1  # NET_DM_ALERT_MODE_PACKET
_SHOWN: Final = 256  # bytes of each packet: its headers, whatever it is wrapped in
_BUFFER: Final = 4 << 20  # bytes: drops come in bursts
_DATAGRAM: Final = 1 << 16
_AT_ONCE: Final = 1 << 12  # datagrams: some tenths of a second of work
_GUARD: Final = ("-I", "-m", "weft.kernel.dropmonitor")
_WATCHED: Final = 3  # the descriptor behind the standard streams
_LEAVE: Final = b"-"  # tells a guard that the monitor is another program's


class _Settings(Value):
    """How the monitor reports: its mode, bytes of each packet (0: all), packets that each processor queues."""

    mode: int
    shown: int
    kept: int


class Alerts:
    """What a monitor tells this network namespace from now on. `close` it; it does not block."""

    def __init__(self, family: int) -> None:
        """Raises `OSError`."""
        self._family = family
        self._sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, genetlink.NETLINK_GENERIC)
        try:
            widen(self._sock, _BUFFER)
            self._sock.bind((0, 0))
            # What finds no room is counted. As an error it would come before all that did find room.
            self._sock.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)
            join(self._sock, _GROUP)
            self._sock.setblocking(False)  # noqa: FBT003 - that is how socket has it
        except BaseException:
            self._sock.close()
            raise

    def close(self) -> None:
        self._sock.close()

    def take(self) -> Iterator[Drop]:
        """The drops that have come, some thousands at most."""
        with suppress(BlockingIOError):
            for _ in range(_AT_ONCE):
                yield from drops_in(self._sock.recv(_DATAGRAM), self._family)

    def unheard(self) -> int:
        """How many alerts the socket's buffer had no room for."""
        return int(_MEMINFO.unpack_from(self._sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[-1])


class Monitor:
    """Drops from now on. `close` it; it does not block.

    Where another program has started the monitor, this one only listens, and `renew` takes it over when that is over.
    """

    def __init__(self) -> None:
        """Raises `OSError`: ENOENT without a monitor, EBUSY if another program has it tell numbers alone."""
        self._asking = NetlinkSocket.open(genetlink.NETLINK_GENERIC)
        self._guard = self._held = 0
        try:
            family = genetlink.family(self._asking, _FAMILY)
            if family is None:
                raise OSError(errno.ENOENT, "this kernel, or this network namespace, has no drop_monitor")
            self._family = family
            self._before = self._settings()
            self._alerts = Alerts(family)
        except BaseException:
            self._asking.close()
            raise
        try:
            self.renew()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Return when the monitor is stopped, if this one has started it."""
        try:
            if self._guard:
                _stop(self._asking, self._family, self._before)
                self._dismiss_guard()
        finally:
            self._alerts.close()
            self._asking.close()

    def renew(self) -> None:
        """Start the monitor unless it runs, and replace a guard that was killed. Raises `OSError` as a new one does."""
        if self._guard and self._guard_has_ended():
            ended, held = self._guard, self._held
            self._start_guard()  # where that fails, `close` still knows that the monitor is ours
            _reap(ended, held)
        if self._do(_CONFIG, _said(replace(self._before, mode=_PACKETS, shown=_SHOWN))):
            if not self._guard:
                self._start_guard()
            if not self._do(_START):  # another program was faster
                self._dismiss_guard()
        if self._settings().mode != _PACKETS:  # which nobody changes while it runs
            if self._guard:  # who has started it has stopped ours before
                self._dismiss_guard()
            raise OSError(errno.EBUSY, "another program has drop_monitor count packets instead of reporting them")

    def _start_guard(self) -> None:
        reading, held = os.pipe()
        try:
            numbers = (self._family, self._before.mode, self._before.shown, self._before.kept)
            self._guard = spawn([sys.executable, *_GUARD, *map(str, numbers)], [reading])
        except BaseException:
            os.close(held)
            raise
        finally:
            os.close(reading)
        self._held = held

    def _dismiss_guard(self) -> None:
        """Have it end and leave the monitor alone, and wait for it."""
        with suppress(BrokenPipeError):
            os.write(self._held, _LEAVE)
        _reap(self._guard, self._held)
        self._guard = 0

    def _guard_has_ended(self) -> bool:
        """It ends before this process only by being killed."""
        try:
            return os.waitid(os.P_PID, self._guard, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # this process was started with SIGCHLD ignored
            return True

    def take(self) -> Iterator[Drop]:
        """The drops that have come, some thousands at most."""
        return self._alerts.take()

    def unheard(self) -> int:
        """How many drops are not reported: those that the kernel ever failed to queue, and those lost in our socket."""
        found = parse(self._asking.ask(self._message(_STATS_GET)), genetlink.HEADER.size).nest(_STATS)
        return (found.number(_STATS_DROPPED) or 0) + self._alerts.unheard()

    def _settings(self) -> _Settings:
        found = parse(self._asking.ask(self._message(_CONFIG_GET)), genetlink.HEADER.size)
        numbers = (found.number(each) or 0 for each in (_ALERT_MODE, _TRUNC_LEN, _QUEUE_LEN))
        return _Settings(**dict(zip(("mode", "shown", "kept"), numbers, strict=True)))

    def _do(self, command: int, body: bytes = b"") -> bool:
        """False where the monitor runs already."""
        return _done(self._asking, self._message(command, body))

    def _message(self, command: int, body: bytes = b"") -> Message:
        return Message(self._family, 0, genetlink.HEADER.pack(command, _VERSION) + body)


def _reap(guard: int, held: int) -> None:
    os.close(held)
    with suppress(ChildProcessError):
        os.waitpid(guard, 0)


def drops_in(datagram: bytes, family: int) -> Iterator[Drop]:
    """Raises `Malformed`."""
    for message in messages_in(datagram):
        if message.kind != family or message.body[:1] != bytes([_PACKET_ALERT]):
            continue
        found = parse(message.body, genetlink.HEADER.size)
        yield Drop(
            reason=found.text(_REASON),
            function=found.text(_SYMBOL).partition("+")[0],
            device=found.nest(_IN_PORT).text(_PORT_NAME),
            protocol=found.number(_PROTO) or 0,
            frame=found.get(_PAYLOAD, b""),
        )


def _said(settings: _Settings) -> bytes:
    return u8(_ALERT_MODE, settings.mode) + u32(_TRUNC_LEN, settings.shown) + u32(_QUEUE_LEN, settings.kept)


def _done(asking: NetlinkSocket, message: Message) -> bool:
    try:
        asking.request(message)
    except NetlinkError as error:
        if error.errno in (errno.EBUSY, errno.EAGAIN):
            return False
        raise
    return True


def _wait(family: int, settings: _Settings) -> None:
    """Wait until nobody holds the pipe, and stop the monitor; or be dismissed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.read(_WATCHED, 1) == _LEAVE:
        return
    with closing(NetlinkSocket.open(genetlink.NETLINK_GENERIC)) as asking:
        _stop(asking, family, settings)


def _stop(asking: NetlinkSocket, family: int, settings: _Settings) -> None:
    """Leave the monitor's settings as they were."""
    for command, body in ((_STOP, b""), (_CONFIG, _said(settings))):
        _done(asking, Message(family, 0, genetlink.HEADER.pack(command, _VERSION) + body))


if __name__ == "__main__":
    _number, _mode, _shown, _kept = map(int, sys.argv[1:])
    _wait(_number, _Settings(mode=_mode, shown=_shown, kept=_kept))
