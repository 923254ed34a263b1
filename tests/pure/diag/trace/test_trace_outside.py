"""Packets of pods that leave the pod network: by which address they go."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.pure.diag.doctor.sights import (
    FLANNELD,
    ROUTES,
)
from tests.pure.diag.rules.test_verdict import field, meta, rules
from tests.pure.diag.trace.walking import NODE, code, packet, steps, way
from weft.diag.trace.hops import Way
from weft.model.kernel.reported import RouteInfo
from weft.model.value import replace

FAR = packet(target="198.51.100.7")


MASQUERADE, RETURN, ACCEPT = {"masquerade": None}, {"return": None}, {"accept": None}


def leaving(*statements: Any, target: str = "198.51.100.7", **changes: Any) -> Way:
    """A packet of a pod that goes outside, with one rule for NAT, or with an empty chain."""
    found = rules(*([list(statements)] if statements else []))
    chains = {name: replace(each, hook="postrouting", kind="nat") for name, each in found.chains.items()}
    return way(sight=FLANNELD, of=packet(target=target), **({"rules": replace(found, chains=chains)} | changes))


def test_a_pod_to_the_outside_is_masqueraded():
    found = leaving(MASQUERADE)
    assert (found.end, found.to) == ("sent", "192.168.0.254")
    assert found.packet is not None
    assert found.packet.source == "192.168.0.1"
    assert steps(found) == ["from the pod by", "route", "rules at forward", "SNAT", "out by", "sent"]


TO_IT = field("ip", "daddr", "198.51.100.7")


@pytest.mark.parametrize(
    "statements, daemons, seen, hint",
    [
        ((), True, "no rule translates it", "weftd's masquerade rules are gone"),
        ((), False, "no rule translates it", "without --ip-masq"),
        ((TO_IT, RETURN), True, "spares its target", "it can't answer them"),
        ((TO_IT, ACCEPT), True, "spares its target", "it can't answer them"),
        ((meta("mark", 0), RETURN), True, "no rule translates it", "are gone"),  # as kube-proxy's first one
        ((field("ip", "daddr", "9.9.9.9"), MASQUERADE), True, "no rule translates it", "are gone"),
    ],
)
def test_a_pod_that_leaves_with_its_own_address(statements: Any, daemons: bool, seen: str, hint: str):
    found = leaving(*statements, subnet_env=replace(FLANNELD.subnet_env, ip_masq=daemons))  # type: ignore[type-var]
    assert found.packet is not None
    assert (found.end, found.packet.source) == ("sent", "10.244.1.2")
    [hop] = [hop for hop in found.hops if hop.what == "NAT at postrouting"]
    assert hop.seen.startswith("10.244.1.2 stays as it is: ")
    assert hop.seen.endswith(seen)
    assert hop.suspect is not None
    assert hop.suspect.code == "NFT-002"
    assert hint in hop.suspect.hint


def test_who_knows_the_way_to_pods_is_asked_with_their_addresses():
    def kept(found: Way) -> list[bool]:
        return [hop.suspect is None for hop in found.hops if " stays as it is" in hop.seen]

    assert kept(leaving()) == [False]
    assert kept(leaving(target="192.168.0.2")) == [True]  # a node
    assert kept(leaving(target="10.244.2.3")) == kept(leaving(target="10.244.1.3")) == []
    assert kept(leaving(target="224.0.0.9")) == []
    assert kept(way(NODE, of=replace(FAR, source=ip_address("192.168.0.1")))) == []
    # What can't be told is not said; of a node without a network whatever leaves goes outside.
    assert kept(leaving(meta("cpu", 0), MASQUERADE)) == []
    assert kept(way(of=FAR, unseen={"rules": "no nft"})) == []
    assert kept(leaving(subnet_env=None)) == [False]


def test_without_a_way_to_the_outside():
    def hint(found: Way) -> str:
        assert (code(found), found.problem is not None) == ("ROUTE-001", True)
        return "" if found.problem is None else found.problem.hint

    assert hint(way(of=FAR, routes=ROUTES[1:])) == "This node has no default route either"
    blocked = (*ROUTES, RouteInfo(dst=ip_network("198.51.100.0/24"), kind=7))
    assert hint(way(of=FAR, routes=blocked)) == "ip -4 route delete unreachable 198.51.100.0/24"
    assert "No lease is served" in hint(way(of=packet(), routes=ROUTES[1:2]))
