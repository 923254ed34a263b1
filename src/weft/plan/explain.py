"""Steps as text, in the words of `ip`, `bridge` and `sysctl`, for `weft plan` and the log."""

from collections.abc import Iterable, Mapping

from weft.model.lease import Lease
from weft.model.objects import Key, Object, Route
from weft.plan.diff import Put, Step


def explain(step: Step, present: Object | None) -> str:
    """One step in one line: what is done, and to what. `present` is what the kernel holds now."""
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


def _node(lease: Lease) -> str:
    return str(lease.attrs.public_ip or lease.attrs.public_ipv6)
