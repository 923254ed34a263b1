"""The kernel's own work for one attachment: the messages alone, from a process that runs already."""

import os
import time
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Self

from tests.support import namespaces as netns
from weft.cni.attachment.interface import RTPROT_BOOT
from weft.kernel.rtnetlink.addr import add_address
from weft.kernel.rtnetlink.link import set_link, set_port, without_link_local
from weft.kernel.rtnetlink.netlink import Message
from weft.kernel.rtnetlink.route import add_route
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.marks import MAIN_TABLE

# For documentation (RFC 5737): no chain gives these.
_IP, _GATEWAY, _LENGTH = IPv4Address("192.0.2.2"), IPv4Address("192.0.2.1"), 24
_NAME, _HOST_END = "bare0", "bare1"


class Bare:
    """One attachment to a bridge, in a namespace of `ip netns`; the links go when the block ends."""

    def __init__(self, bridge: str, container: str) -> None:
        self._namespaces = netns.open_own(), netns.open_path(Path("/run/netns", container))
        self._host, self._inside = Rtnl.open(), netns.rtnl_in(self._namespaces[1])
        self._bridge = _index(self._host, bridge)
        self._link = self._peer = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._peer:
            self._host.delete_link(self._peer)
        self._host.close()
        self._inside.close()
        for fd in self._namespaces:
            os.close(fd)

    def attach(self) -> float:
        """Make the links, join the bridge, give an address and a way out; returns milliseconds."""
        start = time.perf_counter()
        made = self._inside.add_veth(_NAME, peer=_HOST_END, peer_netns_fd=self._namespaces[0], mtu=1450)
        self._link, self._peer = made.index, made.link
        _do(
            self._host,
            without_link_local(self._peer),
            set_link(self._peer, up=True, master=self._bridge),
            set_port(self._peer, hairpin=True, isolated=None),
        )
        _do(
            self._inside,
            without_link_local(self._link),
            add_address(self._link, _IP, _LENGTH, replace=False),
            set_link(self._link, up=True),
            add_route(
                ip_network("0.0.0.0/0"),
                via=_GATEWAY,
                index=self._link,
                table=MAIN_TABLE,
                protocol=RTPROT_BOOT,
                mode="append",
            ),
        )
        return (time.perf_counter() - start) * 1e3

    def detach(self) -> float:
        """Have both ends carry nothing any more, as DEL does before it answers; returns milliseconds."""
        start = time.perf_counter()
        _do(self._host, set_link(self._peer, up=False, master=0))
        _do(self._inside, set_link(self._link, up=False))
        return (time.perf_counter() - start) * 1e3


def _do(rtnl: Rtnl, *messages: Message) -> None:
    for error in rtnl.batch(messages).values():
        raise error


def _index(rtnl: Rtnl, name: str) -> int:
    index = rtnl.index_of(name)
    if index is None:
        raise LookupError(name)
    return index
