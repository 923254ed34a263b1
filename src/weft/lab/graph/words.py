"""A picture of a lab as text: a tree, and the languages of Mermaid and Graphviz, which draw it themselves."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from weft.lab.graph.picture import Device, Node, Picture


def tree(picture: Picture) -> str:
    """Return the lab as a tree: each line hangs on what is above it."""
    lines = [f"{head(picture)}\n", f"underlay {', '.join(picture.underlay)}\n"]
    for number, node in enumerate(picture.nodes, 1):
        last = number == len(picture.nodes)
        lines.append(f"{'└─' if last else '├─'} {node.name}, {node.state}\n")
        lines += (f"{'   ' if last else '│  '}{line}\n" for line in _node_lines(node))
    return "".join(lines)


def head(picture: Picture) -> str:
    """Return what the lab is, in a line."""
    families = " and ".join(f"IPv{family}" for family in picture.families)
    return f"lab {picture.name}: {picture.backend}, {families}; store {picture.store}, {picture.store_state}"


def _node_lines(node: Node) -> Iterator[str]:
    levels = [level for level in ((node.uplink,), node.devices, (node.bridge,)) if level]
    for depth, level in enumerate(levels):
        yield f"{'   ' * depth}└─ {', '.join(map(_words, level))}"
    for number, pod in enumerate(node.pods, 1):
        branch = "└─" if number == len(node.pods) else "├─"
        yield f"{'   ' * len(levels)}{branch} {pod.name}  {', '.join(pod.addresses)}"


def _words(device: Device) -> str:
    return f"{device.name} ({device.kind})  {', '.join(device.addresses)}"


class _Cluster(NamedTuple):
    """A node in a language of graphs: its boxes (their names, their words, whether they are pods) and their edges."""

    name: str
    label: str
    boxes: list[tuple[str, tuple[str, ...], bool]]
    edges: list[tuple[str, str]]


def _clusters(picture: Picture) -> Iterator[_Cluster]:
    for number, node in enumerate(picture.nodes, 1):
        links = (node.uplink, *node.devices, node.bridge)
        uplink, *devices, bridge = (f"n{number}d{place}" for place in range(len(links)))
        pods = [f"n{number}p{place}" for place in range(len(node.pods))]
        boxes = [
            (name, (f"{link.name}, {link.kind}", *link.addresses), False)
            for name, link in zip((uplink, *devices, bridge), links, strict=True)
        ]
        boxes += [(name, (pod.name, *pod.addresses), True) for name, pod in zip(pods, node.pods, strict=True)]
        edges = [edge for device in devices for edge in ((uplink, device), (device, bridge))] or [(uplink, bridge)]
        edges += ((bridge, pod) for pod in pods)
        yield _Cluster(f"n{number}", f"{node.name}, {node.state}", boxes, edges)


def mermaid(picture: Picture) -> str:
    """Return a flowchart in Mermaid's language, which GitHub and GitLab draw within Markdown."""
    lines = ["flowchart TB"]
    lines.append(f"  underlay{_box('underlay', *picture.underlay)}")
    lines.append(f"  store{_box('store, ' + picture.store_state, picture.store, pod=True)}")
    lines.append("  store --- underlay")
    for cluster in _clusters(picture):
        lines.append(f"  subgraph {cluster.name}{_box(cluster.label)}")
        lines += (f"    {name}{_box(*words, pod=pod)}" for name, words, pod in cluster.boxes)
        lines += (f"    {one} --- {other}" for one, other in cluster.edges)
        lines += ["  end", f"  underlay --- {cluster.boxes[0][0]}"]
    return "\n".join(lines) + "\n"


def _box(*words: str, pod: bool = False) -> str:
    text = "<br/>".join(words).replace('"', "#quot;")
    return f'("{text}")' if pod else f'["{text}"]'


def dot(picture: Picture) -> str:
    """Return a graph in Graphviz's language: `… | dot -Tsvg`."""
    lines = [
        f"graph {_quoted(picture.name)} {{",
        '  node [shape=box, fontname="sans-serif", fontsize=11]; edge [color="#5b6b82"]',
        f"  underlay [label={_quoted('underlay', *picture.underlay)}]",
        f"  store [label={_quoted('store, ' + picture.store_state, picture.store)}, shape=cylinder]",
        "  store -- underlay",
    ]
    for cluster in _clusters(picture):
        lines.append(f"  subgraph cluster_{cluster.name} {{")
        lines.append(f"    label={_quoted(cluster.label)}; style=rounded")
        lines += (
            f"    {name} [label={_quoted(*words)}{', style=rounded' if pod else ''}]"
            for name, words, pod in cluster.boxes
        )
        lines += (f"    {one} -- {other}" for one, other in cluster.edges)
        lines += ["  }", f"  underlay -- {cluster.boxes[0][0]}"]
    return "\n".join((*lines, "}")) + "\n"


def _quoted(*words: str) -> str:
    return json.dumps("\n".join(words), ensure_ascii=False)
