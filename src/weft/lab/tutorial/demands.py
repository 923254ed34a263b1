"""What a lesson may demand of the playground, and the words for what is there instead. Pure."""

from typing import Final

from weft.lab.tutorial.seen import HERE, Link, Seen
from weft.model.value import Value

NODES: Final = ("node1", "node2")


class Demand(Value, kw_only=False):
    """The `problem` is "" if it is as demanded."""

    what: str
    problem: str = ""


def space(seen: Seen, node: str, name: str) -> Demand:
    what = f"{node} has a network namespace {name}"
    if name in seen.nodes[node].spaces:
        return Demand(what)
    if others := [other for other in seen.nodes if name in seen.nodes[other].spaces]:
        return Demand(what, f"it is on {others[0]}")
    there = ", ".join(sorted(filter(None, seen.nodes[node].spaces)))
    return Demand(what, f"'ip netns' on {node} lists {there or 'none'}")


def up(seen: Seen, node: str, name: str, inside: str = HERE) -> Demand:
    what, link = f"{name} of {_place(node, inside)} is up", seen.link(node, name, inside)
    return Demand(what, _missing(seen, node, inside) if link is None else "" if link.up else "it is down")


def kind(seen: Seen, node: str, name: str, wanted: str) -> Demand:
    what, link = f"{node} has a {wanted} {name}", seen.link(node, name)
    if link is None:
        return Demand(what, _missing(seen, node, HERE))
    return Demand(what, "" if link.kind == wanted else f"{name} is of type {link.kind or 'none'}")


def address(seen: Seen, node: str, name: str, wanted: str, inside: str = HERE) -> Demand:
    """An address of a link, and of no other of its namespace."""
    what, link = f"{name} of {_place(node, inside)} has the address {wanted}", seen.link(node, name, inside)
    if link is None:
        return Demand(what, _missing(seen, node, inside))
    links = seen.space(node, inside).links.values()
    others = [other.ifname for other in links if wanted in other.addresses and other.ifname != name]
    if others and wanted in link.addresses:
        return Demand(what, f"{others[0]} has it, too: 'ip address del {wanted} dev {others[0]}'")
    if wanted in link.addresses:
        return Demand(what)
    if others:
        return Demand(what, f"{others[0]} has it instead")
    return Demand(what, f"it has {' and '.join(link.addresses) or 'none'}")


def pair(seen: Seen, node: str, outside: str, inside: str) -> Demand:
    """A veth pair: one end on the node, the other one eth0 of a namespace."""
    what = f"{outside} of {node} and eth0 of {_place(node, inside)} are the ends of a veth pair"
    ends = seen.link(node, outside), seen.link(node, "eth0", inside)
    if ends[0] is None:
        return Demand(what, _missing(seen, node, HERE))
    if ends[1] is None:
        return Demand(what, _missing(seen, node, inside))
    if ends[0].link_index == ends[1].ifindex and ends[1].link_index == ends[0].ifindex:
        return Demand(what)
    strange = next((end.ifname for end in ends if end is not None and end.kind != "veth"), "")
    return Demand(what, f"{strange} is no veth" if strange else "each is the end of another pair")


def port(seen: Seen, node: str, name: str, bridge: str) -> Demand:
    what, link = f"{name} of {node} is a port of {bridge}", seen.link(node, name)
    if link is None:
        return Demand(what, _missing(seen, node, HERE))
    return Demand(what, "" if link.master == bridge else f"its master is {link.master or 'none'}")


def route(seen: Seen, node: str, to: str, via: str, *, dev: str = "", inside: str = HERE) -> Demand:
    by = f" dev {dev}" if dev else ""
    what = f"{_place(node, inside)} has the route {to} via {via}{by}"
    found = [route for route in seen.space(node, inside).routes if route.dst == to]
    if any(route.gateway == via and route.dev == (dev or route.dev) for route in found):
        return Demand(what)
    there = " and ".join(f"via {route.gateway or 'no gateway'} dev {route.dev}" for route in found)
    return Demand(what, f"{to} leads {there}" if there else f"no route has the destination {to}")


def mtu(seen: Seen, node: str, name: str, wanted: int, inside: str = HERE) -> Demand:
    what, link = f"{name} of {_place(node, inside)} has MTU {wanted}", seen.link(node, name, inside)
    if link is None:
        return Demand(what, _missing(seen, node, inside))
    return Demand(what, "" if link.mtu == wanted else f"it has {link.mtu}")


def forwards(seen: Seen, node: str) -> Demand:
    return Demand(f"{node} forwards packets", "" if seen.nodes[node].forwards else "net.ipv4.ip_forward is 0")


def answered(seen: Seen, name: str, what: str, problem: str) -> Demand:
    return Demand(what, problem if seen.answers.get(name) is None else "")


def _place(node: str, inside: str) -> str:
    return f"{inside} on {node}" if inside else node


def _missing(seen: Seen, node: str, inside: str) -> str:
    there: dict[str, Link] = seen.space(node, inside).links
    return f"there is no such link: {_place(node, inside)} has {', '.join(there) or 'none'}"
