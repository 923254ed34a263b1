"""Which of the things that bear weft's mark are one daemon's: two daemons may serve two networks on one node.

A daemon's own are its devices, what sits on them, and the routes into its networks.
"""

from ipaddress import IPv4Network, IPv6Network

from weft.model.net import Net
from weft.model.value import Value


class Ownership(Value):
    """`devices` and `node_links` by name, and the `networks` of the configuration now and of the one before."""

    devices: frozenset[str]
    networks: tuple[Net, ...]
    node_links: frozenset[str] = frozenset()

    def leads_to(self, net: Net) -> bool:
        """Tell whether `net` lies inside one of the networks."""
        return any(_within(net, network) for network in self.networks)


def _within(net: Net, network: Net) -> bool:
    if isinstance(net, IPv4Network):
        return isinstance(network, IPv4Network) and net.subnet_of(network)
    return isinstance(network, IPv6Network) and net.subnet_of(network)
