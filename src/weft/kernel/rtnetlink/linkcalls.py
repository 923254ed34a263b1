"""The rtnetlink socket and its methods for links; `weft.kernel.rtnetlink.rtnl` adds the others."""

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
    """The first half of `weft.kernel.rtnetlink.rtnl.Rtnl`."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over an AF_NETLINK socket of protocol NETLINK_ROUTE, perhaps from another namespace."""
        self._socket = NetlinkSocket(sock)

    @classmethod
    def open(cls) -> Self:
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
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def port(self) -> int:
        """Notices caused by the socket carry this number (nlmsg_pid)."""
        return self._socket.port

    def batch(self, messages: Sequence[Message]) -> dict[int, NetlinkError]:
        """See `NetlinkSocket.batch`."""
        return self._socket.batch(messages)

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """See `NetlinkSocket.dump`."""
        return self._socket.dump(kind, body)

    def ask(self, message: Message) -> bytes:
        """See `NetlinkSocket.ask`."""
        return self._socket.ask(message)

    def links(self) -> list[LinkInfo]:
        return [link.parse_link(body) for body in self.dump(*link.list_links())]

    def counters(self) -> list[LinkCounts]:
        return [link.parse_counters(body) for body in self.dump(*link.list_counters())]

    def link(self, which: str | int) -> LinkInfo | None:
        body = self._look(which)
        return None if body is None else link.parse_link(body)

    def index_of(self, name: str) -> int | None:
        """Cheaper than `link`."""
        body = self._look(name)
        return None if body is None else link.index_and_name(body)[0]

    def name_of(self, index: int) -> str:
        """Cheaper than `link`. ENODEV if there is none."""
        return link.index_and_name(self.ask(link.get_link(index)))[1]

    def peer_of(self, of: LinkInfo) -> LinkInfo | None:
        """The other end of a pair, in any namespace; None if it is gone, or the kernel does not tell."""
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
        """EEXIST if the name is taken."""
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
        """Return this end, whose `link` is the other's index in its namespace.

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
        """`data` are the kind's attributes.

        EEXIST if the name is taken, or what two devices of the kind cannot share.
        """
        self._socket.request(link.create_link(kind, data, name=name, mtu=mtu, mac=mac))
        return self._made(name, alias)

    def add_ifb(self, name: str, *, mtu: int = 0, alias: str = "") -> LinkInfo:
        """EEXIST if the name is taken."""
        self._socket.request(link.create_ifb(name, mtu=mtu))
        return self._made(name, alias)

    def set_link(self, index: int, **changes: Unpack[LinkChanges]) -> None:
        self._socket.request(link.set_link(index, **changes))

    def change_link(self, index: int, kind: str, data: bytes) -> None:
        self._socket.request(link.change_link(index, kind, data))

    def set_port(self, index: int, *, hairpin: bool | None = None, isolated: bool | None = None) -> None:
        self._socket.request(link.set_port(index, hairpin=hairpin, isolated=isolated))

    def delete_link(self, index: int) -> None:
        """Blocks 10 to 20 ms in the kernel."""
        self._socket.request(link.delete_link(index))

    def delete_links(self, indexes: Sequence[int], *, group: int) -> None:
        """Delete links in the time of one, by a `group` number that no other program uses.

        Missing links are left out. More than 16 at once hold up other sockets for long.
        """
        refused = self.batch([link.set_group(index, group) for index in indexes])
        if len(refused) < len(indexes):
            self._socket.request(link.delete_group(group))

    def _made(self, name: str, alias: str) -> LinkInfo:
        """The link just made, with its alias: the kernel takes none while it creates a link."""
        made = self.link(name)
        if made is None:
            raise NetlinkError(errno.ENODEV, f"{name} went away as soon as it was made")
        if not alias:
            return made
        self.set_link(made.index, alias=alias)
        return replace(made, alias=alias)
