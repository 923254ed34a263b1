"""`weft drops` on a node of reference plugins whose kernel has no drop_monitor: what counters of the kernel say.

How the kernel's own monitor is read is tried in tests/vm.
"""

import errno
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.kernel.localprobes import local
from tests.kernel.plainnode import WEFT, Node
from tests.support.netns import Netns
from weft.diag.drops import command, sources
from weft.diag.drops.loss import Loss
from weft.diag.drops.sources import Counted
from weft.diag.sight.look import Places
from weft.diag.trace.sending import send
from weft.model.kernel.policytable import INET

PING = "ping -q -c3 -i0.05 -W0.2"
SECONDS = 60


@pytest.fixture
def node(netns: Netns, make_netns: Callable[[], Netns], tmp_path: Path) -> Node:
    """The pods `web`, 10.9.0.2, and `db`, 10.9.0.3, are on one bridge, as ports p2 and p3."""
    return Node(netns, [make_netns() for _ in range(2)], tmp_path)


@pytest.fixture
def counted(netns: Netns, tmp_path: Path) -> Iterator[Callable[[], Counted]]:
    """Begins to count in the namespace, and ends it with the test."""
    with ExitStack() as held:
        yield lambda: netns.call(lambda: held.enter_context(closing(Counted(places(tmp_path)))))


def places(folder: Path) -> Places:
    return Places(subnet_file=folder / "subnet.env", conf_dir=folder, data_dir=folder, run=folder)


def running(node: Node, *options: str) -> "subprocess.Popen[str]":
    files = ("--conf-dir", str(node.folder), "--subnet-file", str(node.folder / "none"))
    pipe = subprocess.PIPE
    return node.netns.popen([WEFT, "drops", *options, *files], stdout=pipe, stderr=pipe, text=True)


def first(node: Node, process: "subprocess.Popen[str]", sending: str) -> dict[str, Any]:
    """The first loss that `weft drops -w -o json` tells, while packets are sent again and again."""
    assert process.stdout is not None
    node.pods[0].popen(["sh", "-c", f"while :; do {sending}; done >/dev/null 2>&1"])
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


# What is done to the node, what web sends, and what is told of it.
DROPS = {
    "a rule": (
        (
            "nft add table ip x; nft 'add chain ip x c { type filter hook input priority 0; }';"
            "nft 'add rule ip x c ip saddr 10.9.0.2 counter drop'"
        ),
        f"{PING} 10.9.0.1",
        {"reason": "rule", "code": "FW-002", "rule": "rule of ip x c (handle 2)"},
    ),
    "no route": ("true", f"{PING} 192.0.2.1", {"reason": "IpExt.InNoRoutes", "code": "ROUTE-003"}),
    "a full queue": (
        "tc qdisc replace dev p3 root tbf rate 8bit burst 20 limit 1",
        f"{PING} 10.9.0.3",
        {"reason": "Queue.tbf.p3", "code": "QDISC-001", "device": "p3", "pod": "10.9.0.3"},
    ),
}


@pytest.mark.parametrize("kind", DROPS)
def test_what_counters_say_is_told_as_it_happens(node: Node, kind: str):
    change, send, expected = DROPS[kind]
    node.netns.run(change)
    process = running(node, "-w", "-o", "json")
    found = first(node, process, send)
    assert found | expected == found
    assert found["count"] > 0
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert said.startswith("weft: this kernel, or this network namespace, has no drop_monitor; counters say what")
    assert "Traceback" not in said


def test_without_a_watch_it_looks_for_a_while_and_ends(node: Node):
    process = running(node)
    out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (0, "nothing was dropped\n")
    process = running(node, "-o", "json")
    out, _ = process.communicate(timeout=SECONDS)
    assert json.loads(out) == {"by": "counters", "seconds": 5, "losses": []}


def test_it_ends_when_nobody_reads(node: Node):
    process = running(node, "-w")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    process.communicate(timeout=SECONDS)
    assert process.returncode != 0


def test_what_has_grown_is_told_once(netns: Netns, counted: Callable[[], Counted]):
    netns.run("nft add table ip x; nft 'add chain ip x p { type filter hook input priority 0; }'")
    netns.run("nft 'add rule ip x p udp dport 7 counter drop'")
    source = counted()
    for port in (7, 9):  # by the rule, and because nothing listens
        netns.call(lambda port=port: send(local("udp", [1, 3, 5], port=port)))
    found = {each.reason: (each.count, each.code) for each in netns.call(lambda: list(source.losses()))}
    assert (found["rule"], found["Udp.NoPorts"]) == ((3, "FW-002"), (3, "VTEP-004"))
    assert netns.call(lambda: list(source.losses())) == []


def test_one_socket_asks_nf_tables_as_long_as_it_runs(netns: Netns, counted: Callable[[], Counted]):
    netns.run("nft add table ip x; nft 'add chain ip x p { type filter hook input priority 0; }'")
    netns.run("nft 'add rule ip x p udp dport 7 counter drop'")
    source = counted()
    netns.call(lambda: send(local("udp", [1, 3, 5], port=7)))
    with mock.patch.object(sources.NfSocket, "open", side_effect=AssertionError("another socket")):
        assert "rule" in {each.reason for each in netns.call(lambda: list(source.losses()))}


class Taken:
    """A monitor that another program has made count packets."""

    def losses(self) -> Iterator[Loss]:
        raise OSError(errno.EBUSY, "another program has drop_monitor count packets instead of reporting them")


def test_where_another_program_takes_the_monitor_counters_go_on(
    netns: Netns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def told() -> list[tuple[str, list[Loss]]]:
        with ExitStack() as held, mock.patch.object(command, "_source", return_value=("drop_monitor", Taken())):
            seconds = command._each_second(places(tmp_path), held)
            first = next(seconds)
            send(local("udp", [1, 3, 5], port=9))
            return [first, next(seconds)]

    (by, nothing), (_, [lost, *_]) = netns.call(told)
    assert (by, nothing, lost.reason) == ("counters", [], "Udp.NoPorts")
    assert capsys.readouterr().err.startswith("weft: another program has drop_monitor count packets")


def test_a_rule_that_is_added_later_and_what_policies_refuse_are_told(netns: Netns, counted: Callable[[], Counted]):
    key = "type ipv4_addr . ipv4_addr . inet_proto . inet_service"
    netns.run(
        f"nft add table {INET}; nft 'add set {INET} denied-out4 {{ {key}; flags timeout; timeout 9m; counter; }}'"
    )
    source = counted()
    netns.run("nft add table ip x; nft 'add chain ip x p { type filter hook input priority 0; }'")
    netns.run("nft 'add rule ip x p udp dport 7 counter drop'")
    netns.run(f"nft 'add element {INET} denied-out4 {{ 10.9.0.2 . 10.9.0.3 . udp . 53 counter packets 4 bytes 9 }}'")
    netns.call(lambda: send(local("udp", [1, 3, 5], port=7)))
    with mock.patch.object(sources.time, "monotonic", return_value=time.monotonic() + 1000):  # it looks again by then
        found = {each.reason: each for each in netns.call(lambda: list(source.losses()))}
    assert (found["rule"].count, found["rule"].rule) == (3, "rule of ip x p (handle 2)")
    denied = found["policy"]
    assert (denied.count, denied.source, denied.target, denied.port) == (4, "10.9.0.2", "10.9.0.3", 53)
    assert netns.call(lambda: list(source.losses())) == []
