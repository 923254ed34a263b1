"""sbr's configuration (cni.md §6.5)."""

from typing import Final

from weft.model.net import Ip
from weft.model.sourcerouting import SbrConf
from weft.wire import cnijson
from weft.wire.cni import failure
from weft.wire.cnijson import JsonError, Object

_LARGEST_TABLE: Final = 0xFFFFFFFF


def parse(config: Object) -> SbrConf:
    """Read a request. Raises `CniError`."""
    try:
        table = cnijson.maybe_integer(config, "table")
        gateways = [cnijson.parse_ip(text) for text in cnijson.items(config, "gateways", cnijson.as_text)]
        hints = cnijson.flag(config, "addSourceHints")
    except JsonError as error:
        raise failure(f"failed to parse network configuration: {error}") from error
    if table is not None and not 0 < table <= _LARGEST_TABLE:
        raise failure(f"invalid table {table} (must be between 1 and {_LARGEST_TABLE})")
    return SbrConf(table=table, gateways=_by_family(gateways), source_hints=hints)


def _by_family(gateways: list[Ip]) -> dict[int, Ip]:
    found: dict[int, Ip] = {}
    for gateway in gateways:
        other = found.setdefault(gateway.version, gateway)
        if other != gateway:
            raise failure(f"more than one IPv{gateway.version} gateway: {other} and {gateway}")
    return found
