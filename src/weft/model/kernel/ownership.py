"""Which of the things with weft's mark are one daemon's: two daemons may serve two networks on one node.

A daemon's own are its devices, what sits on them, and the routes into its networks.
"""

from weft.model.net import Net, within
from weft.model.value import Value


class Ownership(Value):
    """`devices` and `node_links` by name, and the `networks` of this configuration and of the one before."""

    devices: frozenset[str]
    networks: tuple[Net, ...]
    node_links: frozenset[str] = frozenset()

    def leads_to(self, net: Net) -> bool:
        return any(within(net, network) for network in self.networks)
