"""A node's CNI server in threads of the test's process, and the real client: a call takes the way of every call.

What a test changes on the node or around its plugins is seen by the next call, which a daemon of its own would not do.
"""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from tests.support.netns import SECONDS, Netns
from weft.cni import build
from weft.cni.host.descriptors import NodeHandles
from weft.cni.sdk.host import Host, Request
from weft.cni.serve.endpoint import Endpoint
from weft.cni.serve.server import serve
from weft.wire.cni import Ran


@cache
def _client() -> Path:
    program = (
        build.PROGRAM.build() or build.PROGRAM.built()
    )  # where there is no compiler, the one that was brought along
    assert program, "musl-gcc is missing"
    return program


class Served:
    """Serves `node` from the namespace `host` until closed, which closes the node as well."""

    def __init__(self, host: Netns, directory: Path, node: NodeHandles, run: Callable[[Request, Host], Ran]) -> None:
        self.node = node
        self._host = host
        self._socket = directory / "run" / "cni.sock"
        self._run = run
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Future[None] | None = None
        serving = threading.Event()
        # A thread is in the namespace of the one that starts it.
        self._thread = threading.Thread(target=self._serve, args=[serving], name="served")
        host.call(self._thread.start)
        assert serving.wait(SECONDS)

    def call(self, plugin: str, env: Mapping[str, str], stdin: bytes) -> Ran:
        """Call a plugin as a runtime does."""
        everything = {**os.environ, **env, "WEFT_CNI_SOCKET": str(self._socket)}
        done = self._host.call(
            lambda: subprocess.run(
                [plugin],
                executable=_client(),
                input=stdin,
                env=everything,
                capture_output=True,
                check=False,
                timeout=3 * SECONDS,
            )
        )
        return Ran(exit=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def close(self) -> None:
        """Stop serving."""
        assert self._task
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(SECONDS)

    def _serve(self, serving: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._task = self._loop.create_task(serve(Endpoint.open(str(self._socket)), self.node, run=self._run))
            self._loop.call_soon(serving.set)
            self._loop.run_until_complete(asyncio.wait([self._task]))
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
