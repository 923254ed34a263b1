"""The rtnetlink socket and its methods for links; `weft.kernel.rtnetlink.rtnl` adds those for everything on them.

Thin: the messages are made in `link`. What holds for `Rtnl` holds here.
"""

import errno
import socket
from collections.abc import Sequence
from typing import Final, Self, Unpack

from weft.kernel.rtnetlink import link
from weft.kernel.rtnetlink.link import LinkChanges
from weft.kernel.rtnetlink.netlink import Message, NetlinkError, NetlinkSocket
from weft.model.kernel.reported import LinkCounts, LinkInfo
from weft.model.net import Mac
from weft.model.value import replace

# The longest name of an interface in bytes (IFNAMSIZ without its NUL).
LONGEST_NAME: Final = 15


class LinkCalls:
    """A socket and what is done to links through it: the first half of `weft.kernel.rtnetlink.rtnl.Rtnl`."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over an AF_NETLINK socket of protocol NETLINK_ROUTE, perhaps from another namespace."""
        self._socket = NetlinkSocket(sock)

    @classmethod
    def open(cls) -> Self:
        """Open a socket in the calling thread's network namespace."""
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        try:
            return cls(sock)
        except BaseException:
            sock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def fileno(self) -> int:
        """The socket's descriptor, for passing on."""
        return self._socket.fileno()

    @property
    def port(self) -> int:
        """The socket's netlink port: notices caused by it carry the number (nlmsg_pid)."""
        return self._socket.port

    def batch(self, messages: Sequence[Message]) -> dict[int, NetlinkError]:
        """Send many at once; returns the refusals by position. See `NetlinkSocket.batch`."""
        return self._socket.batch(messages)

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """The raw answers of a list request; see `NetlinkSocket.dump`."""
        return self._socket.dump(kind, body)

    def ask(self, message: Message) -> bytes:
        """The raw answer to a question that has one; see `NetlinkSocket.ask`."""
        return self._socket.ask(message)

    def links(self) -> list[LinkInfo]:
        """All links, by index."""
        return [link.parse_link(body) for body in self.dump(*link.list_links())]

    def counters(self) -> list[LinkCounts]:
        """What all links have counted, by index, in one question."""
        return [link.parse_counters(body) for body in self.dump(*link.list_counters())]

    def link(self, which: str | int) -> LinkInfo | None:
        """One link by name or index, None if there is none."""
        body = self._look(which)
        return None if body is None else link.parse_link(body)

    def index_of(self, name: str) -> int | None:
        """The index of a link, where nothing else of it is wanted; None if there is none."""
        body = self._look(name)
        return None if body is None else link.index_and_name(body)[0]

    def name_of(self, index: int) -> str:
        """The name of a link, where nothing else of it is wanted. ENODEV if there is none."""
        return link.index_and_name(self.ask(link.get_link(index)))[1]

    def peer_of(self, of: LinkInfo) -> LinkInfo | None:
        """The other end of a pair of links, wherever it is; None if it is gone, or the kernel does not tell."""
        try:
            return link.parse_link(self._socket.ask(link.get_link(of.link, netns=of.peer_netns)))
        except NetlinkError:
            return None

    def _look(self, which: str | int) -> bytes | None:
        if isinstance(which, str) and not 0 < len(which.encode("utf-8", "surrogateescape")) <= LONGEST_NAME:
            return None
        try:
            return self._socket.ask(link.get_link(which))
        except NetlinkError as error:
            if error.errno == errno.ENODEV:
                return None
            raise

    def add_bridge(
        self,
        name: str,
        *,
        mtu: int = 0,
        mac: Mac | None = None,
        vlan_filtering: bool = False,
        mcast_snooping: bool = True,
        alias: str = "",
        up: bool = False,
    ) -> LinkInfo:
        """Create a bridge and return it. EEXIST if the name is taken."""
        self._socket.request(
            link.create_bridge(
                name, mtu=mtu, mac=mac, vlan_filtering=vlan_filtering, mcast_snooping=mcast_snooping, up=up
            )
        )
        return self._made(name, alias)

    def add_veth(
        self,
        name: str,
        *,
        peer: str,
        mtu: int = 0,
        mac: Mac | None = None,
        peer_mac: Mac | None = None,
        peer_netns_fd: int | None = None,
        alias: str = "",
        peer_alias: str = "",
        up: bool = False,
    ) -> LinkInfo:
        """Create a veth pair and return this end, whose `link` is the other's index in its namespace.

        `peer_alias` needs the peer in this namespace; through `peer_netns_fd` its own `Rtnl` sets it.
        """
        if peer_alias and peer_netns_fd is not None:
            raise ValueError("the alias of a peer in another namespace is set there")
        self._socket.request(
            link.create_veth(name, peer=peer, mtu=mtu, mac=mac, peer_mac=peer_mac, peer_netns_fd=peer_netns_fd, up=up)
        )
        made = self._made(name, alias)
        if peer_alias:
            self.set_link(made.link, alias=peer_alias)
        return made

    def add_link(
        self, kind: str, data: bytes, *, name: str, mtu: int = 0, mac: Mac | None = None, alias: str = ""
    ) -> LinkInfo:
        """Create a device of a kind, down, and return it; `data` are its own attributes.

        EEXIST if the name is taken, or what two devices of the kind cannot share.
        """
        self._socket.request(link.create_link(kind, data, name=name, mtu=mtu, mac=mac))
        return self._made(name, alias)

    def add_ifb(self, name: str, *, mtu: int = 0, alias: str = "") -> LinkInfo:
        """Create an IFB device, up, and return it. EEXIST if the name is taken."""
        self._socket.request(link.create_ifb(name, mtu=mtu))
        return self._made(name, alias)

    def set_link(self, index: int, **changes: Unpack[LinkChanges]) -> None:
        """Change a link."""
        self._socket.request(link.set_link(index, **changes))

    def change_link(self, index: int, kind: str, data: bytes) -> None:
        """Change a device's own attributes."""
        self._socket.request(link.change_link(index, kind, data))

    def set_port(self, index: int, *, hairpin: bool | None = None, isolated: bool | None = None) -> None:
        """Change settings of a bridge's port."""
        self._socket.request(link.set_port(index, hairpin=hairpin, isolated=isolated))

    def delete_link(self, index: int) -> None:
        """Delete a link. Blocks 10 to 20 ms in the kernel."""
        self._socket.request(link.delete_link(index))

    def delete_links(self, indexes: Sequence[int], *, group: int) -> None:
        """Delete links together, in the time of one, by way of a `group` number that no other program uses.

        Those that are gone already are left out. More than 16 at once hold up other sockets for long.
        """
        refused = self.batch([link.set_group(index, group) for index in indexes])
        if len(refused) < len(indexes):
            self._socket.request(link.delete_group(group))

    def _made(self, name: str, alias: str) -> LinkInfo:
        """The link just made under `name`, with its alias: the kernel takes none while it creates a link."""
        made = self.link(name)
        if made is None:
            raise NetlinkError(errno.ENODEV, f"{name} went away as soon as it was made")
        if not alias:
            return made
        self.set_link(made.index, alias=alias)
        return replace(made, alias=alias)
