"""ADD and DEL of flannel's conflist, with weft's plugins and with Debian's `bridge`, `host-local` and `portmap`."""

import json
import sys

from benchmarks.figures import Figure
from benchmarks.lab import ROOT, inside, lab


def measure() -> list[Figure]:
    with lab("--nodes", "1", "--pods", "0"):
        run = f"cd {ROOT} && exec {sys.executable} -m benchmarks.attach"
        said = json.loads(inside("node1", "sh", "-c", run))
    ours, theirs = said["weft"], said["debian"]
    peer = {"unit": "ms", "peer": "Debian's"}
    return [
        Figure(what="ADD, one by one", ours=ours["add"], theirs=theirs["add"], target=8, upstream="16 ms", **peer),
        Figure(what="DEL, one by one", ours=ours["del"], theirs=theirs["del"], target=8, upstream="27 ms", **peer),
        Figure(what="DEL, until the link is gone", ours=ours["gone"], theirs=theirs["gone"], **peer),
        Figure(
            what="50 ADDs in parallel", ours=ours["all"], theirs=theirs["all"], target=300, upstream="631 ms", **peer
        ),
    ]
