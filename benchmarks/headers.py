"""The floor of back end udp in the kernel: `headers.c`, built for one pair of nodes and attached by `tc`."""

import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.netns import Netns
from weft.kernel import tun

_SOURCE: Final = Path(__file__).with_name("headers.c")


def attach(node: Netns, device: str, own: IPv4Address, peer: IPv4Address, port: int) -> None:
    """Carry packets between `device`, which is made a relay's, and `eth0`, in datagrams for the peer."""
    node.call(lambda: tun.create(device))
    given = {
        "OWN": int.from_bytes(own.packed, sys.byteorder),
        "PEER": int.from_bytes(peer.packed, sys.byteorder),
        "PORT": port,
        "UPLINK": _index(node, "eth0"),
        "DEVICE": _index(node, device),
    }
    with TemporaryDirectory() as directory:
        path = f"{directory}/headers.o"
        _build(path, given)
        for name, direction, section in ((device, "egress", "tc/out"), ("eth0", "ingress", "tc/in")):
            node.run(f"tc qdisc add dev {name} clsact")
            node.run(f"tc filter add dev {name} {direction} bpf da obj {path} sec {section}")


def _build(path: str, given: dict[str, int]) -> None:
    machine = subprocess.run(["gcc", "-print-multiarch"], check=True, capture_output=True, text=True).stdout.strip()
    defined = [f"-D{name}={value}u" for name, value in given.items()]
    options = ["-target", "bpfel", "-O2", "-isystem", f"/usr/include/{machine}", *defined]
    subprocess.run(["clang", *options, "-c", str(_SOURCE), "-o", path], check=True)


def _index(node: Netns, device: str) -> int:
    return int(node.run(f"ip -o link show {device}").partition(":")[0])
