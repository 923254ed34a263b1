"""Objects and steps as text, in the words of `ip`, `bridge` and `sysctl`, for `weft plan` and the log."""

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from weft.model.lease import Lease
from weft.model.marks import FORWARDING, MAIN_TABLE
from weft.model.objects import Address, FdbEntry, Key, Neighbour, NodeLink, Object, Route, RuleSet, Sysctl, VxlanLink
from weft.plan.diff import Put, Step

_MASQ: Final = "--ip-masq"
_FORWARD: Final = "--iptables-forward-rules"


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
    """One step in one line: what is done, and to what. `present` is what the kernel holds now."""
    text = describe(step.object)
    if not isinstance(step, Put):
        return f"- {text}"
    if present is None:
        return f"+ {text}"
    return f"~ {text} (now: {describe(present)})" if present != step.object else f"+ {text}"


def reason(step: Step, *, served: Mapping[Key, Lease], refused: Iterable[Lease]) -> str:
    """Why a step is to be done: which lease or which setting asks for its object, or why nothing does any more.

    `served` has for each object of a peer its lease, `refused` the leases that are ignored.
    """
    thing = step.object
    if isinstance(step, Put):
        lease = served.get(thing.key)
        return _setting(thing) if lease is None else f"lease {lease.id} of node {_node(lease)}"
    match thing:
        case Route() if (lease := next((each for each in refused if thing.dst in each.subnets), None)) is not None:
            return f"lease {lease.id} of node {_node(lease)} is ignored"
        case Route() | Neighbour() | FdbEntry():
            return "no lease that is served asks for it"
        case VxlanLink() | NodeLink() | Address():
            return "the configuration's Backend and our lease do not ask for it"
        case Sysctl():
            return "no setting asks for it"
        case RuleSet():
            return f"none of {_MASQ}, {_FORWARD} and EnableNFTables asks for it"
        case _:
            assert_never(thing)


def _setting(thing: Object) -> str:
    match thing:
        case Route(blackhole=True):
            return "--ip-blackhole-route"
        case RuleSet():
            flags = dict.fromkeys(_MASQ if "nat" in (chain.table or chain.hook) else _FORWARD for chain in thing.chains)
            return ", ".join(flags)
        case Sysctl(name=name) if name in FORWARDING.values():
            return "pods here need this machine to forward"
        case NodeLink():
            return "pods here hang on it"
        case Sysctl():
            return "a VTEP takes no addresses from router advertisements"
        case _:
            return "the configuration's Backend, with our lease and uplink"


def _node(lease: Lease) -> str:
    return str(lease.attrs.public_ip or lease.attrs.public_ipv6)


def _route_rest(route: Route) -> str:
    table = f" table {route.table}" if route.table != MAIN_TABLE else ""
    metric = f" metric {route.priority}" if route.priority else ""
    return f"{table}{metric}{f' scope {route.scope}' if route.scope else ''}"
