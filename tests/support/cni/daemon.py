"""A daemon with nothing but its CNI server, and plugins that do what a test's configuration says.

As a program: `python -m tests.support.cni.daemon DIRECTORY LIMIT` serves DIRECTORY/run/cni.sock until SIGTERM. Each
call is written down in DIRECTORY/journal before anything is done: `COMMAND CONTAINER WORD`. With `ours` behind it the
plugins are those of this build.
"""

import asyncio
import json
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.checkout import CHECKOUT
from tests.support.cni.call import SECONDS, Caller
from tests.support.netns import Netns
from tests.support.waiting import eventually


class CniDaemon(Caller):
    """The daemon as a process in a namespace, and calls of the real client beside it."""

    def __init__(
        self, directory: Path, netns: Netns, bin_dir: Path, *, limit: float = 20, wrapper: str = "", ours: bool = False
    ) -> None:
        super().__init__(netns, bin_dir, socket=directory / "run" / "cni.sock", state=directory / "state")
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.support.cni.daemon", str(directory), str(limit), *["ours"] * ours]
        self.log = (directory / "log").open("wb")
        self.process = netns.popen([*wrapper.split(), *command], cwd=CHECKOUT, stderr=self.log)
        eventually(lambda: self.listens() or self.process.poll() is not None)
        assert self.process.poll() is None, (directory / "log").read_text()

    def listens(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            return sock.connect_ex(str(self.socket)) == 0

    def journal(self) -> list[str]:
        path = self.directory / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def stop(self) -> int:
        self.process.terminate()
        self.process.wait(SECONDS)
        self.log.close()
        return self.process.returncode


def run(request: Any, host: Any, directory: Path) -> Any:  # noqa: C901, PLR0912 - a table of what tests ask for
    """The plugin: `do` says what."""
    from weft.beside.programs import run_here
    from weft.cni.host.host import ClientGone
    from weft.wire.cni import Ran

    config = json.loads(request.stdin or "{}")
    word = str(config.get("word", ""))
    with (directory / "journal").open("a") as journal:
        journal.write(f"{request.command} {request.env.get('CNI_CONTAINERID', '-')} {word}\n")
    answer: dict[str, object] = {"stdin_error": request.stdin_error, "plugin": request.plugin}
    match config.get("do") if request.command != "DEL" else config.get("del"):
        case "look":
            container = host.container
            answer |= {
                "links": sorted(link.name for link in container.rtnl.links()) if container else None,
                "host": sorted(link.name for link in host.rtnl.links()),
                "gone": host.netns_gone,
                "problem": host.netns_problem,
                "same": host.same_namespace,
                "env": dict(request.env),
                "boot": host.boot_id,
            }
        case "set":
            try:
                host.container.sysctls.write(config["name"], config["value"])
                answer["container"] = host.container.sysctls.read(config["name"])
            except OSError as error:
                answer["error"] = str(error)
            answer["host"] = host.sysctls.read(config["name"])
        case "read":
            answer["read"] = host.files.read(config["path"]).decode()
        case "write":
            host.files.replace(config["path"], config["text"].encode())
        case "wait":
            # Not for a time but for a file: the test says when.
            eventually(Path(config["path"]).exists)
        case "program":
            script = f"until test -e {config['path']}; do sleep 0.05; done; echo ended"
            answer["ran"] = run_here(["sh", "-c", script], environ=None, seconds=None, most=1 << 16).out.decode()
        case "delegate":
            ran = host.delegate(config["name"], config["command"], config.get("env", {}), request.stdin)
            answer["ran"] = ran and [ran.exit, ran.stdout.decode(), ran.stderr.decode()]
        case "delegate-gone":
            try:
                host.delegate(config["name"], config["command"], {}, request.stdin)
            except ClientGone:
                with (directory / "journal").open("a") as journal:
                    journal.write(f"gone {request.env['CNI_CONTAINERID']} {word}\n")
                raise
        case "fault":
            raise RuntimeError("a fault of ours")
        case "big":
            return Ran(exit=0, stdout=b'"' + b"x" * config["size"] + b'"')
        case "fail":
            return Ran(exit=3, stdout=b'{"code": 100}', stderr=b"why\n")
    with (directory / "journal").open("a") as journal:
        journal.write(f"end {request.env.get('CNI_CONTAINERID', '-')} {word}\n")
    return Ran(exit=0, stdout=json.dumps(answer).encode())


async def _main(directory: Path, limit: float, *, ours: bool) -> None:
    from weft.cni.host.host import open_node
    from weft.cni.serve import plugins
    from weft.cni.serve.endpoint import Endpoint
    from weft.cni.serve.server import serve

    node = open_node(str(directory / "state"), retire=lambda _: None, lease_problem=lambda: "")
    endpoint = Endpoint.open(str(directory / "run" / "cni.sock"))
    fake = partial(run, directory=directory)
    task = asyncio.ensure_future(serve(endpoint, node, run=plugins.run if ours else fake, limit=limit))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait([task])


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), float(sys.argv[2]), ours="ours" in sys.argv[3:]))
