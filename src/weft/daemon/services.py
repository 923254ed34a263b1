"""What the daemon offers besides the network: health over HTTP, and the socket that CNI plugins ask."""

import asyncio
import logging
from contextlib import ExitStack, suppress
from typing import Final

from weft.config.options import Options
from weft.daemon.supervise import Supervisor
from weft.model.errors import Unavailable
from weft.model.status import Status

log = logging.getLogger(__name__)

# A start that takes longer than this is waiting for something.
_PATIENCE_SECONDS: Final = 0.3


def start_health(options: Options, parts: Supervisor, status: Status) -> None:
    """Serve health if a port is given."""
    if options.healthz_port:
        from weft.web import health

        bound = [health.bind(str(options.healthz_ip), options.healthz_port)]  # now: a busy port is noticed at once

        async def serve() -> None:
            listening = bound.pop() if bound else health.bind(str(options.healthz_ip), options.healthz_port)
            await health.serve(listening, status)

        parts.start("health", serve)


def start_cni(options: Options, parts: Supervisor, status: Status, up: asyncio.Event) -> None:
    """Serve CNI plugins once the network is up, or after a moment: those who ask meanwhile are told the reason."""

    async def serve() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await up.wait()
        with ExitStack() as held:
            await _serve_cni(options, status, held)

    parts.start("cni", serve)


async def _serve_cni(options: Options, status: Status, held: ExitStack) -> None:
    """Serve plugins, unless another daemon does: then say so, and do without."""
    # Late: 20 ms of imports that the network does not wait for.
    from weft.cni.endpoint import Endpoint
    from weft.cni.opened import open_node
    from weft.cni.plugins import run
    from weft.cni.retire import Retirement
    from weft.cni.server import serve
    from weft.cni.sweeper import Sweeper

    try:
        endpoint = Endpoint.open(options.cni_socket)
    except Unavailable as error:
        log.warning("%s", error)
        return
    held.callback(endpoint.close)
    retirement = Retirement()
    held.callback(retirement.close)

    def unable() -> str:
        return str(status.unable or "")

    node = open_node(options.state_dir, retire=retirement.retire, lease_problem=unable, unready=unable)
    sweeper = Sweeper(node)
    held.callback(sweeper.close)
    await serve(endpoint, node, run=run)
