"""The back end alloc: a lease, and nothing in the kernel."""

from tests.support import builders
from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS, alloc
from weft.desired.node import devices_of, shared
from weft.model.lease import LeaseAttrs
from weft.model.value import Value

OWN = builders.inputs(1, family="46", backend="alloc")


def test_it_has_no_options():
    parsed = parse_netconf('{"Network": "10.5.0.0/16", "Backend": {"Type": "alloc", "Port": 1}}', backends=BACKENDS)
    assert (parsed.backend, parsed.options) == ("alloc", Value())
    assert [problem.where for problem in parsed.unknown] == ["net-conf: Backend.Port"]


def test_nothing_is_wanted():
    alloc.check(OWN)
    assert shared(OWN) == frozenset()
    assert alloc.peer(OWN, builders.lease(2, alloc, family="46")) == frozenset()
    assert (devices_of(OWN), alloc.LINKS) == ({}, ())
    assert alloc.mtu(OWN) == 1500


def test_the_lease_names_no_back_end():
    assert alloc.advertise(OWN) == LeaseAttrs(public_ip=builders.public_v4(1), public_ipv6=builders.public_v6(1))
    assert alloc.advertise(builders.inputs(1, backend="alloc")) == LeaseAttrs(public_ip=builders.public_v4(1))
