"""This machine's network at one moment: links, addresses, routes, and what is ours."""

from weft.model.kernel.objects import Key, Object
from weft.model.kernel.reported import AddressInfo, LinkInfo, RouteInfo
from weft.model.net import Ip
from weft.model.value import Value, field


class Snapshot(Value):
    """`routes` are the main table's, without ours; `ours` is what carries our mark."""

    links: tuple[LinkInfo, ...] = ()
    addresses: tuple[AddressInfo, ...] = ()
    routes: tuple[RouteInfo, ...] = ()
    ours: dict[Key, Object] = field(default_factory=dict)

    def link(self, which: str | int) -> LinkInfo | None:
        return next((link for link in self.links if which in (link.name, link.index)), None)

    @property
    def ips(self) -> frozenset[Ip]:
        return frozenset(address.ip for address in self.addresses)

    def addresses_of(self, index: int) -> tuple[AddressInfo, ...]:
        """In the kernel's order."""
        return tuple(address for address in self.addresses if address.index == index)
