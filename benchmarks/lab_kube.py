"""How long `weft lab up --kubernetes` takes until nodes are Ready, and until the pods of a Deployment run."""

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure
from benchmarks.lab import NAME, WEFT
from tests.support.kubernetes import apiserver

ROUNDS: Final = 3
PODS: Final = 6
_KUBECONFIG: Final = Path("/run/weft-lab", NAME, "kubeconfig")
_NOTE: Final = re.compile(r"([0-9.]+) s +(?:the store answers|Ready: 3 of 3 nodes)")


def measure() -> list[Figure]:
    programs = apiserver.programs()
    answers, ready, running = zip(*(_round(programs) for _ in range(ROUNDS)), strict=True)
    what, hand = "lab up --kubernetes, 3 nodes", "kind: a minute; by hand"
    return [
        Figure(
            what=f"{what} Ready",
            unit="s",
            ours=ready,
            target=8,
            peer="API alone",
            theirs=answers,
            upstream=f"{hand} 6 s",
        ),
        Figure(what=f"{what}, {PODS} pods run", unit="s", ours=running, target=10, upstream=f"{hand} 8 s"),
    ]


def _round(programs: Path) -> tuple[float, float, float]:
    """Seconds until the API answers, until nodes are Ready, and until pods of a Deployment made at once run."""
    kubectl = (programs / "kubectl", f"--kubeconfig={_KUBECONFIG}")
    environ = os.environ | {"WEFT_KUBERNETES": str(programs)}
    start = time.perf_counter()
    command = [WEFT, "lab", "up", "--kubernetes", "--name", NAME]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as up:
        try:
            while not _KUBECONFIG.exists() or not _KUBECONFIG.stat().st_size:
                if up.poll() is not None:
                    raise RuntimeError(up.communicate()[1])
                time.sleep(0.02)
            create = ("create", "deployment", "web", "--image=localhost/pause:1", f"--replicas={PODS}")
            subprocess.run([*kubectl, *create], check=True, stdout=subprocess.DEVNULL)
            wait = ("rollout", "status", "deployment/web", "--timeout=60s")
            subprocess.run([*kubectl, *wait], check=True, stdout=subprocess.DEVNULL)
            running = time.perf_counter() - start
            answers, ready = map(float, _NOTE.findall(up.communicate()[1]))
            return answers, ready, running
        finally:
            up.wait()
            subprocess.run([WEFT, "lab", "down", NAME], capture_output=True, check=False)
