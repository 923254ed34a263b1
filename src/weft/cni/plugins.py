"""The plugins of this build by name, and the one way to call them: `run`. Each is imported when it is first needed."""

from importlib import import_module
from typing import Final

from weft.cni import skel
from weft.cni.host import Done, Host, Request
from weft.cni.skel import Plugin
from weft.wire.cni import failure

# Each module has its plugin as `PLUGIN`.
_MODULES: Final = {
    "bandwidth": "weft.cni.bandwidth",
    "bridge": "weft.cni.bridge",
    "firewall": "weft.cni.firewall",
    "flannel": "weft.cni.flannel",
    "host-local": "weft.cni.hostlocal",
    "loopback": "weft.cni.loopback",
    "portmap": "weft.cni.portmap",
    "ptp": "weft.cni.ptp",
    "sbr": "weft.cni.sbr",
    "static": "weft.cni.static",
    "tuning": "weft.cni.tuning",
}
NAMES: Final = tuple(_MODULES)


def run(request: Request, host: Host) -> Done:
    """Do what the plugin's process would do; failures are error objects. Synchronous, one call a thread."""
    plugin = find(request.plugin)
    if plugin is None:
        error = failure(f'no plugin "{request.plugin}" in this build', f"there are {', '.join(NAMES)}")
        return Done(exit=1, stdout=error.render())
    return skel.run(plugin, request, host, find=find)


def find(name: str) -> Plugin | None:
    """Return a plugin of ours, None for a name that is not."""
    module = _MODULES.get(name)
    if module is None:
        return None
    plugin: Plugin = import_module(module).PLUGIN
    return plugin
