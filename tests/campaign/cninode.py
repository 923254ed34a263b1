"""A node for campaigns: a namespace, files, a daemon that can be killed, and plugins called as a runtime calls them.

The daemon and the plugins are those of `tests.campaign.cnikills`, so that each of their calls can be the last.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.campaign.cnikills import Trap
from tests.support.checkout import CHECKOUT
from tests.support.cni.call import Caller
from tests.support.cni.standins import kill_stand_ins
from tests.support.netns import Netns
from tests.support.waiting import eventually

SECONDS = 20


class Node(Caller):
    def __init__(self, directory: Path, bin_dir: Path) -> None:
        super().__init__(Netns(), bin_dir, socket=directory / "run" / "cni.sock", state=directory / "state")
        self.directory = directory
        self.trap = Trap(directory, "test")
        self.host = self.netns
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
