"""What stands in for a daemon that does not answer: its server of plugins, and nothing else of it.

The first client that finds no daemon starts it (client/standin.c), all others use it; it ends soon after the last one.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from weft.beside.tasks import awaited
from weft.cni.attachment.retire import Retirement
from weft.cni.host.host import open_node
from weft.cni.serve import plugins
from weft.cni.serve.endpoint import Endpoint
from weft.cni.serve.server import serve
from weft.cni.serve.session import Plugins
from weft.desired.policy.frame import refusal
from weft.kernel import namespaces
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.policytable import INET, table_of

# The descriptor on which the client that has started it listens already.
_LISTENING: Final = 3
_IDLE_SECONDS: Final = 5.0
# Less than what a request may take (LIMIT_SECONDS in `server`), so that its caller learns why it failed.
_COMING_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.05
_NO_DAEMON: Final = "weftd does not run on this node, so nothing writes it"
_NET_ADMIN: Final = 1 << 12  # CAP_NET_ADMIN (linux/capability.h)


class _Shut:
    """Where policies are enforced, the daemon alone knows which hold for a pod."""

    def admit(self, key: str, *, pod: str, **_: object) -> str:  # noqa: ARG002 - of its daemon's
        try:
            with closing(NfSocket.open()) as nf:
                if not nf.has_table(table_of(INET)) or refusal("ingress", "audit").name in nf.chains(table_of(INET)):
                    return ""
        except OSError:  # a kernel without nfnetlink
            return ""
        hint = "Start weftd; where policies are to hold no more, 'weft cleanup' takes the table away"
        return str(Problem(code="POL-003", where=f"pod {pod}", seen=f"table {INET} is here, and no weftd", hint=hint))

    def release(self, key: str) -> None:
        """What is left of it is refused or replaced with the next pod that has its address."""


async def stand_in(path: str, state_dir: str, *, daemon_comes: bool = False, run: Plugins = plugins.run) -> None:
    """Serve clients of the socket with this name until none has come for some seconds, or SIGTERM does.

    With `daemon_comes` the first pods of a node wait for the lease of a daemon that is being started: a runtime tries
    again only after ten seconds. Raises what `open_node` does, and `ConfigError` where it could serve nobody.
    """
    if not namespaces.held() & _NET_ADMIN:
        hint = "The runtime that calls lacks it: give it this right, or start weftd, which serves all"
        seen, expected = "no right to change the network (CAP_NET_ADMIN)", "the rights of a runtime of containers"
        raise ConfigError(
            Problem(code="HOST-002", where="what stands in for weftd", seen=seen, expected=expected, hint=hint)
        )
    retirement, ending = Retirement(), threading.Event()

    def lease_comes(written: Callable[[], bool]) -> bool:
        return daemon_comes and _wait_for(written, ending)

    node = open_node(
        state_dir, retire=retirement.retire, lease_problem=lambda: _NO_DAEMON, lease_comes=lease_comes, gate=_Shut()
    )
    serving = awaited(serve(Endpoint.inherited(_LISTENING, path), node, run=run, idle=_IDLE_SECONDS))

    def end() -> None:
        ending.set()
        serving.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    await asyncio.wait([serving])
    retirement.close()
    if not serving.cancelled():
        serving.result()


def _wait_for(written: Callable[[], bool], ending: threading.Event) -> bool:
    last = time.monotonic() + _COMING_SECONDS
    while time.monotonic() < last and not ending.wait(_LOOK_SECONDS):
        if written():
            return True
    return False
