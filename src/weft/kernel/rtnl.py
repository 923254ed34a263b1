"""One rtnetlink socket as methods: list, add, change and delete what `ip` and `bridge` do.

Thin: the messages are made in `link`, `addr`, `route`, `neigh` and `rule`. Synchronous, one thread at a time.
It acts in the namespace its socket was opened in, whatever namespace the caller is in. A refusal of the kernel
is `NetlinkError` with errno and the kernel's own words.
"""

import errno
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from weft.kernel import addr, link, neigh, route, rule
from weft.kernel.netlink import Message, NetlinkError, NetlinkSocket
from weft.model.net import Ip, Mac, Net
from weft.model.objects import MAIN_TABLE, PROTOCOL
from weft.model.snapshot import AddressInfo, FdbInfo, LinkInfo, NeighbourInfo, RouteInfo, RuleInfo

# The longest name of an interface in bytes (IFNAMSIZ without its NUL).
LONGEST_NAME = 15
_FAMILIES = {4: (socket.AF_INET,), 6: (socket.AF_INET6,), 0: (socket.AF_INET, socket.AF_INET6)}


class Rtnl:
    """rtnetlink of one network namespace. A context manager; `close` it otherwise."""

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

    def links(self) -> list[LinkInfo]:
        """All links, by index."""
        return [link.parse_link(body) for body in self.dump(*link.list_links())]

    def link(self, which: str | int) -> LinkInfo | None:
        """One link by name or index, None if there is none."""
        if isinstance(which, str) and not 0 < len(which.encode("utf-8", "surrogateescape")) <= LONGEST_NAME:
            return None
        try:
            return link.parse_link(self._socket.ask(link.get_link(which)))
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
        alias: str = "",
        up: bool = False,
    ) -> LinkInfo:
        """Create a bridge and return it. EEXIST if the name is taken."""
        self._socket.request(link.create_bridge(name, mtu=mtu, mac=mac, vlan_filtering=vlan_filtering, up=up))
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

    def add_vxlan(
        self,
        name: str,
        *,
        vni: int,
        port: int = 0,
        local: Ip | None = None,
        parent: int = 0,
        mac: Mac | None = None,
        mtu: int = 0,
        learning: bool = False,
        gbp: bool = False,
        alias: str = "",
    ) -> LinkInfo:
        """Create a VTEP, down, and return it. EEXIST if the name or (VNI, port) is taken."""
        self._socket.request(
            link.create_vxlan(
                name, vni=vni, port=port, local=local, parent=parent, mac=mac, mtu=mtu, learning=learning, gbp=gbp
            )
        )
        return self._made(name, alias)

    def set_link(
        self,
        index: int,
        *,
        up: bool | None = None,
        mtu: int | None = None,
        master: int | None = None,
        name: str | None = None,
        mac: Mac | None = None,
        alias: str | None = None,
        promisc: bool | None = None,
        netns_fd: int | None = None,
    ) -> None:
        """Change what is not None. `master` 0 takes the link off its bridge; an empty alias removes it."""
        self._socket.request(
            link.set_link(
                index,
                up=up,
                mtu=mtu,
                master=master,
                name=name,
                mac=mac,
                alias=alias,
                promisc=promisc,
                netns_fd=netns_fd,
            )
        )

    def set_vxlan_learning(self, index: int, *, vni: int, learning: bool) -> None:
        """Turn MAC learning of a VTEP on or off."""
        self._socket.request(link.set_vxlan_learning(index, vni=vni, learning=learning))

    def set_port(self, index: int, *, hairpin: bool | None = None, isolated: bool | None = None) -> None:
        """Change settings of a bridge's port."""
        self._socket.request(link.set_port(index, hairpin=hairpin, isolated=isolated))

    def delete_link(self, index: int) -> None:
        """Delete a link. Blocks 10 to 20 ms in the kernel."""
        self._socket.request(link.delete_link(index))

    def delete_links(self, indexes: Sequence[int], *, group: int) -> None:
        """Delete links together, in the time of one, by way of a `group` number that nobody else uses.

        Those that are gone already are left out. More than 16 at once hold up other sockets for long.
        """
        refused = self.batch([link.set_group(index, group) for index in indexes])
        if len(refused) < len(indexes):
            self._socket.request(link.delete_group(group))

    def addresses(self, index: int | None = None) -> list[AddressInfo]:
        """The addresses of one link, or of all."""
        return [addr.parse_address(body) for body in self.dump(*addr.list_addresses(index or 0))]

    def add_address(
        self,
        index: int,
        ip: Ip,
        prefixlen: int,
        *,
        replace: bool = False,
        nodad: bool = False,
        broadcast: Ip | None = None,
    ) -> None:
        """Add an address. `nodad` lets an IPv6 address be used at once."""
        message = addr.add_address(index, ip, prefixlen, replace=replace, nodad=nodad, broadcast=broadcast)
        self._socket.request(message)

    def delete_address(self, index: int, ip: Ip, prefixlen: int) -> None:
        """Delete an address; EADDRNOTAVAIL if it is not there."""
        self._socket.request(addr.delete_address(index, ip, prefixlen))

    def routes(self, table: int = MAIN_TABLE, *, family: int = 0, protocol: int = 0, index: int = 0) -> list[RouteInfo]:
        """The routes that match: of `family` 4 or 6 (0: both), table 0 for all, `protocol`, `index` (0: any)."""
        found = []
        for wanted in _FAMILIES[family]:
            request = route.list_routes(wanted, table=table, protocol=protocol, index=index)
            try:
                bodies = self.dump(*request)
            except NetlinkError as error:
                if error.errno != errno.ENOENT:  # a table that nobody has put a route into
                    raise
                continue
            # Where the kernel has no IPv6, it answers with the other family's.
            found += [route.parse_route(body) for body in bodies if body[0] == wanted]
        return found

    def add_route(
        self,
        dst: Net,
        *,
        via: Ip | None = None,
        index: int | None = None,
        onlink: bool = False,
        blackhole: bool = False,
        table: int = MAIN_TABLE,
        scope: int | None = None,
        src: Ip | None = None,
        mtu: int = 0,
        advmss: int = 0,
        priority: int = 0,
        protocol: int = PROTOCOL,
        mode: route.Mode = "replace",
    ) -> None:
        """Add a route. `priority` 0 is the kernel's default (IPv6: 1024)."""
        self._socket.request(
            route.add_route(
                dst,
                via=via,
                index=index or 0,
                onlink=onlink,
                kind=route.RTN_BLACKHOLE if blackhole else route.RTN_UNICAST,
                table=table,
                scope=scope,
                src=src,
                mtu=mtu,
                advmss=advmss,
                priority=priority,
                protocol=protocol,
                mode=mode,
            )
        )

    def delete_route(
        self,
        dst: Net,
        *,
        via: Ip | None = None,
        index: int | None = None,
        table: int = MAIN_TABLE,
        priority: int = 0,
        protocol: int = PROTOCOL,
    ) -> None:
        """Delete the first route that matches what is given; ESRCH if there is none."""
        message = route.delete_route(dst, via=via, index=index or 0, table=table, priority=priority, protocol=protocol)
        self._socket.request(message)

    def route_to(self, ip: Ip) -> RouteInfo:
        """Which way a packet to `ip` would go. ENETUNREACH if there is none."""
        return route.parse_route(self._socket.ask(route.get_route(ip)))

    def neighbours(self, index: int | None = None) -> list[NeighbourInfo]:
        """The neighbours on one link, or on all, of both families."""
        return [neigh.parse_neighbour(body) for body in self.dump(*neigh.list_neighbours(0, index or 0))]

    def add_neighbour(self, index: int, ip: Ip, *, mac: Mac, replace: bool = True) -> None:
        """Add a permanent neighbour with our mark."""
        self._socket.request(neigh.add_neighbour(index, ip, mac, protocol=PROTOCOL, replace=replace))

    def delete_neighbour(self, index: int, ip: Ip) -> None:
        """Delete a neighbour; ENOENT if it is not there."""
        self._socket.request(neigh.delete_neighbour(index, ip))

    def fdb(self, index: int | None = None) -> list[FdbInfo]:
        """The forwarding entries of one VXLAN device or bridge port, or of all."""
        return [neigh.parse_fdb(body) for body in self.dump(*neigh.list_fdb(index or 0))]

    def add_fdb(self, index: int, mac: Mac, *, remote: Ip, replace: bool = True) -> None:
        """Add a permanent forwarding entry of a VXLAN device."""
        self._socket.request(neigh.add_fdb(index, mac, remote, replace=replace))

    def delete_fdb(self, index: int, mac: Mac, *, remote: Ip | None = None) -> None:
        """Delete one remote of a forwarding entry, or the entry; ENOENT if it is not there."""
        self._socket.request(neigh.delete_fdb(index, mac, remote))

    def rules(self, *, family: int = 0) -> list[RuleInfo]:
        """The policy rules of `family` 4 or 6 (0: both)."""
        return [
            rule.parse_rule(body)
            for wanted in _FAMILIES[family]
            for body in self.dump(*rule.list_rules(wanted))
            if body[0] == wanted
        ]

    def add_rule(self, wanted: RuleInfo) -> None:
        """Add a policy rule; EEXIST if the same one is there."""
        self._socket.request(rule.add_rule(wanted))

    def delete_rule(self, unwanted: RuleInfo) -> None:
        """Delete the first rule that looks like this one; ENOENT if there is none."""
        self._socket.request(rule.delete_rule(unwanted))

    def _made(self, name: str, alias: str) -> LinkInfo:
        """The link just made under `name`, with its alias: the kernel takes none while it creates a link."""
        made = self.link(name)
        if made is None:
            raise NetlinkError(errno.ENODEV, f"{name} went away as soon as it was made")
        if not alias:
            return made
        self.set_link(made.index, alias=alias)
        return replace(made, alias=alias)
