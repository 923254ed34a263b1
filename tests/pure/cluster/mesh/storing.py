"""A store over a peer of a mesh whose others the test speaks for."""

from ipaddress import IPv4Address

from tests.pure.cluster.mesh.meshparts import (
    HELD,
    NET_CONF,
    FakeDisk,
    World,
    saved,
)
from weft.beside.tasks import awaited
from weft.cluster.mesh.store import MeshDirectory, MeshSettings, MeshTenure
from weft.config.netconf import parse_netconf
from weft.desired.allocate import Chooser
from weft.desired.backends import BACKENDS
from weft.model.lease import LeaseAttrs
from weft.model.mesh.effects import Agreed

OURS = LeaseAttrs(public_ip=IPv4Address("192.0.2.1"), backend="vxlan")


class Mesh(World):
    """With a store on top; `told` is what its watch said."""

    def __init__(self, kept=HELD, **more):
        super().__init__(FakeDisk(saved(kept)), **more)
        self.settings, self.tenure = MeshSettings(self.peer), MeshTenure(self.peer)
        self.directory = MeshDirectory(self.peer)
        self.told = []

    async def take(self, event):
        self.told.append(event)

    def watch(self):
        return awaited(self.directory.watch(self.take))

    def agree(self):
        """A neighbour knows what we know."""
        self.say(Agreed(so=True))


def chooser(attrs=OURS):
    return Chooser(netconf=parse_netconf(NET_CONF, backends=BACKENDS), attrs=attrs, pick=lambda _: 0)
