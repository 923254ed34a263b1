"""The one way to call a plugin of this build: `run`."""

from typing import Final

from weft.cni import registry
from weft.cni.host.host import Host, Request
from weft.cni.leaks import sweep
from weft.cni.plugins.hostlocal import plugin as hostlocal
from weft.cni.sdk import record, startup
from weft.cni.sdk.startup import Build
from weft.wire.cni import Ran, failure

_BUILD: Final = Build(
    find=registry.find,
    holder=hostlocal.holder,
    free=sweep.free,
    free_own=sweep.free_own,
    free_network=sweep.free_network,
    undo_own=sweep.undo_own,
    is_kept=record.is_kept,
    is_made_since=sweep.is_made_since,
)


def run(request: Request, host: Host) -> Ran:
    plugin = registry.find(request.plugin)
    if plugin is None:
        error = failure(f'no plugin "{request.plugin}" in this build', f"there are {', '.join(registry.NAMES)}")
        return Ran(exit=1, stdout=error.render())
    return startup.run(plugin, request, host, build=_BUILD)
