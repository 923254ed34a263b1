"""Traffic between pods of two nodes, as tests of every store and back end send it."""

from typing import Final

from tests.support.traffic import Capture, Stream, reaches
from tests.support.weftd import Daemon, eventually

_TCP: Final = 6


def cross(source: Daemon, target: Daemon) -> None:
    """Pings and a TCP stream from a pod of one node to a pod of another, in each family, each way."""
    here, there = source.pod(), target.pod()
    capture = Capture(there, "eth0")
    for near, far in zip(here.ips, there.ips, strict=True):
        assert reaches(here, far)
        assert reaches(there, near)
        with Stream(here, there, far) as stream:
            eventually(lambda stream=stream: stream.sent > 20)
        assert stream.whole
        # What the other side sees is the pod's own address.
        assert {p.source for p in capture.packets() if p.target == far and p.protocol == _TCP} == {near}
    capture.close()
