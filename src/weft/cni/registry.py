"""The plugins of this build. Only what serves plugins imports it: it takes 12 ms, which nothing else waits for."""

from typing import Final

from weft.cni.plugins.bandwidth import PLUGIN as BANDWIDTH
from weft.cni.plugins.bridge.plugin import PLUGIN as BRIDGE
from weft.cni.plugins.firewall.plugin import PLUGIN as FIREWALL
from weft.cni.plugins.flannel.plugin import PLUGIN as FLANNEL
from weft.cni.plugins.hostlocal.plugin import PLUGIN as HOST_LOCAL
from weft.cni.plugins.loopback import PLUGIN as LOOPBACK
from weft.cni.plugins.portmap.plugin import PLUGIN as PORTMAP
from weft.cni.plugins.ptp import PLUGIN as PTP
from weft.cni.plugins.sbr.plugin import PLUGIN as SBR
from weft.cni.plugins.static import PLUGIN as STATIC
from weft.cni.plugins.tuning.plugin import PLUGIN as TUNING
from weft.cni.sdk.startup import Plugin, Subject

# In the order in which a leaked attachment is undone: what leads to an address goes before the address may be
# another's. Links first: their record is the proof, and records go in the opposite order.
_PLUGINS: Final = (BRIDGE, PTP, PORTMAP, BANDWIDTH, FIREWALL, TUNING, FLANNEL, HOST_LOCAL, LOOPBACK, SBR, STATIC)

_BY_NAME: Final = {plugin.name: plugin for plugin in _PLUGINS}
NAMES: Final = tuple(sorted(_BY_NAME))
# In the order of undoing; bridge and ptp keep the same.
SUBJECTS: Final[dict[str, Subject]] = {plugin.keeps.name: plugin.keeps for plugin in _PLUGINS if plugin.keeps}


def find(name: str) -> Plugin | None:
    return _BY_NAME.get(name)
