"""WireGuard in the kernel, by generic netlink."""

import errno
from collections.abc import Iterator, Mapping
from typing import Final, Self

from weft.daemon.backends.wireguard import messages
from weft.desired.tunnels.wireguard import Change, Device
from weft.kernel import genetlink
from weft.kernel.rtnetlink.netlink import Message, NetlinkError, NetlinkSocket
from weft.model.value import Secret, replace

_PEERS: Final = 64  # in a message, of at most 132 bytes each,
_NETWORKS: Final = 1024  # … and of all of them so many, of 40 bytes: the attribute that they are in has 64 KiB
_NONE: Final = (errno.ENODEV, errno.EOPNOTSUPP)  # no link of this name, or one of another kind


class InKernel:
    """The kernel's devices in this thread's namespace. One thread at a time."""

    def __init__(self, opened: NetlinkSocket, family: int) -> None:
        self._socket = opened
        self._family = family

    @classmethod
    def open(cls) -> Self | None:
        """None where the kernel has no WireGuard, after trying to load its module."""
        opened = NetlinkSocket.open(genetlink.NETLINK_GENERIC)
        try:
            family = genetlink.family(opened, messages.FAMILY)
        except BaseException:
            opened.close()
            raise
        if family is None:
            opened.close()
            return None
        return cls(opened, family)

    def close(self) -> None:
        self._socket.close()

    def device(self, name: str) -> Device | None:
        """None if there is none of this name. Raises `NetlinkError`."""
        try:
            return messages.device_in(self._socket.dump(self._family, messages.ask_device(name)))
        except NetlinkError as error:
            if error.errno in _NONE:
                return None
            raise

    def set_device(self, name: str, *, private: Secret, port: int) -> None:
        """Raises `NetlinkError`."""
        self._send(messages.set_device(name, private=private, port=port))

    def set_peers(self, name: str, changes: Mapping[str, Change]) -> None:
        """Change peers by their keys. Raises `NetlinkError`: then some may be set."""
        for some in _batches(changes):
            self._send(messages.set_peers(name, some))

    def _send(self, body: bytes) -> None:
        self._socket.request(Message(self._family, 0, body))


def _batches(changes: Mapping[str, Change]) -> Iterator[dict[str, Change]]:
    """A peer that relays for thousands is in several."""
    batch: dict[str, Change] = {}
    left = _NETWORKS
    for key, change in changes.items():
        for part in _parts(change):
            if key in batch or len(batch) == _PEERS or len(part.networks) > left:
                yield batch
                batch, left = {}, _NETWORKS
            batch[key] = part
            left -= len(part.networks)
    if batch:
        yield batch


def _parts(change: Change) -> Iterator[Change]:
    """The first makes the peer what it is to be; the others add networks."""
    networks = list(change.networks)
    yield replace(change, networks=frozenset(networks[:_NETWORKS]))
    for start in range(_NETWORKS, len(networks), _NETWORKS):
        yield Change(networks=frozenset(networks[start : start + _NETWORKS]))
