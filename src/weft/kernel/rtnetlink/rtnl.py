"""An rtnetlink socket that lists what `ip` and `bridge` list, and changes links and addresses.

For the rest, `request` sends a message of `route`, `neigh`, `link` or `addr`. `family` is 4, 6 or 0 for both, `index` 0
or None all links. A refusal of the kernel is a `NetlinkError`.
"""

import errno
import socket
from collections.abc import Sequence
from typing import Final, Self, Unpack

from weft.kernel.rtnetlink import addr, link, neigh, route
from weft.kernel.rtnetlink.attributes import parse, u32
from weft.kernel.rtnetlink.link import LinkChanges
from weft.kernel.rtnetlink.netlink import Message, NetlinkError, NetlinkSocket
from weft.model.kernel.marks import MAIN_TABLE
from weft.model.kernel.reported import AddressInfo, FdbInfo, LinkCounts, LinkInfo, NeighbourInfo, RouteInfo, RuleInfo
from weft.model.net import Ip, Mac
from weft.model.value import replace

IPV6_ADDRESSES: Final = 9  # RTNLGRP_IPV6_IFADDR, for `notices`
_FAMILIES: Final = {4: (socket.AF_INET,), 6: (socket.AF_INET6,), 0: (socket.AF_INET, socket.AF_INET6)}
# The longest name of an interface in bytes (IFNAMSIZ without its NUL).
LONGEST_NAME: Final = 15
_RTM_GETNSID: Final = 90
_NETNSA_NSID: Final = 1
_NETNSA_FD: Final = 3

_RTGENMSG: Final = b"\0\0\0\0"  # family, padded
_NOT_ASSIGNED: Final = 0xFFFFFFFF


