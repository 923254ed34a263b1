"""A picture of a lab as SVG, in light and dark colours: nodes side by side on the underlay.

What is wrong is said in words as well as by colour.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from weft.lab.graph.picture import Device, Node, Picture, head
from weft.lab.report import serves
from weft.model.text import counted

_COLUMNS: Final = 4  # nodes beside each other
_MOST_PODS: Final = 12  # of one node; of more, the number is shown
# Pixels.
_CARD: Final = 250  # the width of a node
_GAP: Final = 30  # between nodes
_EDGE: Final = 20  # around all
_PAD: Final = 14  # within a node
_LINE: Final = 15  # a line of small letters
_BOX: Final = 24  # the height of a box with one line
_WIRE: Final = 16  # between boxes that a wire joins
_CLOSE: Final = 4  # between pods
_NAME: Final = 32  # a node's name
_TITLE: Final = 44
_LETTER: Final = 7  # the width of a letter, about
_NARROWEST: Final = 660

# What each class looks like: always, in light and in dark.
_PAINT: Final = (
    ("text", "font-size: 12px", "fill: #1d2733", "fill: #e8edf4"),
    (".title", "font-size: 16px; font-weight: 600", "", ""),
    (".name", "font-size: 14px; font-weight: 600", "", ""),
    (".soft", "font-size: 11px", "fill: #52606f", "fill: #a5b1c2"),
    (".address", "font-size: 11px; font-family: ui-monospace, 'DejaVu Sans Mono', monospace", "", ""),
    (".end", "text-anchor: end", "", ""),
    (".ready", "", "fill: #25663a", "fill: #79cf94"),
    (".other", "font-weight: 600", "fill: #b3261e", "fill: #ff8a80"),
    (".paper", "", "fill: #ffffff", "fill: #14181f"),
    (".node", "", "fill: #f3f6fb; stroke: #8da2c0", "fill: #1d242e; stroke: #4a5d7a"),
    (".box", "", "fill: #ffffff; stroke: #5b6b82", "fill: #14181f; stroke: #7788a0"),
    (".device", "", "fill: #e3f1e6; stroke: #3f7d4f", "fill: #17301f; stroke: #6fc389"),
    (".underlay", "", "fill: #e4e9f1; stroke: #8da2c0", "fill: #2a3340; stroke: #4a5d7a"),
    (".wire", "stroke-width: 1.5; fill: none", "stroke: #5b6b82", "stroke: #7788a0"),
    (".tunnel", "stroke-width: 2; stroke-dasharray: 6 4; fill: none", "stroke: #3f7d4f", "stroke: #6fc389"),
)


def svg(picture: Picture) -> str:
    columns = min(_COLUMNS, len(picture.nodes))
    width = max(2 * _EDGE + columns * _CARD + (columns - 1) * _GAP, _NARROWEST)
    parts, top = list(_title(picture)), _TITLE
    pieces = []
    for first in range(0, len(picture.nodes), _COLUMNS):
        nodes = picture.nodes[first : first + _COLUMNS]
        bottom = top + max(map(_height, nodes))
        parts += _row(nodes, top, bottom)
        top = bottom + _WIRE
        parts += _underlay(picture, top, width)
        pieces.append(top + _BOX // 2)
        top += _BOX + _EDGE
    for above, below in pairwise(pieces):  # one network, drawn in pieces
        parts.append(_wire(f"M{_EDGE} {above}h{-_EDGE // 2}V{below}h{_EDGE // 2}"))
    size = f'viewBox="0 0 {width} {top}" width="{width}" height="{top}"'
    fonts = "font-family=\"ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif\""
    paper = f'  <rect class="paper" width="{width}" height="{top}"/>\n'
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {fonts} role="img" aria-label={quoteattr(head(picture))}>'
    )
    return f"{opening}\n{_style()}{paper}{''.join(parts)}</svg>\n"


def _style() -> str:
    always = "".join(
        f"    {name} {{ {'; '.join(filter(None, (usual, light)))} }}\n" for name, usual, light, _ in _PAINT
    )
    dark = "".join(f"      {name} {{ {dark} }}\n" for name, _, _, dark in _PAINT if dark)
    return f"  <style>\n{always}    @media (prefers-color-scheme: dark) {{\n{dark}    }}\n  </style>\n"


def _title(picture: Picture) -> Iterator[str]:
    families = " and ".join(f"IPv{family}" for family in picture.families)
    about = f"{picture.backend}, {families}, {counted(len(picture.nodes), 'node')}"
    yield _text(_EDGE, 28, f"lab {picture.name}", "title")
    yield _text(_EDGE + 20 + (_LETTER + 3) * len(f"lab {picture.name}"), 28, about, "soft")


def _height(node: Node) -> int:
    pods = sum(_tall(pod.addresses) + _CLOSE for pod in node.pods[:_MOST_PODS])
    more = _LINE if len(node.pods) > _MOST_PODS else 0
    return _NAME + _LINE * len(node.subnets) + pods + more + _WIRE + _chain_height(node) + _PAD


def _chain(node: Node) -> list[tuple[Device, int]]:
    """The links from the pods down, each with its distance to the one above."""
    devices = [(device, _CLOSE if number else _WIRE) for number, device in enumerate(node.devices)]
    return [(node.bridge, 0), *devices, (node.uplink, _WIRE)]


def _chain_height(node: Node) -> int:
    return sum(above + _link_height(device) for device, above in _chain(node))


def _link_height(device: Device) -> int:
    return max(_tall(device.addresses), _BOX if _in_one_line(device) else _BOX + _LINE)


def _in_one_line(device: Device) -> bool:
    letters = len(device.name) + len(device.kind) + max(map(len, device.addresses), default=0)
    return _LETTER * letters < _CARD - 2 * _PAD - 40


def _tall(addresses: Sequence[str]) -> int:
    return _BOX + _LINE * max(0, len(addresses) - 1)


def _row(nodes: Sequence[Node], top: int, bottom: int) -> Iterator[str]:
    """Nodes beside each other. Their links are level, so that tunnels are straight."""
    for column, node in enumerate(nodes):
        left = _EDGE + column * (_CARD + _GAP)
        yield f'  <rect class="node" x="{left}" y="{top}" width="{_CARD}" height="{bottom - top}" rx="8"/>\n'
        yield _text(left + _PAD, top + 22, node.name, "name")
        yield _text(left + _CARD - _PAD, top + 22, node.state, f"end {'ready' if serves(node.state) else 'other'}")
        for number, subnet in enumerate(node.subnets):
            yield _text(left + _PAD, top + _NAME + 5 + _LINE * number, subnet, "address")
        chain_top = bottom - _PAD - _chain_height(node)
        yield from _pods(node, left, top + _NAME + _LINE * len(node.subnets), chain_top)
        yield from _links(node, left, chain_top, tunnel=column + 1 < len(nodes))
        yield _wire(f"M{left + _CARD // 2} {bottom - _PAD}V{bottom + _WIRE}")


def _pods(node: Node, left: int, top: int, bridge: int) -> Iterator[str]:
    """Each pod on a wire down to the bridge, whose upper edge is at `bridge`."""
    rail, inner = left + _PAD + 8, left + _PAD + 20
    if node.pods:
        yield _wire(f"M{rail} {top + _BOX // 2}V{bridge}")
    for pod in node.pods[:_MOST_PODS]:
        yield _wire(f"M{rail} {top + _BOX // 2}H{inner}")
        height = _tall(pod.addresses)
        yield from _box("box", pod.name, pod.addresses, (inner, top, left + _CARD - _PAD - inner, height))
        top += height + _CLOSE
    if len(node.pods) > _MOST_PODS:
        yield _text(inner, top + 10, f"and {len(node.pods) - _MOST_PODS} more", "soft")


def _links(node: Node, left: int, top: int, *, tunnel: bool) -> Iterator[str]:
    """From the bridge down, with wires, and tunnels to the node at the right."""
    for device, above in _chain(node):
        top += above
        height = _link_height(device)
        if above == _WIRE:
            yield _wire(f"M{left + _CARD // 2} {top - above}v{above}")
        ours = device in node.devices
        if ours and tunnel:
            way = f"M{left + _CARD - _PAD} {top + height // 2}h{_GAP + 2 * _PAD}"
            yield f'  <path class="tunnel" d="{way}"/>\n'
        place = left + _PAD, top, _CARD - 2 * _PAD, height
        yield from _box("device" if ours else "box", device.name, device.addresses, place)
        beside = (18 + _LETTER * len(device.name), 16) if _in_one_line(device) else (10, 16 + _LINE)
        yield _text(left + _PAD + beside[0], top + beside[1], device.kind, "soft")
        top += height


def _underlay(picture: Picture, top: int, width: int) -> Iterator[str]:
    yield f'  <rect class="underlay" x="{_EDGE}" y="{top}" width="{width - 2 * _EDGE}" height="{_BOX}" rx="4"/>\n'
    yield _text(_EDGE + 10, top + 16, f"underlay  {', '.join(picture.underlay)}", "soft")
    yield _text(width - _EDGE - 10, top + 16, f"store {picture.store}, {picture.store_state}", "soft end")


def _box(kind: str, name: str, addresses: Sequence[str], place: tuple[int, int, int, int]) -> Iterator[str]:
    """`place` is left, top, width, height; the name is at the left, addresses at the right."""
    left, top, width, height = place
    yield f'  <rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="4"/>\n'
    yield _text(left + 10, top + 16, name, "")
    for number, address in enumerate(addresses):
        yield _text(left + width - 10, top + 16 + _LINE * number, address, "address end")


def _wire(path: str) -> str:
    return f'  <path class="wire" d="{path}"/>\n'


def _text(left: int, top: int, words: str, kind: str) -> str:
    return f'  <text{f" class={quoteattr(kind)}" if kind else ""} x="{left}" y="{top}">{escape(words)}</text>\n'
