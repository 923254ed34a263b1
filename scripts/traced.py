"""Which of weft's functions run between a lease and netlink, and while a pod with a host port is attached.

By a daemon whose calls are noted, on a node made of namespaces: `scripts/apart.sh python -m scripts.traced`, as root.
That daemon is this program with $TRACED: from one SIGRTMIN to the next it notes calls, for that file.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = f"{ROOT / 'src' / 'weft'}/"
_SIGNAL: Final = signal.SIGRTMIN


class Called(NamedTuple):
    file: str  # relative to src/weft
    name: str  # qualified
    task: str  # of asyncio, or else the thread


class Way(NamedTuple):
    tasks: int
    functions: int
    files: int


class Ways(NamedTuple):
    lease: Way  # from etcd's watch to the message that brings its route
    pod: Way  # of the threads and modules that serve its ADD, by flannel, bridge, host-local and portmap


def measured() -> Ways:
    """Measure what a lease of another node and the ADD of a second pod run."""
    from tests.node.plugincalls import Runtime
    from tests.support import etcd
    from tests.support.netns import Netns
    from tests.support.weftd import Cluster, Underlay
    from weft.cni.install.executables import install

    with tempfile.TemporaryDirectory() as folder, Netns() as first, Netns() as second:
        underlay = Underlay(Path(folder, "store"), etcd.wheel())
        cluster = Cluster(underlay, Path(folder))
        try:
            cluster.configure()
            cluster.peer(50)
            node = cluster.node(1)
            node.program = "scripts.traced"
            noted = Path(folder, "noted")
            node.start(env={"TRACED": str(noted), "PYTHONPATH": str(ROOT)})

            def noting(work: Callable[[], Any]) -> list[Called]:
                time.sleep(1)  # what comes after a start, or after the work before
                node.signal(_SIGNAL)
                time.sleep(0.2)
                work()
                node.signal(_SIGNAL)
                while not noted.exists():
                    time.sleep(0.01)
                calls = [Called(*one) for one in json.loads(noted.read_text())]
                noted.unlink()
                return calls

            def lease() -> None:
                cluster.peer(51)
                node.sees("ip route", "10.5.51.0/24")

            runtime = Runtime(node, Path(folder), install(Path(folder, "bin")).bin_dir)

            def attach(name: str, pod: Netns) -> None:
                ports = [{"hostPort": 8080 + int(name[-1]), "containerPort": 80, "protocol": "tcp"}]
                portmap = {"type": "portmap", "runtimeConfig": {"portMappings": ports}}
                result = runtime.ask("ADD", name, pod)
                conf = {"cniVersion": "1.1.0", "name": "cbr0", **portmap}
                said = runtime.chain("ADD", [conf], container=name, netns=pod.path, result=result)
                assert said[-1].result

            of_lease = noting(lease)
            attach("pod1", first)
            of_pod = noting(lambda: attach("pod2", second))
            return Ways(way(until_netlink(of_lease)), way([call for call in of_pod if is_of_pod(call)]))
        finally:
            cluster.close()
            underlay.close()


def until_netlink(calls: list[Called]) -> list[Called]:
    """The calls until the first that sends to the kernel what is to be changed."""
    names = [(call.file, call.name) for call in calls]
    return calls[: names.index(("kernel/rtnetlink/netlink.py", "NetlinkSocket.batch")) + 1]


def is_of_pod(call: Called) -> bool:
    """Whether a call serves a plugin: the daemon's loops see the pod's links meanwhile."""
    return call.task.startswith("cni-") or call.file.startswith("cni/serve/")


def way(calls: list[Called]) -> Way:
    """Count what ran, without comprehensions and the like, which are a part of their function."""
    named = [call for call in calls if not call.name.endswith(">")]
    return Way(
        tasks=len({call.task for call in named}),
        functions=len({(call.file, call.name) for call in named}),
        files=len({call.file for call in named}),
    )


def _noting_daemon() -> None:
    calls: list[Called] | None = None

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if calls is None or event != "call" or not code.co_filename.startswith(SOURCE):
            return
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        by = threading.current_thread().name if task is None else task.get_name()
        calls.append(Called(code.co_filename.removeprefix(SOURCE), code.co_qualname, by))

    def turn(*_: object) -> None:
        nonlocal calls
        noted, calls = calls, None if calls is not None else []
        if noted is not None:
            new = Path(f"{os.environ['TRACED']}.new")
            new.write_text(json.dumps(noted))
            new.rename(os.environ["TRACED"])

    signal.signal(_SIGNAL, turn)
    threading.settrace(note)
    sys.settrace(note)


if __name__ == "__main__":
    if "TRACED" not in os.environ:
        print(json.dumps(measured()))
    else:
        _noting_daemon()
        from weft.daemon import main

        main.main()
