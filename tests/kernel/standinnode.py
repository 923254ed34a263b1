"""A node without a daemon, on which clients start stand-ins."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.cni.call import Caller, Started
from tests.support.netns import Netns
from tests.support.waiting import eventually


class Node(Caller):
    """A host namespace without a daemon, and its own installation: each start of a stand-in is noted in `starts`."""

    def __init__(self, netns: Netns, bin_dir: Path, directory: Path) -> None:
        self.run = directory / "daemon" / "run"
        own = Path(shutil.copytree(bin_dir, directory / "bin"))
        super().__init__(netns, own, socket=self.run / "cni.sock", state=directory / "daemon" / "state")
        self.starts = directory / "starts"
        self.interpreter()
        self.config = {
            "cniVersion": "1.0.0",
            "name": "local",
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(directory / "nets"),
                "ranges": [[{"subnet": "10.9.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }

    def interpreter(self, first: str = "") -> None:
        """Put a program in the interpreter's place that does something `first`."""
        python = self.bin_dir / "python"
        python.write_text(f'#!/bin/sh\necho $$ >>{self.starts}\n{first}\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        (self.bin_dir / ".weft-python").write_text(f"{python}\n")

    @property
    def started(self) -> int:
        """How many stand-ins have been started."""
        return len(self.starts.read_text().split()) if self.starts.exists() else 0

    def begin(self, command: str, pod: str = "", config: dict[str, Any] | None = None, **more: str) -> Started:
        """Start a call for a pod."""
        return self.start(command, config or self.config, CNI_NETNS=pod, **more).feed()

    def ask(self, command: str, pod: str = "", config: dict[str, Any] | None = None, **more: str) -> Any:
        """Call a plugin for a pod; returns what it printed, decoded."""
        return self.begin(command, pod, config, **more).end().json


def waiting_add(node: Node, tmp_path: Path, pod: str) -> tuple[Started, Callable[[], None]]:
    """Start an ADD that waits for an IPAM program of others; returns its client, and what lets that program go on."""
    theirs, fifo = tmp_path / "waits", tmp_path / "fifo"
    theirs.mkdir()
    os.mkfifo(fifo)
    answer = json.dumps({"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.77/24"}]})
    program = theirs / "waits"
    program.write_text(
        # It runs when it can be released.
        f"#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nexec 3<>{fifo}\ntouch {theirs}/runs\n"
        f"read line <&3\necho '{answer}'\n"
    )
    program.chmod(0o755)
    config = {**node.config, "ipam": {"type": "waits"}}
    client = node.begin("ADD", pod, config, CNI_PATH=f"{theirs}:{node.bin_dir}")
    eventually((theirs / "runs").exists)

    def release() -> None:
        with suppress(OSError):  # it may have been killed
            os.write(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK), b"go\n")

    return client, release
