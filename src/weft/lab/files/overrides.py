"""Options beside a lab file: they take the place of what the file says, or are refused with the reason.

They change the file's YAML before it is read, so that what they lead to is checked as if it was written there.
"""

from collections.abc import Iterator
from typing import Final

import yaml

from weft.lab import spec
from weft.lab.files import kindfile
from weft.lab.files.yamlfile import Reader
from weft.lab.spec import Overrides

_INT: Final = "tag:yaml.org,2002:int"
_TEXT: Final = "tag:yaml.org,2002:str"
_TRUE: Final = "tag:yaml.org,2002:bool"
_MAP: Final = "tag:yaml.org,2002:map"


def applied(root: yaml.Node, over: Overrides, reader: Reader) -> yaml.Node:
    """Return the file as the options want it. What cannot be becomes a problem of the reader's."""
    if not over.given() or not isinstance(root, yaml.MappingNode):
        return root
    if kindfile.is_one(root):
        for option in over.given():
            reader.problem(root, f"{option} beside a cluster file of kind", expected="kind's own keys in the file")
        return root
    _set_counts(root, over, reader)
    if over.store is not None:
        _set(root, "store", _TEXT, over.store)
    if over.kubernetes:
        _set(root, "kubernetes", _TRUE, "true")
    _set_network(root, over, reader)
    return root


def _set_counts(root: yaml.MappingNode, over: Overrides, reader: Reader) -> None:
    nodes, pods = _get(root, "nodes"), _get(root, "pods")
    if over.nodes is not None:
        if isinstance(nodes, yaml.SequenceNode):
            reader.problem(nodes, f"--nodes {over.nodes} beside a list of nodes", expected="one of the two")
        else:
            _set(root, "nodes", _INT, str(over.nodes))
    if over.pods is not None:
        own = nodes.value if isinstance(nodes, yaml.SequenceNode) else []
        if isinstance(pods, yaml.SequenceNode):
            reader.problem(pods, f"--pods {over.pods} beside a list of pods", expected="one of the two")
        elif own and all(_get(node, "pods") is not None for node in own):
            reader.problem(nodes, f"--pods {over.pods}, and each node says its own", expected="one of the two")
        else:
            _set(root, "pods", _INT, str(over.pods))


def _set_network(root: yaml.MappingNode, over: Overrides, reader: Reader) -> None:
    if over.backend is None and over.family is None and not over.nft:
        return
    network = _get(root, "network")
    if network is None:
        families = spec.FAMILIES[over.family or "4"]
        text = spec.net_conf(backend=over.backend or "vxlan", families=families, nft=over.nft)
        root.value.append((_scalar(root, _TEXT, "network"), yaml.compose(text, Loader=yaml.SafeLoader)))
        return
    if over.family is not None:
        expected = "EnableIPv4, EnableIPv6 and the networks in the file"
        reader.problem(network, f"--family {over.family} beside a network", expected=expected)
    if not isinstance(network, yaml.MappingNode):
        return  # which the reader complains of
    if over.nft:
        _set(network, "EnableNFTables", _TRUE, "true")
    if over.backend is not None:
        backend = _get(network, "Backend")
        if backend is None:
            backend = yaml.MappingNode(_MAP, [], network.start_mark)
            network.value.append((_scalar(network, _TEXT, "Backend"), backend))
        if isinstance(backend, yaml.MappingNode):
            _set(backend, "Type", _TEXT, over.backend)


def _entries(node: yaml.Node, key: str) -> Iterator[tuple[int, yaml.Node]]:
    """Yield the place and value of a key, in whatever case: net-conf's have none."""
    for place, (name, value) in enumerate(node.value if isinstance(node, yaml.MappingNode) else []):
        if str(name.value).casefold() == key.casefold():
            yield place, value


def _get(node: yaml.Node, key: str) -> yaml.Node | None:
    return next((value for _, value in _entries(node, key)), None)


def _set(node: yaml.MappingNode, key: str, tag: str, text: str) -> None:
    for place, value in _entries(node, key):
        node.value[place] = (node.value[place][0], _scalar(value, tag, text))
        return
    node.value.append((_scalar(node, _TEXT, key), _scalar(node, tag, text)))


def _scalar(at: yaml.Node, tag: str, text: str) -> yaml.ScalarNode:
    """Return a value that stands where `at` does, for messages."""
    return yaml.ScalarNode(tag, text, at.start_mark, at.end_mark)