class Rtnl(NetlinkSocket):
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
            return link.parse_link(self.ask(link.get_link(of.link, netns=of.peer_netns)))
        except NetlinkError:
            return None

    def _look(self, which: str | int) -> bytes | None:
        if isinstance(which, str) and not 0 < len(which.encode("utf-8", "surrogateescape")) <= LONGEST_NAME:
            return None
        return self._if_there(link.get_link(which), absent=errno.ENODEV)

    def _if_there(self, question: Message, *, absent: int = errno.ENOENT) -> bytes | None:
        try:
            return self.ask(question)
        except NetlinkError as error:
            if error.errno == absent:
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
        settings = link.bridge_settings(vlan_filtering=vlan_filtering, mcast_snooping=mcast_snooping)
        self.request(link.create("bridge", name, settings, mtu=mtu, mac=mac, up=up))
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
        """Returns this end, whose `link` is the other's index in its namespace.

        `peer_alias` needs the peer in this namespace; through `peer_netns_fd` its own `Rtnl` sets it.
        """
        if peer_alias and peer_netns_fd is not None:
            raise ValueError("the alias of a peer in another namespace is set there")
        other = link.veth_peer(peer, mtu=mtu, mac=peer_mac, netns_fd=peer_netns_fd)
        self.request(link.create("veth", name, other, mtu=mtu, mac=mac, up=up))
        made = self._made(name, alias)
        if peer_alias:
            self.set_link(made.link, alias=peer_alias)
        return made

    def add_link(
        self, kind: str, data: bytes, *, name: str, mtu: int = 0, mac: Mac | None = None, alias: str = ""
    ) -> LinkInfo:
        """EEXIST if the name is taken, or what two devices of the kind cannot share."""
        self.request(link.create(kind, name, data, mtu=mtu, mac=mac))
        return self._made(name, alias)

    def add_ifb(self, name: str, *, mtu: int = 0, alias: str = "") -> LinkInfo:
        """EEXIST if the name is taken."""
        self.request(link.create("ifb", name, mtu=mtu, up=True))
        return self._made(name, alias)

    def knows(self, kind: str) -> bool:
        """Tell whether this kernel can make links of a kind (`vxlan`, `ifb`), after loading its module.

        Nothing is made: the name and MAC are impossible, and an unknown kind is refused otherwise. Needs CAP_NET_ADMIN.
        False for TUN devices, which rtnetlink cannot make.
        """
        refused = self.batch([link.create(kind, "/", mac=Mac(b"\xff" * 6))])
        if not refused:
            raise NetlinkError(errno.EEXIST, f"the kernel made a link of kind {kind} that cannot be")
        return refused[0].errno != errno.EOPNOTSUPP

    def set_link(self, index: int, **changes: Unpack[LinkChanges]) -> None:
        self.request(link.set_link(index, **changes))

    def change_link(self, index: int, kind: str, data: bytes) -> None:
        self.request(link.change_link(index, kind, data))

    def delete_link(self, index: int) -> None:
        """Blocks 10 to 20 ms in the kernel."""
        self.request(link.delete_link(index))

    def delete_links(self, indexes: Sequence[int], *, group: int) -> None:
        """Delete links in the time of one, by a `group` number that no other program uses.

        Missing links are left out. More than 16 at once hold up other sockets for long.
        """
        refused = self.batch([link.set_group(index, group) for index in indexes])
        if len(refused) < len(indexes):
            self.request(link.delete_group(group))

    def _made(self, name: str, alias: str) -> LinkInfo:
        """The link just made, with its alias, which the kernel does not take while it creates a link."""
        made = self.link(name)
        if made is None:
            raise NetlinkError(errno.ENODEV, f"{name} went away as soon as it was made")
        if not alias:
            return made
        self.set_link(made.index, alias=alias)
        return replace(made, alias=alias)

    def addresses(self, index: int | None = None, *, family: int = 0, netns: int = -1) -> list[AddressInfo]:
        """`netns` is another namespace's number (`LinkInfo.peer_netns`). A link that is gone has no addresses."""
        number = _FAMILIES[family][0] if family else socket.AF_UNSPEC
        question = addr.list_addresses(index or 0, number, netns=netns)
        try:
            return [addr.parse_address(body) for body in self.dump(*question)]
        except NetlinkError as error:
            if index and error.errno == errno.ENODEV:
                return []
            raise

    def add_address(
        self, index: int, ip: Ip, prefixlen: int, *, replace: bool = False, broadcast: Ip | None = None
    ) -> None:
        """IPv6's are used at once, without duplicate detection."""
        self.request(addr.add_address(index, ip, prefixlen, replace=replace, nodad=True, broadcast=broadcast))

    def delete_address(self, index: int, ip: Ip, prefixlen: int) -> None:
        """EADDRNOTAVAIL if it is not there."""
        self.request(addr.delete_address(index, ip, prefixlen))

    def routes(self, table: int = MAIN_TABLE, *, family: int = 0, protocol: int = 0, index: int = 0) -> list[RouteInfo]:
        """`table` and `protocol` 0 match any."""
        listed = self.route_messages(table, family=family, protocol=protocol, index=index)
        return [route.parse_route(body) for body in listed]

    def route_messages(self, table: int = MAIN_TABLE, *, family: int = 0, protocol: int = 0, index: int) -> list[bytes]:
        """The same routes as the kernel lists them (RTM_NEWROUTE), for `route.copy_route`."""
        found: list[bytes] = []
        for wanted in _FAMILIES[family]:
            request = route.list_routes(wanted, table=table, protocol=protocol, index=index)
            try:
                bodies = self.dump(*request)
            except NetlinkError as error:
                if error.errno != errno.ENOENT:  # a table without a route
                    raise
                continue
            # Where the kernel has no IPv6, it answers with the other family's.
            found += [body for body in bodies if body[0] == wanted]
        return found

    def route_to(self, ip: Ip) -> RouteInfo:
        """ENETUNREACH if there is none."""
        return route.parse_route(self.ask(route.get_route(ip)))

    def netns_number(self, descriptor: int) -> int:
        """Another namespace's number (`LinkInfo.peer_netns`); -1 if it has none here."""
        answer = self.ask(Message(_RTM_GETNSID, 0, _RTGENMSG + u32(_NETNSA_FD, descriptor)))
        number = parse(answer, len(_RTGENMSG)).number(_NETNSA_NSID)
        return -1 if number in (None, _NOT_ASSIGNED) else number or 0

    def neighbours(self, index: int | None = None) -> list[NeighbourInfo]:
        return [neigh.parse_neighbour(body) for body in self.dump(*neigh.list_neighbours(0, index or 0))]

    def neighbour(self, index: int, ip: Ip) -> NeighbourInfo | None:
        found = self._if_there(neigh.get_neighbour(index, ip))
        return None if found is None else neigh.parse_neighbour(found)

    def fdb_entry(self, bridge: int, mac: Mac) -> FdbInfo | None:
        """None if the bridge does not know the MAC."""
        found = self._if_there(neigh.get_fdb(bridge, mac))
        return None if found is None else neigh.parse_fdb(found)

    def fdb(self, index: int | None = None) -> list[FdbInfo]:
        return [neigh.parse_fdb(body) for body in self.dump(*neigh.list_fdb(index or 0))]

    def fdb_used(self) -> dict[Ip, float]:
        """By where forwarding entries lead, how many seconds ago a packet was sent there last."""
        found: dict[Ip, float] = {}
        for body in self.dump(*neigh.list_fdb(0)):
            if entry := neigh.parse_used(body):
                remote, used = entry
                found[remote] = min(used, found.get(remote, used))
        return found

    def rules(self, *, family: int = 0) -> list[RuleInfo]:
        return [
            route.parse_rule(body)
            for wanted in _FAMILIES[family]
            for body in self.dump(*route.list_rules(wanted))
            if body[0] == wanted
        ]
