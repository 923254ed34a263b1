"""What takes pods' packets by parts of the kernel that few machines of tests have: traces and doctors name it."""

import contextlib
import socket
import tempfile
from pathlib import Path
from typing import Final

from tests.campaign.obstacles.world import node_of, world

MATCHALL: Final = "tc qdisc add dev {0} clsact; tc filter add dev {0} {1} matchall action drop"
NETEM: Final = "tc qdisc add dev {0} root netem loss 100%"
# What is done at a place, what takes it back, the code, and the link that is to be named. pod1-1 sends to pod2-1.
OBSTACLES: Final = (
    ("node1", MATCHALL.format("veth1-1", "ingress"), "tc qdisc del dev veth1-1 clsact", "PROG-001", "veth1-1"),
    ("node1", MATCHALL.format("flannel.1", "egress"), "tc qdisc del dev flannel.1 clsact", "PROG-001", "flannel.1"),
    ("pod1-1", MATCHALL.format("eth0", "egress"), "tc qdisc del dev eth0 clsact", "PROG-001", "eth0"),
    ("node1", NETEM.format("eth0"), "tc qdisc del dev eth0 root", "QDISC-001", "netem of eth0"),
    ("pod1-1", NETEM.format("eth0"), "tc qdisc del dev eth0 root", "QDISC-001", "netem of eth0"),
)


def check_tc_filters_and_netem_are_named_by_trace_and_doctor() -> None:
    wrong, before = list[str](), socket.gethostname()
    socket.sethostname("node1")
    with (
        contextlib.ExitStack() as held,
        tempfile.TemporaryDirectory() as folder,
        world(Path(folder), "vxlan") as nodes,
    ):
        held.callback(socket.sethostname, before)
        for place, put, take_back, code, link in OBSTACLES:
            nodes.run(place, put)
            traced = nodes.trace("pod1-1", "pod2-1", 4)
            said = {"trace": traced.verdict}
            told = [f"{each.code} {each.where}: {each.seen}" for each in nodes.doctor(node_of(place)).findings]
            said["doctor"] = next((each for each in told if each.startswith(code)), str(told))
            wrong += [
                f"{put}: the {who} says {words}"
                for who, words in said.items()
                if code not in words or place not in words or link not in words
            ]
            nodes.run(place, take_back)
            assert nodes.reaches("pod1-1", "pod2-1", 4, seconds=5), put
    assert not wrong, "\n".join(wrong)
