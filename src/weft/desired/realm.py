"""Which of the things that bear weft's mark are this daemon's: two daemons may serve two networks on one node.

A daemon's own are its devices, what sits on them, and the routes into its networks.
"""

from ipaddress import IPv4Network, IPv6Network
from typing import Self

from weft.desired.inputs import Backend, Inputs
from weft.model.marks import MAIN_TABLE
from weft.model.net import Net
from weft.model.objects import Address, FdbEntry, Neighbour, NodeLink, Object, Route, VxlanLink
from weft.model.value import Value


class Realm(Value):
    """`devices` and `node_links` by name, and the `networks` of the configuration now and of the one before."""

    devices: frozenset[str]
    networks: tuple[Net, ...]
    node_links: frozenset[str] = frozenset()

    @classmethod
    def of(cls, backend: Backend, inputs: Inputs) -> Self:
        """What a daemon with these inputs keeps."""
        return cls(
            devices=frozenset(backend.devices(inputs).values()),
            networks=(*inputs.netconf.networks, *inputs.former_networks),
            node_links=inputs.node_links,
        )

    def holds(self, thing: Object) -> bool:
        """Tell whether `thing`, which bears our mark, is this daemon's to keep or to remove."""
        match thing:
            case VxlanLink():
                return thing.name in self.devices
            case Address():
                return thing.dev in self.devices and self._ours(thing)
            case Neighbour() | FdbEntry():
                return thing.dev in self.devices
            case Route():
                # Ours are all in the main table: another one is an administrator's, whatever protocol he chose.
                return thing.table == MAIN_TABLE and (thing.dev in self.devices or self.leads_to(thing.dst))
            case NodeLink():
                return thing.name in self.node_links
            case _:
                return True

    def leads_to(self, net: Net) -> bool:
        """Tell whether `net` lies inside one of the networks."""
        return any(_within(net, network) for network in self.networks)

    def _ours(self, address: Address) -> bool:
        """An IPv4 address outside our networks is somebody's, a link-local one the kernel's (flannel.md §6.1)."""
        if address.ip.version == 6:
            return not address.ip.is_link_local
        return any(address.ip in network for network in self.networks)


def _within(net: Net, network: Net) -> bool:
    if isinstance(net, IPv4Network):
        return isinstance(network, IPv4Network) and net.subnet_of(network)
    return isinstance(network, IPv6Network) and net.subnet_of(network)
