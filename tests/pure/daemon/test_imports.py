"""What weftd loads before it knows its network: each module more costs every node memory and start."""

import subprocess
import sys

# Each is a part of a back end that a node may never have, or brings much that nothing needs.
LATE = (
    "shutil",
    "rich",
    "starlette",
    "weft.cni",
    "weft.diag",
    "weft.forward.kernelpath",
    "weft.forward.start",
    "weft.kernel.bpf",
    "weft.daemon.backends.ipsec.session",
    "weft.daemon.backends.wireguard.plane",
    "weft.daemon.backends.wireguard.messages",
)


def test_the_daemon_starts_without_what_a_network_may_not_ask_for():
    code = "import sys, weft.daemon.main; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()
    assert "weft.daemon.node" in loaded
    assert not [name for name in LATE if name in loaded]
