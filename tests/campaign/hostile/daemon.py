"""The CNI server of weftd with the plugins of this build, and faults that a test plants: its checkers must find them.

As a program: `python -m tests.campaign.hostile.daemon DIRECTORY` serves DIRECTORY/run/cni.sock until SIGTERM. The file
DIRECTORY/planted names a fault, if there is one.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from weft.cni.attachment.retire import Retirement
from weft.cni.host.host import Host, Request, open_node
from weft.cni.serve import plugins
from weft.cni.serve.endpoint import Endpoint
from weft.cni.serve.server import serve
from weft.model.value import replace
from weft.wire.cni import Ran

_kept: list[object] = []


def _link(_: Host, done: Ran) -> Ran:
    os.system("ip link add planted type veth peer name planted2")  # noqa: S605
    return done


def _rule(_: Host, done: Ran) -> Ran:
    os.system("nft add table ip planted; nft add chain ip planted c; nft add rule ip planted c drop")  # noqa: S605
    return done


def _file(host: Host, done: Ran) -> Ran:
    host.files.replace("/var/lib/planted", b"")
    return done


def _state(host: Host, done: Ran) -> Ran:
    host.state.replace("/planted", b"")
    return done


def _outside(_: Host, done: Ran) -> Ran:
    Path("/var/lib/planted").touch()
    return done


def _descriptor(_: Host, done: Ran) -> Ran:
    _kept.append(os.open("/dev/null", os.O_RDONLY))
    return done


def _thread(_: Host, done: Ran) -> Ran:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    return done


def _memory(_: Host, done: Ran) -> Ran:
    _kept.append(bytearray(b"x") * (32 << 20))
    return done


def _slow(_: Host, done: Ran) -> Ran:
    time.sleep(4.2)
    return done


def _fault(_: Host, done: Ran) -> Ran:
    raise RuntimeError("planted")


PLANTED: Final[dict[str, Callable[[Host, Ran], Ran]]] = {
    "leaves a link": _link,
    "leaves a rule": _rule,
    "leaves a file of the caller's": _file,
    "leaves a file of the state": _state,
    "writes to the daemon's own files": _outside,
    "keeps a descriptor": _descriptor,
    "keeps a thread": _thread,
    "keeps memory": _memory,
    "takes too long": _slow,
    "ends in a fault": _fault,
    "says something else": lambda _, done: replace(done, stdout=done.stdout + b"\nby the way"),
    "says an odd code": lambda _, done: replace(done, stdout=b'{"code": 100, "msg": "x"}'),
    "fails without a word": lambda _, done: replace(done, stdout=b""),
    "says that it went well": lambda _, done: replace(done, exit=0, stdout=b""),
}


async def _main(directory: Path) -> None:
    def run(request: Request, host: Host) -> Ran:
        done = plugins.run(request, host)
        # Only what failed, so that it is the hostile calls that show it.
        if done.exit == 0 or not (directory / "planted").exists():
            return done
        return PLANTED[(directory / "planted").read_text()](host, done)

    retirement = Retirement()
    node = open_node(str(directory / "state"), retire=retirement.retire, lease_problem=lambda: "")
    endpoint = Endpoint.open(str(directory / "run" / "cni.sock"))
    task = asyncio.ensure_future(serve(endpoint, node, run=run))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait([task])
    retirement.close()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
