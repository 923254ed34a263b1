"""Upstream's own relay, compiled from flannel's Go module: what ours works with, and what it is measured against."""

import json
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

MODULE: Final = "github.com/flannel-io/flannel@v0.28.9"
_PROGRAM: Final = Path(__file__).with_suffix(".c")


@cache
def built() -> Path | None:
    """Build it, once for this process; None where there is no Go, no compiler, or another kind of machine."""
    if shutil.which("go") is None or shutil.which("gcc") is None or platform.machine() != "x86_64":
        return None
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "go.mod").write_text("module none\n")
        command = ["go", "mod", "download", "-json", MODULE]
        found = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if found.returncode:
        raise RuntimeError(found.stdout + found.stderr)
    source = Path(json.loads(found.stdout)["Dir"], "pkg", "backend", "udp")
    out = Path(tempfile.mkdtemp(prefix="weft-upstream-")) / "upstreamrelay"
    subprocess.run(["gcc", "-O2", "-w", f"-I{source}", "-o", out, _PROGRAM], check=True)
    return out
