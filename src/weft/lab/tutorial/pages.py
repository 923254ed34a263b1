"""What the tutorial says to a learner, as text. Pure."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

from weft.lab.tutorial.demands import Demand
from weft.lab.tutorial.lesson import Lesson, Typed, paragraphs
from weft.lab.tutorial.lessons import LESSONS
from weft.lab.tutorial.seen import HERE, Link, NodeSeen, Seen, Space
from weft.model.text import table
from weft.model.value import Value, field
from weft.wire.packet import Layer

_WIDTH: Final = 100


class Progress(Value):
    """How far a learner is. It is kept with the lab, so every terminal sees the same."""

    lesson: str
    hints: int = 0
    done: list[str] = field(default_factory=list)


def position(name: str) -> int:
    return [lesson.name for lesson in LESSONS].index(name)


def before(lesson: Lesson) -> Sequence[Lesson]:
    return LESSONS[: position(lesson.name)]


def drawing(seen: Seen) -> str:
    """MACs, which are chance, are left out."""
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
    """The link, and behind it the ports of a bridge."""
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
    """Of a veth pair, and the namespace that it is in."""
    for name, space in node.spaces.items():
        for end in space.links.values():
            if name != HERE and (end.ifindex, end.link_index) == (link.link_index, link.ifindex):
                return name, end
    return None


def _bare(node: NodeSeen) -> Iterator[list[str]]:
    """Namespaces that no cable leads to."""
    for name, space in sorted(node.spaces.items()):
        ends = [link for link in space.links.values() if link.kind == "veth"]
        if name != HERE and not ends:
            lo = space.links.get("lo")
            yield [f"namespace {name}: lo{'' if lo is not None and lo.up else ' DOWN'}"]


def _routes(space: Space) -> Iterator[list[str]]:
    for route in space.routes:
        if route.gateway:
            yield [f"route {route.dst} via {route.gateway} dev {route.dev}"]


def overview(progress: Progress | None) -> str:
    rows = (
        (
            "→" if progress is not None and lesson.name == progress.lesson else "",
            "✓" if progress is not None and lesson.name in progress.done else "",
            lesson.name,
            lesson.question,
        )
        for lesson in LESSONS
    )
    return table(("", "", "LESSON", "QUESTION"), rows)


def page(lesson: Lesson, seen: Seen, shell: str) -> str:
    """`shell` is the command that opens a shell on a node, with `%s` in the node's place."""
    parts = [
        f"Lesson {position(lesson.name) + 1} of {len(LESSONS)}: {lesson.title}\n{lesson.question}",
        *map(wrapped, paragraphs(lesson.why)),
        f"What there is now:\n\n{_indented(drawing(seen))}",
        *typed(lesson.typed, shell),
        wrapped(f"Your task: {lesson.task}"),
    ]
    return "\n\n".join(parts) + "\n"


def typed(commands: Iterable[Typed], shell: str) -> Iterator[str]:
    """By the node whose shell they are for."""
    for node, group in groupby(commands, key=lambda typed: typed.node):
        yield "\n".join([f"On {node} ('{shell % node}' is a shell there):", "", *map(_typed, group)])


def _typed(command: Typed) -> str:
    """A command of several lines is not indented, so that it can be pasted.

    A here-document ends only at the start of a line, and Python's lines keep their indent.
    """
    text = f"  $ {command.command}"
    if "\n" in command.command:
        text = f"\n{command.command}\n"
    return "\n".join([text, *([_indented(wrapped(command.look, 8), 8)] if command.look else [])])


def verdict(lesson: Lesson, demands: Sequence[Demand], seen: Seen) -> str:
    """What a check has found; when all is right, what it has shown."""
    lines = [f"✗ {each.what}: {each.problem}" if each.problem else f"✓ {each.what}" for each in demands]
    if demands[-1].problem:
        return "\n".join(lines) + "\n"
    parts = ["\n".join(lines), f"What there is now:\n\n{_indented(drawing(seen))}", *crossing(seen)]
    return "\n\n".join([*parts, f"{lesson.question}", *map(wrapped, paragraphs(lesson.answer))]) + "\n"


def crossing(seen: Seen) -> list[str]:
    """The first packet on the wire that carries another, layer by layer; empty if there is none."""
    frames = (frame for frame in seen.frames if any(layer.name == "VXLAN" for layer in frame))
    return ["The packet between the nodes:\n\n" + "\n".join(_layers(frame)) for frame in islice(frames, 1)]


def _layers(frame: Iterable[Layer]) -> Iterator[str]:
    for depth, layer in enumerate(frame, 1):
        yield f"{'  ' * depth}{layer.name}  {layer.text}"


def hints(lesson: Lesson, shell: str) -> list[str]:
    return [*map(wrapped, paragraphs(lesson.hints)), "\n\n".join(typed(lesson.rest, shell))]


def wrapped(text: str, indent: int = 0) -> str:
    return textwrap.fill(text, _WIDTH - indent, break_on_hyphens=False, break_long_words=False)


def _indented(text: str, indent: int = 2) -> str:
    return textwrap.indent(text, " " * indent)
