"""The tests run apart from the machine: scripts/apart.sh."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APART = str(ROOT / "scripts/apart.sh")
# In place of the machine: with the socket of a daemon that serves it, and its state.
MACHINE = """
for place in /run /var/lib; do mount -t tmpfs tmpfs $place; done
mkdir -p /run/weft /var/lib/weft /var/lib/cni
touch /run/weft/cni.sock /var/lib/weft/mac /var/lib/cni/lease
exec "$@"
"""


def on_a_machine_with_a_daemon(*command: str) -> str:
    machine = ["unshare", "--mount", "sh", "-ec", MACHINE, "sh", *command]
    return subprocess.run(machine, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("place, kept", [("/run", "weft"), ("/var/lib/weft", "mac"), ("/var/lib/cni", "lease")])
def test_nothing_that_a_daemon_of_the_machine_keeps_is_seen(place: str, kept: str):
    assert kept in on_a_machine_with_a_daemon("ls", place).split()
    assert kept not in on_a_machine_with_a_daemon(APART, "ls", place).split()


def test_the_network_is_another_and_only_with_its_own_loopback():
    namespace = on_a_machine_with_a_daemon(APART, "readlink", "/proc/self/ns/net").strip()
    assert namespace not in ("", str(Path("/proc/self/ns/net").readlink()))
    assert "LOOPBACK,UP" in on_a_machine_with_a_daemon(APART, "ip", "-o", "link")


def test_every_stage_with_daemons_or_plugins_runs_so():
    stages = re.findall(
        r"(?m)^ *(?:stage|tests \w+) '[^']+' (\S+) .* tests/(\w+)\)?$", (ROOT / "scripts/test.sh").read_text()
    )
    alone = {folder for first, folder in stages if first != "$apart"}
    # Neither pure tests nor those in a virtual machine meet one; labs hide the machine's themselves.
    assert alone == {"pure", "vm", "lab"}
