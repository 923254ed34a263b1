"""The file in which a runtime remembers an attachment: libcni's, key by key (cni.md §2.7).

Its name joins three names with hyphens, which may occur in each, so only its content says whose it is.
"""

import base64
import binascii
import json
from typing import Final

from weft.model.value import Value
from weft.wire import cnijson
from weft.wire.cni import CniError, failure
from weft.wire.cnichain import RuntimeConf
from weft.wire.cnijson import JsonError, Object
from weft.wire.cnivalue import decode, encode

KIND: Final = "cniCacheV1"


class Entry(Value):
    """A remembered attachment: the network's text, and the result of its ADD."""

    network: str
    conf: RuntimeConf
    config: bytes
    result: Object


def file_name(network: str, container_id: str, ifname: str) -> str:
    """Refuses empty names, and those that lead to another directory."""
    if not (network and container_id and ifname):
        raise failure(
            f'cache file path requires network name ("{network}"), container ID ("{container_id}"), '
            f'and interface name ("{ifname}")'
        )
    name = f"{network}-{container_id}-{ifname}"
    if "/" in name or "\0" in name:
        raise failure(f"{name!r} cannot be the name of a file")
    return name


def render(entry: Entry) -> bytes:
    """As libcni writes it, without empty keys."""
    obj: Object = {
        "kind": KIND,
        "config": base64.b64encode(entry.config).decode(),
        "networkName": entry.network,
        **encode(entry.conf),
    }
    return json.dumps({**obj, "result": entry.result} if entry.result else obj).encode()


def parse(data: bytes, network: str) -> Entry:
    """Raises `CniError` with the words of cni.md §2.7."""
    try:
        obj = cnijson.load(data)
        kind = cnijson.value_of(obj, "kind")
    except JsonError as error:
        raise failure(f'failed to unmarshal cached network "{network}" config: {error}') from error
    if kind != KIND:
        raise failure(f'read cached network "{network}" config has wrong kind: {kind}')
    try:
        return Entry(
            network=cnijson.text(obj, "networkName"),
            conf=decode(RuntimeConf, obj),
            config=base64.b64decode(cnijson.text(obj, "config"), validate=True),
            result=cnijson.member(obj, "result"),
        )
    except (JsonError, binascii.Error) as error:
        raise failure(f'failed to unmarshal cached network "{network}" config: {error}') from error


def has_kind(data: bytes) -> bool:
    """Tell an entry from a bare result, which the first versions wrote. Raises `CniError`."""
    try:
        return bool(cnijson.value_of(cnijson.load(data), "kind") == KIND)
    except JsonError as error:
        raise failure(str(error)) from error


def parse_result(data: bytes) -> Object:
    """The result of an entry, or a bare one."""
    if not has_kind(data):
        return cnijson.load(data)
    try:
        return cnijson.member(cnijson.load(data), "result")
    except JsonError as error:
        raise failure(str(error)) from error


def belongs_to(data: bytes, network: str, container_id: str, ifname: str) -> bool:
    """True also if the file does not say whose it is."""
    try:
        entry = parse(data, network)
    except CniError:
        return True
    return (entry.network, entry.conf.container_id, entry.conf.ifname) == (network, container_id, ifname)
