"""The playground as a drawing of text: nodes, what is plugged in where, and where routes lead. Pure."""

from collections.abc import Iterator, Sequence

from weft.lab.tutorial.seen import HERE, Link, NodeSeen, Seen, Space


def drawing(seen: Seen) -> str:
    """Draw both nodes. What is chance, as MACs are, is not in it."""
    return "\n".join(line for name, node in seen.nodes.items() for line in _node(name, node))


def _node(name: str, node: NodeSeen) -> Iterator[str]:
    yield f"{name}, forwards packets" if node.forwards else name
    items = [*_links(node), *_bare(node), *_routes(node.spaces[HERE])]
    for number, (first, *nested) in enumerate(items, 1):
        last = number == len(items)
        yield f"{'└' if last else '├'} {first}"
        yield from (f"{' ' if last else '│'} {line}" for line in _tree(nested))


def _tree(lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        yield f"{'└' if number == len(lines) else '├'} {line}"


def _links(node: NodeSeen) -> Iterator[list[str]]:
    """A list for each link of the node: the link, and the ports of a bridge."""
    links = [link for link in node.spaces[HERE].links.values() if link.ifname != "lo"]
    for link in links:
        if not link.master:
            yield [_link(node, link), *(_link(node, port) for port in links if port.master == link.ifname)]


def _link(node: NodeSeen, link: Link) -> str:
    other = _other_end(node, link)
    return _words(link) if other is None else f"{_words(link)} ═══ {_words(other[1])} of {other[0]}"


def _words(link: Link) -> str:
    kind = f"({link.kind})" if link.kind not in ("", "veth") else ""
    mtu = f"mtu {link.mtu}" if link.mtu != 1500 else ""
    return " ".join(filter(None, (link.ifname, kind, *link.addresses, mtu, "" if link.up else "DOWN")))


def _other_end(node: NodeSeen, link: Link) -> tuple[str, Link] | None:
    """Return the other end of a veth pair, and in which namespace of the node it is."""
    for name, space in node.spaces.items():
        for end in space.links.values():
            if name != HERE and (end.ifindex, end.link_index) == (link.link_index, link.ifindex):
                return name, end
    return None


def _bare(node: NodeSeen) -> Iterator[list[str]]:
    """A line for each namespace that no cable leads to."""
    for name, space in sorted(node.spaces.items()):
        ends = [link for link in space.links.values() if link.kind == "veth"]
        if name != HERE and not ends:
            lo = space.links.get("lo")
            yield [f"namespace {name}: lo{'' if lo is not None and lo.up else ' DOWN'}"]


def _routes(space: Space) -> Iterator[list[str]]:
    for route in space.routes:
        if route.gateway:
            yield [f"route {route.dst} via {route.gateway} dev {route.dev}"]
