"""The socket at which the daemon is asked about itself: a line of JSON in, an answer out, then the end.

It is the name in the abstract namespace that says which instance lives here, so it needs no file, and is gone with the
process. Only root is answered; nothing that a client does or leaves undone is waited for without a limit.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from weft.kernel.unixsockets import is_root

log = logging.getLogger(__name__)

_SECONDS: Final = 5.0  # for a question to come, and for an answer to be read
_CLIENTS: Final = 8
_LONGEST: Final = 4096  # bytes of a question
_REST_SECONDS: Final = 1.0


async def serve(listening: socket.socket, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
    """Answer until cancelled; a question that is not understood is answered with nothing.

    When there are too many clients the oldest is cut off, so that silent ones keep nobody away.
    """
    listening.setblocking(False)  # noqa: FBT003 - that is how socket has it
    clients: dict[asyncio.Task[None], None] = {}
    async with asyncio.TaskGroup() as tasks:
        while True:
            try:
                client, _ = await asyncio.get_running_loop().sock_accept(listening)
            except OSError as error:
                log.debug("no client of the control socket can be taken: %s", error)
                await asyncio.sleep(_REST_SECONDS)
                continue
            if len(clients) >= _CLIENTS:
                oldest = next(iter(clients))
                del clients[oldest]
                oldest.cancel()
            task = tasks.create_task(_serve_one(client, answer))
            clients[task] = None
            task.add_done_callback(lambda ended: clients.pop(ended, None))


async def _serve_one(client: socket.socket, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
    with client, suppress(OSError, TimeoutError):
        client.setblocking(False)  # noqa: FBT003 - as above
        if not is_root(client):
            return
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_SECONDS):
            question = b""
            while not question.endswith(b"\n") and len(question) < _LONGEST:
                more = await loop.sock_recv(client, _LONGEST)
                if not more:
                    return
                question += more
        said = await answer(question)
        async with asyncio.timeout(_SECONDS):
            await loop.sock_sendall(client, said)
