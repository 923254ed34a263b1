"""The plugins of this build by name, and the one way to call them: `run`. Each is imported when it is first needed."""

from importlib import import_module
from typing import Final

from weft.cni.sdk import startup
from weft.cni.sdk.host import Done, Host, Request
from weft.cni.sdk.startup import Plugin
from weft.wire.cni import failure

# Each module has its plugin as `PLUGIN`.
_MODULES: Final = {
    "bandwidth": "weft.cni.plugins.bandwidth.verbs",
    "bridge": "weft.cni.plugins.bridge.verbs",
    "firewall": "weft.cni.plugins.firewall.verbs",
    "flannel": "weft.cni.plugins.flannel.verbs",
    "host-local": "weft.cni.plugins.hostlocal.verbs",
    "loopback": "weft.cni.plugins.loopback.verbs",
    "portmap": "weft.cni.plugins.portmap.verbs",
    "ptp": "weft.cni.plugins.ptp.verbs",
    "sbr": "weft.cni.plugins.sbr.verbs",
    "static": "weft.cni.plugins.static.verbs",
    "tuning": "weft.cni.plugins.tuning.verbs",
}
NAMES: Final = tuple(_MODULES)


def run(request: Request, host: Host) -> Done:
    """Do what the plugin's process would do; failures are error objects. Synchronous, one call a thread."""
    plugin = find(request.plugin)
    if plugin is None:
        error = failure(f'no plugin "{request.plugin}" in this build', f"there are {', '.join(NAMES)}")
        return Done(exit=1, stdout=error.render())
    return startup.run(plugin, request, host, find=find)


def find(name: str) -> Plugin | None:
    """Return a plugin of ours, None for a name that is not."""
    module = _MODULES.get(name)
    if module is None:
        return None
    plugin: Plugin = import_module(module).PLUGIN
    return plugin
