"""Objects and steps as text, in the words of `ip`, `bridge` and `sysctl`, for `weft plan` and the log."""

from typing import assert_never

from weft.model.marks import MAIN_TABLE
from weft.model.objects import Address, FdbEntry, Neighbour, NodeLink, Object, Route, RuleSet, Sysctl, VxlanLink
from weft.plan.diff import Put, Step


def describe(thing: Object) -> str:  # noqa: C901, PLR0911 - one line for each kind of object
    """One object in one line, without line breaks whatever a peer sent."""
    match thing:
        case VxlanLink():
            flags = f"{' learning' if thing.learning else ''}{' gbp' if thing.gbp else ''}"
            return (
                f"link {thing.name} vxlan id {thing.vni} local {thing.local} dev {thing.parent_name or thing.parent}"
                f" dstport {thing.port} address {thing.mac!s} mtu {thing.mtu}{flags}"
            )
        case Address():
            return f"address {thing.ip}/{thing.prefixlen} dev {thing.dev}"
        case Route(blackhole=True):
            return f"route blackhole {thing.dst}{_route_rest(thing)}"
        case Route(dev=""):
            return f"route {thing.dst} without a way out{_route_rest(thing)}"
        case Route():
            via = f" via {thing.via}" if thing.via is not None else ""
            return f"route {thing.dst}{via} dev {thing.dev}{' onlink' if thing.onlink else ''}{_route_rest(thing)}"
        case Neighbour():
            return f"neighbour {thing.ip} lladdr {thing.mac!s} dev {thing.dev}"
        case FdbEntry():
            return f"fdb {thing.mac!s} dev {thing.dev} dst {thing.remote}"
        case Sysctl():
            return f"sysctl {thing.name}={thing.value}"
        case NodeLink():
            return f"link {thing.name} {'up' if thing.up else 'down'}"
        case RuleSet():
            chains = ", ".join(f"{chain.name} ({len(chain.rules)})" for chain in thing.chains)
            return f"ruleset {thing.kind} IPv{thing.family}: {chains or 'none'}"
        case _:
            assert_never(thing)


def explain(step: Step, present: Object | None) -> str:
    """One step in one line: what is done, to what, and why. `present` is what the kernel holds now."""
    text = describe(step.object)
    if not isinstance(step, Put):
        return f"- {text}"
    if present is None:
        return f"+ {text}"
    return f"~ {text} (now: {describe(present)})" if present != step.object else f"+ {text}"


def _route_rest(route: Route) -> str:
    table = f" table {route.table}" if route.table != MAIN_TABLE else ""
    metric = f" metric {route.priority}" if route.priority else ""
    return f"{table}{metric}{f' scope {route.scope}' if route.scope else ''}"
