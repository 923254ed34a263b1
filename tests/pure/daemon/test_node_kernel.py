"""The loop's view of the kernel: what takes long is done beside the loop."""

import errno
import threading
from typing import Any

import pytest

from tests.support import builders
from weft.daemon.planes.kernel import NodeKernel
from weft.desired.node import shared
from weft.kernel import portholders
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.kernel.links import Link
from weft.plan.diff import Delete, Put


class Refusing:
    """rtnetlink that refuses all for one reason."""

    def __init__(self, number: int) -> None:
        self._number = number

    def link(self, name: str) -> Any:
        raise NetlinkError(self._number, f"{name} is refused")

    def batch(self, messages: list[Any]) -> dict[int, NetlinkError]:
        assert not messages
        return {}


@pytest.mark.parametrize("number, threads", [(errno.EADDRINUSE, 1), (errno.EPERM, 0)])
async def test_who_has_the_port_of_a_device_is_looked_up_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, number: int, threads: int
):
    looked: list[threading.Thread] = []

    def holder(port: int, protocol: str) -> str:
        looked.append(threading.current_thread())
        return f"a program with {protocol} {port}"

    monkeypatch.setattr(portholders, "holder", holder)
    inputs = builders.inputs(1)
    [device] = [thing for thing in shared(inputs) if isinstance(thing, Link)]
    failures = await NodeKernel(Refusing(number)).apply([Put(device), Delete(device)])  # type: ignore[arg-type]
    assert [failure.errno for failure in failures] == [number, number]
    assert ("held by a program with udp" in failures[0].message) is bool(threads)
    assert "held by" not in failures[1].message
    assert len(looked) == threads
    assert threading.main_thread() not in looked
