"""Files of policies and namespaces, and the key `policies` of a lab file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from weft.lab.files.labkeys import MANIFESTS, POLICIES
from weft.lab.files.yamlfile import Reader
from weft.lab.manifests import Manifest
from weft.model.errors import ConfigError, Problem
from weft.model.text import one_line
from weft.wire.policyobjects import read_objects


def read(text: str, where: str) -> tuple[Manifest, ...]:
    """`ConfigError` for what no node would understand, and for pods, which a lab has itself."""
    try:
        documents = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(_problem(where, one_line(str(error)), "YAML")) from None
    return checked([each for document in documents if document is not None for each in _flat(document)], where)


def checked(found: list[Any], where: str) -> tuple[Manifest, ...]:
    read_objects({where: yaml.safe_dump_all(found)})
    for each in found:
        if each["kind"] not in MANIFESTS:
            raise ConfigError(_problem(where, f"a {each['kind']}", f"{', '.join(MANIFESTS)}: a lab has its own pods"))
    return tuple(found)


def _flat(document: Any) -> Iterator[Any]:
    if isinstance(document, dict) and str(document.get("kind")).endswith("List"):
        items = document.get("items")
        yield from items if isinstance(items, list) else [items]
    else:
        yield document


def of_lab(reader: Reader, node: yaml.Node | None, folder: str) -> tuple[Manifest, ...] | None:
    if node is None:
        return None
    if not isinstance(node, yaml.SequenceNode):
        reader.problem(node, f"{POLICIES} is no list", expected="a list of files, or of policies")
        return ()
    found: list[Manifest] = []
    for item in node.value:
        try:
            found += _item(reader, item, folder)
        except ConfigError as error:
            reader.add(item, error.problems)
        except OSError as error:
            reader.problem(item, f"{error.filename}: {error.strerror}", expected="a file of policies")
    return tuple(found)


def _item(reader: Reader, item: yaml.Node, folder: str) -> tuple[Manifest, ...]:
    """A file is seen from the lab file's folder."""
    if isinstance(item, yaml.MappingNode):
        value = reader.value(item, dict[str, Any], "a policy")
        return () if value is None else checked([value], reader.at(item))
    name = reader.value(item, str, "a file of policies")
    if not name:
        return ()
    path = os.path.join(folder, name)  # noqa: PTH118 - text, and "" for standard input
    return read(Path(path).read_text(errors="replace"), path)


def _problem(where: str, seen: str, expected: str) -> Problem:
    return Problem("LAB-001", where, seen, expected=expected)
