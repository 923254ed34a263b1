"""TUN devices, which rtnetlink cannot make and whose queues it cannot open (linux/if_tun.h).

They outlive the process that serves them. The relay's put a `virtio_net_hdr` before each packet and have several
queues.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import addressof, create_string_buffer
from fcntl import ioctl
from struct import Struct
from typing import Final

_DEVICE: Final = "/dev/net/tun"
_TUNSETIFF: Final = 0x400454CA
_TUNSETPERSIST: Final = 0x400454CB
_TUNSETOFFLOAD: Final = 0x400454D0
_IFF_TUN: Final = 0x0001
_IFF_MULTI_QUEUE: Final = 0x0100
_IFF_NO_PI: Final = 0x1000
_IFF_VNET_HDR: Final = 0x4000
_PLAIN: Final = _IFF_TUN | _IFF_NO_PI
_OURS: Final = _PLAIN | _IFF_VNET_HDR | _IFF_MULTI_QUEUE
_IFREQ: Final = Struct("16sH22x")  # struct ifreq (linux/if.h): name, flags
_IFREQ_DATA: Final = Struct("16sP8x")  # the same: name, an address
_SIOCGIFFLAGS, _SIOCETHTOOL = 0x8913, 0x8946  # linux/sockios.h
_ETHTOOL_GLINK: Final = 0x0A  # linux/ethtool.h
_TOLD: Final = Struct("=II")  # struct ethtool_value: command, data
_IFF_UP: Final = 1
_CSUM, _TSO4, _TSO6, _TSO_ECN, _USO4, _USO6 = 0x01, 0x02, 0x04, 0x08, 0x20, 0x40  # TUN_F_*
_OFFLOADS: Final = (
    _CSUM | _TSO4 | _TSO6 | _TSO_ECN | _USO4 | _USO6,  # Linux 6.2
    _CSUM | _TSO4 | _TSO6 | _TSO_ECN,
    0,
)


def create(name: str, *, for_relay: bool = True) -> None:
    """Make the device, down. Raises `OSError`."""
    queue = _open(name, _OURS if for_relay else _PLAIN)
    try:
        ioctl(queue, _TUNSETPERSIST, 1)
    finally:
        os.close(queue)


def open_queue(name: str) -> int:
    """Open one more queue of an existing device; packets may come unsegmented.

    Returns a descriptor that does not block. Raises `OSError`.
    """
    queue = _open(name, _OURS)
    for offloads in _OFFLOADS:
        with suppress(OSError):
            ioctl(queue, _TUNSETOFFLOAD, offloads)
            break
    return queue


def take_queue(name: str) -> None:
    """Open the one queue of a plain device and close it. Raises `OSError`: EBUSY while another has it."""
    os.close(_open(name, _PLAIN))


@contextmanager
def trial() -> Iterator[int]:
    """The index of a device that exists for a moment, down, with a name of the kernel's choice. Raises `OSError`."""
    queue = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    try:
        name, _ = _IFREQ.unpack(ioctl(queue, _TUNSETIFF, _IFREQ.pack(b"", _PLAIN)))
        yield socket.if_nametoindex(name.rstrip(b"\0").decode())
    finally:
        os.close(queue)


def _open(name: str, flags: int) -> int:
    queue = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        ioctl(queue, _TUNSETIFF, _IFREQ.pack(name.encode(), flags))
    except OSError:
        os.close(queue)
        raise
    return queue


def is_unserved(name: str) -> bool:
    """Tell whether a device is up without any queue: then it has no carrier, and takes no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking, suppress(OSError):
        _, flags = _IFREQ.unpack(ioctl(asking, _SIOCGIFFLAGS, _IFREQ.pack(name.encode(), 0)))
        told = create_string_buffer(_TOLD.pack(_ETHTOOL_GLINK, 0), _TOLD.size)
        ioctl(asking, _SIOCETHTOOL, _IFREQ_DATA.pack(name.encode(), addressof(told)))
        _, carrier = _TOLD.unpack(told.raw)
        return bool(flags & _IFF_UP) and not carrier
    return False
