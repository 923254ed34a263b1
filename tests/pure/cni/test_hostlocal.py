"""What host-local says of an address that somebody else has."""

from contextvars import copy_context
from ipaddress import IPv4Address
from types import SimpleNamespace
from typing import Any

from weft.cni.plugins.hostlocal import plugin
from weft.model.errors import TYPED


def test_the_list_of_addresses_is_named_as_people_elsewhere_type_it():
    takes: Any = SimpleNamespace(_reservations=SimpleNamespace(owner=lambda _: b"web\r\neth0"))
    context = copy_context()
    context.run(TYPED.set, lambda command: f"kubectl exec x -- {command}")
    held = context.run(plugin._Taker._held, takes, IPv4Address("10.0.0.2"), ())
    assert held.details.endswith("nothing proves that it is gone (`kubectl exec x -- weft ipam list`)")
