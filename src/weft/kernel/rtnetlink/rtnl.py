"""One rtnetlink socket as methods: list, add, change and delete what `ip` and `bridge` do.

The messages are made in `link`, `addr`, `route`, `neigh`, `rule` and `netnsid`. Synchronous, one thread at a time. It
acts in the namespace its socket was opened in, whatever namespace the caller is in. A refusal of the kernel is
`NetlinkError` with errno and the kernel's own words.
"""

import errno
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from weft.kernel.rtnetlink import addr, neigh, netnsid, route, rule
from weft.kernel.rtnetlink.linkcalls import LinkCalls
from weft.kernel.rtnetlink.netlink import Message, NetlinkError
from weft.model.kernel.marks import MAIN_TABLE, PROTOCOL
from weft.model.kernel.reported import AddressInfo, FdbInfo, NeighbourInfo, RouteInfo, RuleInfo
from weft.model.net import Ip, Mac, Net

_RTNLGRP_IPV6_IFADDR: Final = 9
_FAMILIES: Final = {4: (socket.AF_INET,), 6: (socket.AF_INET6,), 0: (socket.AF_INET, socket.AF_INET6)}


class Rtnl(LinkCalls):
    """A context manager; `close` it otherwise."""

    def addresses(self, index: int | None = None, *, family: int = 0, netns: int = -1) -> list[AddressInfo]:
        """`family` is 4, 6 or 0 for both; `index` 0 is all links.

        `netns` is the number of another namespace, as `LinkInfo.peer_netns` names it. A link that is gone has none.
        """
        number = _FAMILIES[family][0] if family else socket.AF_UNSPEC
        question = addr.list_addresses(index or 0, number, netns=netns)
        try:
            return [addr.parse_address(body) for body in self.dump(*question)]
        except NetlinkError as error:
            if index and error.errno == errno.ENODEV:
                return []
            raise

    def add_address(
        self,
        index: int,
        ip: Ip,
        prefixlen: int,
        *,
        replace: bool = False,
        broadcast: Ip | None = None,
    ) -> None:
        """Add an address, of IPv6 one that is used at once, without a look for duplicates."""
        self._socket.request(addr.add_address(index, ip, prefixlen, replace=replace, nodad=True, broadcast=broadcast))

    def delete_address(self, index: int, ip: Ip, prefixlen: int) -> None:
        """EADDRNOTAVAIL if it is not there."""
        self._socket.request(addr.delete_address(index, ip, prefixlen))

    def ipv6_address_notices(self) -> AbstractContextManager[Callable[[float], None]]:
        """See `NetlinkSocket.notices`."""
        return self._socket.notices(_RTNLGRP_IPV6_IFADDR)

    def routes(self, table: int = MAIN_TABLE, *, family: int = 0, protocol: int = 0, index: int = 0) -> list[RouteInfo]:
        """`family` is 4, 6 or 0 for both; `table`, `protocol` and `index` 0 match any."""
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
        """`priority` 0 is the kernel's default (IPv6: 1024)."""
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
        """Delete the first route that matches; ESRCH if there is none."""
        message = route.delete_route(dst, via=via, index=index or 0, table=table, priority=priority, protocol=protocol)
        self._socket.request(message)

    def route_to(self, ip: Ip) -> RouteInfo:
        """ENETUNREACH if there is none."""
        return route.parse_route(self._socket.ask(route.get_route(ip)))

    def netns_number(self, descriptor: int) -> int:
        """The number of another namespace, as `LinkInfo.peer_netns` names it; -1 if it has none here."""
        return netnsid.parse_number(self._socket.ask(netnsid.get_number(descriptor)))

    def neighbours(self, index: int | None = None) -> list[NeighbourInfo]:
        return [neigh.parse_neighbour(body) for body in self.dump(*neigh.list_neighbours(0, index or 0))]

    def neighbour(self, index: int, ip: Ip) -> NeighbourInfo | None:
        found = self._if_there(neigh.get_neighbour(index, ip))
        return None if found is None else neigh.parse_neighbour(found)

    def fdb_entry(self, bridge: int, mac: Mac) -> FdbInfo | None:
        """None if the bridge does not know the MAC."""
        found = self._if_there(neigh.get_fdb(bridge, mac))
        return None if found is None else neigh.parse_fdb(found)

    def add_neighbour(self, index: int, ip: Ip, *, mac: Mac, replace: bool = True) -> None:
        """Permanent, with our mark."""
        self._socket.request(neigh.add_neighbour(index, ip, mac, protocol=PROTOCOL, replace=replace))

    def delete_neighbour(self, index: int, ip: Ip) -> None:
        """ENOENT if it is not there."""
        self._socket.request(neigh.delete_neighbour(index, ip))

    def _if_there(self, question: Message) -> bytes | None:
        try:
            return self._socket.ask(question)
        except NetlinkError as error:
            if error.errno == errno.ENOENT:
                return None
            raise

    def fdb(self, index: int | None = None) -> list[FdbInfo]:
        """`index` 0 is all VXLAN devices and bridge ports."""
        return [neigh.parse_fdb(body) for body in self.dump(*neigh.list_fdb(index or 0))]

    def add_fdb(self, index: int, mac: Mac, *, remote: Ip, replace: bool = True) -> None:
        """Permanent."""
        self._socket.request(neigh.add_fdb(index, mac, remote, replace=replace))

    def delete_fdb(self, index: int, mac: Mac, *, remote: Ip | None = None) -> None:
        """Delete one remote, or the entry; ENOENT if it is not there."""
        self._socket.request(neigh.delete_fdb(index, mac, remote))

    def rules(self, *, family: int = 0) -> list[RuleInfo]:
        """`family` is 4, 6 or 0 for both."""
        return [
            rule.parse_rule(body)
            for wanted in _FAMILIES[family]
            for body in self.dump(*rule.list_rules(wanted))
            if body[0] == wanted
        ]

    def add_rule(self, wanted: RuleInfo) -> None:
        """EEXIST if the same one is there."""
        self._socket.request(rule.add_rule(wanted))

    def delete_rule(self, unwanted: RuleInfo) -> None:
        """Delete the first rule that looks like this one; ENOENT if there is none."""
        self._socket.request(rule.delete_rule(unwanted))
