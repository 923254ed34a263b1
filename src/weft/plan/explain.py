"""Steps as text, in the words of `ip`, `bridge` and `sysctl`, for `weft plan` and the log."""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from types import NoneType
from typing import Final

from weft.model.kernel.objects import Key, Object, Route
from weft.model.lease import Lease
from weft.model.node.history import GONE
from weft.model.value import fields_of
from weft.plan.diff import Put, Step

_NOT_COMPARED: Final = ("key", "parent_name")
_PLAIN: Final = (str, int, bytes, IPv4Address, IPv6Address, NoneType)  # what reads well behind its name


def explain(step: Step, present: Object | None) -> str:
    """`present` is what the kernel holds now."""
    thing = step.object
    if not isinstance(step, Put):
        return f"- {thing}"
    if present is None:
        return f"+ {thing}"
    return f"~ {thing} (now: {present})" if present != thing else f"+ {thing}"


def reason(step: Step, *, served: Mapping[Key, Lease], refused: Iterable[Lease]) -> str:
    """Why a step is to be done: which lease or which setting asks for its object, or why nothing does any more.

    `served` has for each object of a peer its lease, `refused` the leases that are ignored.
    """
    thing = step.object
    if isinstance(step, Put):
        lease = served.get(thing.key)
        return thing.reason() if lease is None else f"lease {lease.id} of node {_node(lease)}"
    if isinstance(thing, Route):
        lease = next((each for each in refused if thing.dst in each.subnets), None)
        if lease is not None:
            return f"lease {lease.id} of node {_node(lease)} is ignored"
    return thing.unwanted


def was_and_now(wanted: Object, found: Object | None) -> tuple[str, str]:
    """What a repair found of an object, and what that is again: the fields that differ, or all of it if these say less.

    No secret is shown: it reads as the same text on both sides.
    """
    if found is None:
        return GONE, ""
    if type(found) is type(wanted):
        before, after = fields_of(found), fields_of(wanted)
        names = [name for name in after if name not in _NOT_COMPARED and before[name] != after[name]]
        if names and all(isinstance(each[name], _PLAIN) for each in (before, after) for name in names):
            was, now = (", ".join(f"{name} {each[name]!s}" for name in names) for each in (before, after))
            return was, now
    was, now = str(found), str(wanted)
    return (was, now) if was != now else ("changed", "")


def _node(lease: Lease) -> str:
    return str(lease.attrs.public_ip or lease.attrs.public_ipv6)
