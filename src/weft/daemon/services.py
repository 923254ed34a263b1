"""What the daemon offers besides the network: health over HTTP, and the socket that CNI plugins ask."""

import asyncio
import logging
from contextlib import ExitStack

from weft.config.options import Options
from weft.model.errors import Unavailable
from weft.model.status import Status

log = logging.getLogger(__name__)


def start_health(options: Options, tasks: asyncio.TaskGroup, status: Status) -> None:
    """Serve health if a port is given."""
    if options.healthz_port:
        from weft.web import health

        tasks.create_task(health.serve(health.bind(str(options.healthz_ip), options.healthz_port), status))


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
