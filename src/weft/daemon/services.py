"""What the daemon offers besides the network: health over HTTP, and the socket that CNI plugins ask."""

import asyncio
import importlib
import logging
from contextlib import ExitStack

from weft.config.options import Options
from weft.model.errors import Unavailable
from weft.model.status import Status

log = logging.getLogger(__name__)

# How long a start may take before health is answered in the middle of it.
_HEALTH_PATIENCE_SECONDS = 0.5


def start_health(options: Options, tasks: asyncio.TaskGroup, status: Status, up: asyncio.Event) -> None:
    """Serve health if a port is given. The port is taken now; answers come once the network is up, or soon."""
    if not options.healthz_port:
        return
    from weft.web import health

    listening = health.bind(str(options.healthz_ip), options.healthz_port)

    async def serve() -> None:
        try:
            async with asyncio.timeout(_HEALTH_PATIENCE_SECONDS):
                await up.wait()
        except TimeoutError:
            pass
        await asyncio.to_thread(importlib.import_module, "uvicorn")
        await health.serve(listening, lambda: status)

    tasks.create_task(serve())


def start_cni(options: Options, tasks: asyncio.TaskGroup, held: ExitStack, status: Status) -> None:
    """Serve CNI plugins, unless another daemon does: then say so, and do without."""
    from weft.cni.endpoint import Endpoint
    from weft.cni.opened import open_node
    from weft.cni.plugins import run
    from weft.cni.retire import Retirement
    from weft.cni.server import serve

    try:
        endpoint = Endpoint.open(options.cni_socket)
    except Unavailable as error:
        log.warning("%s", error)
        return
    held.callback(endpoint.close)
    retirement = Retirement()
    held.callback(retirement.close)
    node = open_node(
        options.state_dir,
        retire=retirement.retire,
        lease_problem=lambda: "" if status.waiting is None else str(status.waiting),
    )
    tasks.create_task(serve(endpoint, node, run=run))
