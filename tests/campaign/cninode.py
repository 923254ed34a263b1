"""A node for campaigns: a namespace, files, a daemon that can be killed, and plugins called as a runtime calls them.

The daemon and the plugins are those of `tests.campaign.cnikills`, so that each of their calls can be the last.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign.cnikills import Trap
from tests.support.checkout import CHECKOUT
from tests.support.cni.standins import kill_stand_ins
from tests.support.netns import Netns
from tests.support.waiting import eventually

SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a plugin answered: `json` is None if it was killed, or had nothing to say."""

    exit: int
    json: Any
    text: str


class Node:
    """`prefix` is a command that runs another one where the node's files are."""

    def __init__(self, directory: Path, bin_dir: Path) -> None:
        self.directory = directory
        self.bin_dir = bin_dir
        self.trap = Trap(directory, "test")
        self.host = Netns()
        self.prefix: list[str] = []
        self.daemon: subprocess.Popen[bytes] | None = None
        wrapper = directory / "python"
        run = f"{sys.executable} -m tests.campaign.cnikills stand-in {directory}"
        wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={CHECKOUT}:{CHECKOUT}/src exec {run} "$4"\n')
        wrapper.chmod(0o755)
        (bin_dir / ".weft-python").write_text(f"{wrapper}\n")

    def close(self) -> None:
        self.end()
        kill_stand_ins(self.directory)
        self.host.close()

    @property
    def socket(self) -> Path:
        return self.directory / "run" / "cni.sock"

    def serve(self) -> None:
        """Start the daemon unless it runs."""
        if self.daemon is not None and self.daemon.poll() is None:
            return
        self.socket.unlink(missing_ok=True)  # a dead one's: only so that we know when the new one serves
        command = [sys.executable, "-m", "tests.campaign.cnikills", "daemon", str(self.directory)]
        # Not by a working directory: who enters another mount namespace is at its root.
        env = {**os.environ, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT}/src"}
        self.daemon = self.host.popen([*self.prefix, *command], env=env)
        eventually(self.socket.exists)

    def end(self, number: int = 15) -> None:
        """End the daemon if it runs."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.send_signal(number)
            self.daemon.wait(SECONDS)

    def start(
        self, command: str, plugin: str, config: Mapping[str, Any], *, pod: str = "", path: str = ""
    ) -> "subprocess.Popen[bytes]":
        """Start a plugin and give it its whole configuration; `finish` takes the answer."""
        env = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": pod,
            "CNI_NETNS": path,
            "CNI_IFNAME": "eth0" if pod else "",
            "CNI_PATH": str(self.bin_dir),
            "WEFT_CNI_SOCKET": str(self.socket),
            "WEFT_STATE_DIR": str(self.directory / "state"),
            "PATH": os.environ["PATH"],
        }
        pipe = subprocess.PIPE
        program = [*self.prefix, str(self.bin_dir / plugin)]
        child = self.host.popen(program, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
        assert child.stdin is not None
        child.stdin.write(json.dumps({"type": plugin, **config}).encode())
        child.stdin.close()
        child.stdin = None
        return child


def finish(child: "subprocess.Popen[bytes]") -> Said:
    """Wait for a plugin's end."""
    out, errors = child.communicate(timeout=SECONDS)
    return Said(exit=child.returncode, json=json.loads(out) if out else None, text=f"{out.decode()}{errors.decode()}")
