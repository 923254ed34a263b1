"""The plugins of this build by name, and the one way to call them: `run`. Each is imported when it is first needed."""

from typing import Final

from weft.cni import skel
from weft.cni.host import Done, Host, Request
from weft.cni.skel import Plugin
from weft.wire.cni import failure

NAMES: Final = ("bridge", "flannel", "host-local", "loopback", "portmap")


def run(request: Request, host: Host) -> Done:
    """Do what the plugin's process would do; failures are error objects. Synchronous, one call a thread."""
    plugin = find(request.plugin)
    if plugin is None:
        error = failure(f'no plugin "{request.plugin}" in this build', f"there are {', '.join(NAMES)}")
        return Done(exit=1, stdout=error.render())
    return skel.run(plugin, request, host, find=find)


def find(name: str) -> Plugin | None:
    """Return a plugin of ours, None for a name that is not."""
    match name:
        case "bridge":
            from weft.cni import bridge

            return bridge.PLUGIN
        case "flannel":
            from weft.cni import flannel

            return flannel.PLUGIN
        case "host-local":
            from weft.cni import hostlocal

            return hostlocal.PLUGIN
        case "loopback":
            from weft.cni import loopback

            return loopback.PLUGIN
        case "portmap":
            from weft.cni import portmap

            return portmap.PLUGIN
    return None
