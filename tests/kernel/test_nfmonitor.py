"""Hearing of changes by real notices, and how soon rules are back."""

import asyncio
import json
import re
import socket
import statistics
import subprocess
import sys
import time
from contextlib import closing

import pytest

from tests.kernel.netthread import inside, run
from tests.support.firewall import matches, wanted
from tests.support.waiting import HANGS
from weft.kernel.netfilter.firewall import Firewall
from weft.kernel.netfilter.monitor import Monitor, Resync, Touched
from weft.kernel.tools import Tools
from weft.model.kernel.objects import Key
from weft.plan.diff import Put

LIMIT_SECONDS = 5.0  # upstream needs that long for iptables; how fast we are is measured by `make bench`
ROUNDS = 7


def in_namespace(work):
    return inside(lambda: asyncio.run(work()))


async def soon(monitor):
    return await asyncio.wait_for(monitor.wake(), HANGS)


async def until_quiet(monitor):
    """Return all wake-ups until there is none for 0.1 s."""
    wakes = []
    while True:
        try:
            wakes.append(await asyncio.wait_for(monitor.wake(), 0.1))
        except TimeoutError:
            return wakes


async def run_aside(*argv, stdin=""):
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, err = await process.communicate(stdin.encode())
    assert process.returncode == 0, err


@pytest.mark.spec("flannel.md §8.5/resync", cases="nft *")
@pytest.mark.spec("flannel.md §8.3/4-resync", cases="iptables *")
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize(
    "kind, damage",
    [
        ("nft", ["nft", "flush ruleset"]),
        ("nft", ["nft", "flush chain {ip} flannel-ipv{family} postrtg"]),
        ("iptables", ["{iptables}", "-t", "nat", "-F", "FLANNEL-POSTRTG"]),
        ("iptables", ["{iptables}", "-t", "nat", "-F"]),
        ("iptables", ["nft", "flush ruleset"]),
    ],
    ids=["nft ruleset", "nft chain", "iptables chain", "iptables table", "iptables by nft"],
)
def test_rules_flushed_by_hand_are_back_at_once(kind, family, damage):
    """Better than upstream: iptables rules within 5 s, nft rules never (Q-53). Timed from the flush program's start."""
    words = {"ip": {4: "ip", 6: "ip6"}[family], "family": family, "iptables": {4: "iptables", 6: "ip6tables"}[family]}

    async def work():
        tools = Tools()
        firewall = Firewall(tools)
        want = wanted(kind, family)
        assert await firewall.apply(Put(want)) is None
        times = []
        with closing(Monitor(tools.own)) as monitor:

            async def repair():
                wake = await soon(monitor)
                assert isinstance(wake, Touched)
                assert want.key in wake.keys
                assert not await matches(firewall, want)
                assert await firewall.apply(Put(want)) is None
                return time.perf_counter()

            for _ in range(ROUNDS):
                repaired = asyncio.ensure_future(repair())
                await asyncio.sleep(0)
                start = time.perf_counter()
                await run_aside(*(word.format(**words) for word in damage))
                times.append(await repaired - start)
                assert await matches(firewall, want)
            assert await until_quiet(monitor) == []
        shown = " ".join(f"{seconds * 1000:.1f}" for seconds in sorted(times))
        print(f"{kind}, family {family}, after {' '.join(damage)}: {shown} ms")
        assert statistics.median(times) < LIMIT_SECONDS

    in_namespace(work)


def test_a_wake_says_who_did_it():
    async def work():
        tools = Tools()
        await Firewall(tools).apply(Put(wanted("nft", 4)))
        with closing(Monitor(tools.own)) as monitor:
            run("nft", "flush ruleset")
            wake = await soon(monitor)
            key: Key = ("ruleset", "nft", 4)
            assert isinstance(wake, Touched)
            assert wake.keys == {key}
            assert re.fullmatch(r"nft \(pid \d+\)", wake.by[key]), "by its number outside of this test's namespace"

    in_namespace(work)


@pytest.mark.parametrize("kind", ["nft", "iptables"])
def test_neither_our_changes_nor_those_of_kube_proxy_wake_us(kind):
    async def work():
        tools = Tools()
        firewall = Firewall(tools)
        with closing(Monitor(tools.own)) as monitor:
            for random_fully in (True, False, True):
                await firewall.apply(Put(wanted(kind, 4, random_fully=random_fully)))
            run("iptables-restore", "--noflush", stdin="*nat\n:KUBE-SVC - [0:0]\n-A KUBE-SVC -j RETURN\nCOMMIT\n")
            run("nft", "add table ip kube-proxy; add chain ip kube-proxy c; add rule ip kube-proxy c accept")
            got = await until_quiet(monitor)
            # iptables-nft makes a missing `nat` for its own use: that may touch us, and cannot be told apart.
            assert got == [] or (kind == "nft" and "iptables-restor" in str(got[0].by))

    in_namespace(work)


IN_PID_NAMESPACE = """
import asyncio, json, os
from contextlib import closing
from tests.kernel.test_nfmonitor import until_quiet
from tests.support.firewall import wanted
from weft.kernel.netfilter.firewall import Firewall
from weft.kernel.netfilter.monitor import Monitor
from weft.kernel.tools import Tools
from weft.plan.diff import Put

async def main():
    tools = Tools()
    with closing(Monitor(tools.own)) as monitor:
        await Firewall(tools).apply(Put(wanted("nft", 4)))
        wakes = await until_quiet(monitor)
    print(json.dumps([os.getpid(), len(wakes)]))

asyncio.run(main())
"""


def test_our_own_changes_are_known_in_a_container_too():
    """NFTA_GEN_PROC_PID counts in the outermost pid namespace, where our child has another number."""
    done = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", IN_PID_NAMESPACE],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [1, 0]


def test_lost_notices_are_said_and_the_next_ones_are_heard():
    async def work():
        tools = Tools()
        await Firewall(tools).apply(Put(wanted("nft", 4)))
        with closing(Monitor(tools.own)) as monitor:
            monitor._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            flood = "".join(f"add rule ip flannel-ipv4 forward ip saddr 10.0.0.{i} accept\n" for i in range(250))
            for _ in range(3):
                run("nft", "-f", "-", stdin=flood)
                wakes = await until_quiet(monitor)
                assert [wake.reason for wake in wakes if isinstance(wake, Resync)] == [
                    "more nf_tables notices than the socket holds"
                ]
                run("nft", "add rule ip flannel-ipv4 postrtg accept")
                assert [wake.keys for wake in await until_quiet(monitor)] == [{("ruleset", "nft", 4)}]

    in_namespace(work)


def test_a_broken_socket_is_replaced(monkeypatch):
    monkeypatch.setattr("weft.kernel.netfilter.monitor._RETRY_SECONDS", 0.05)

    async def work():
        tools = Tools()
        await Firewall(tools).apply(Put(wanted("nft", 4)))
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with closing(Monitor(tools.own)) as monitor, right:
            monitor._socket.close()
            monitor._socket = left
            left.setblocking(False)
            right.send(b"no netlink message")
            assert isinstance(await soon(monitor), Resync)
            waiting = asyncio.ensure_future(soon(monitor))
            await asyncio.sleep(0.2)
            run("nft", "flush chain ip flannel-ipv4 postrtg")
            assert isinstance(await waiting, Touched)

    in_namespace(work)
