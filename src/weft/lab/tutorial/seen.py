"""What the tutorial sees of its two nodes: links, routes and tables, and what attempts answered. Pure.

Fields have the names that `ip -j` and `bridge -j` give them, so that a learner reads the same words.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from weft.model.value import Value, field
from weft.wire.packet import Layer

HERE: Final = ""  # the name of a node's own network namespace, where there are names of namespaces


class Address(Value, omit_defaults=True):
    local: str = ""
    prefixlen: int = 0

    def __str__(self) -> str:
        return f"{self.local}/{self.prefixlen}"


class Info(Value, omit_defaults=True):
    """The kind of a link, and what is set for it."""

    info_kind: str = ""
    info_data: dict[str, Any] = field(default_factory=dict)


class Link(Value, omit_defaults=True):
    """`link_index` is the other end of a veth pair, in its namespace."""

    ifindex: int
    ifname: str
    flags: list[str] = field(default_factory=list)
    mtu: int = 0
    address: str = ""
    master: str = ""
    link_index: int = 0
    altnames: list[str] = field(default_factory=list)
    linkinfo: Info = Info()
    addr_info: list[Address] = field(default_factory=list)

    @property
    def up(self) -> bool:
        """It was set up; its other end need not be."""
        return "UP" in self.flags

    @property
    def kind(self) -> str:
        return self.linkinfo.info_kind

    @property
    def addresses(self) -> list[str]:
        """Its IPv4 addresses, with prefix lengths."""
        return [str(address) for address in self.addr_info if "." in address.local]


class Route(Value, kw_only=False, omit_defaults=True):
    """Of the main table; `dst` is `default` for the whole Internet."""

    dst: str
    gateway: str = ""
    dev: str = ""


class Neighbour(Value, omit_defaults=True):
    dst: str
    dev: str = ""
    lladdr: str = ""
    state: list[str] = field(default_factory=list)


class Forward(Value, omit_defaults=True):
    """`dst` is the node behind which a VXLAN device finds the MAC."""

    mac: str
    ifname: str = ""
    dst: str = ""


class Space(Value):
    links: dict[str, Link] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    fdb: tuple[Forward, ...] = ()


class NodeSeen(Value):
    """Namespaces by name, the node's own by HERE."""

    spaces: dict[str, Space]
    forwards: bool


class Seen(Value):
    """The playground at one moment.

    `answers` is what each attempt printed, None for one that failed; `frames` are packets that were captured, as
    layers.
    """

    nodes: dict[str, NodeSeen]
    answers: dict[str, str | None] = field(default_factory=dict)
    frames: tuple[tuple[Layer, ...], ...] = ()

    def space(self, node: str, name: str = HERE) -> Space:
        return self.nodes[node].spaces.get(name, Space())

    def link(self, node: str, name: str, space: str = HERE) -> Link | None:
        return self.space(node, space).links.get(name)


# Run in a node. A line is the node's forwarding; five are a namespace: its name, and what four programs say.
SCRIPT: Final = """
cat /proc/sys/net/ipv4/ip_forward
for name in "" $(ip netns list | cut -d " " -f 1); do
    echo "$name"
    for say in "ip -d -j address" "ip -j route" "ip -j neigh" "bridge -j fdb"; do
        echo "$(${say%% *} ${name:+-n $name} ${say#* } | tr -d "\\n")"
    done
done
"""


def read(text: str) -> NodeSeen:
    """From SCRIPT's output."""
    forwards, *lines = text.split("\n")
    return NodeSeen(forwards=forwards.strip() == "1", spaces=dict(_spaces(lines)))


def _spaces(lines: Sequence[str]) -> Iterator[tuple[str, Space]]:
    for name, links, routes, neighbours, fdb in zip(*(lines[offset::5] for offset in range(5)), strict=False):
        yield (
            name,
            Space(
                links={link.ifname: link for link in _list(links, Link)},
                routes=tuple(_list(routes, Route)),
                neighbours=tuple(_list(neighbours, Neighbour)),
                fdb=tuple(_list(fdb, Forward)),
            ),
        )


def _list(text: str, kind: Any) -> Any:
    """Some versions of `ip` print nothing for an empty list."""
    return msgspec.json.decode(text, type=list[kind]) if text else []
