"""A packet on its way through a node, computed."""

from ipaddress import ip_address
from typing import Any

from tests.pure.diag.doctor.sights import (
    WELL,
)
from weft.diag.rules.matching import Packet
from weft.diag.sight.node import Sight
from weft.diag.trace.hops import Way
from weft.diag.trace.predict import Entry, follow
from weft.model.value import replace

POD, NODE = Entry(kind="pod"), Entry(kind="node")


PEER = Entry(kind="remote", remote=ip_address("192.168.0.2"))


def packet(source: str = "10.244.1.2", target: str = "10.244.2.3") -> Packet:
    return Packet(
        source=ip_address(source), target=ip_address(target), protocol="tcp", source_port=40000, target_port=80
    )


def way(
    entry: Entry = POD, sight: Sight = WELL, *, of: Packet | None = None, original: Packet | None = None, **changes: Any
) -> Way:
    return follow(replace(sight, **changes), of or packet(), entry, original=original)


def steps(found: Way) -> list[str]:
    return [hop.what for hop in found.hops]


def code(found: Way) -> str:
    assert found.problem is not None
    assert found.end == "dropped"
    assert found.hops[-1].passes is False
    return found.problem.code


IN = packet("10.244.2.3", "10.244.1.2")


def large(size: int = 1450, **fields: Any) -> Packet:
    return replace(packet(**fields), protocol="icmp", size=size)


def six(size: int = 1450) -> Packet:
    return replace(large(size), source=ip_address("fd00:1::2"), target=ip_address("fd00:2::3"))
