"""sbr's configuration (cni.md §6.5)."""

from typing import Final

from weft.cni.plugins.sbr.values import SbrConf
from weft.model.net import Ip
from weft.wire import cnijson, confkey
from weft.wire.cni import failure
from weft.wire.cnijson import JsonError, Object

_TABLE: Final = confkey.maybe_integer(
    "table",
    "The table for all addresses. Only rules that lead to it are made: its routes are yours.",
    default="a free one from 100 on for each address, with the interface's routes",
)
_GATEWAYS: Final = confkey.items(
    "gateways",
    "Gateways of the tables' default routes instead of the addresses', at most one per family.",
    cnijson.as_text,
)
_HINTS: Final = confkey.flag(
    "addSourceHints", "Keep the routes to the interface's subnets in the main table, with the address as source."
)
KEYS: Final = (_TABLE, _GATEWAYS, _HINTS)

_LARGEST_TABLE: Final = 0xFFFFFFFF


def parse(config: Object) -> SbrConf:
    """Read a request. Raises `CniError`."""
    try:
        table = _TABLE(config)
        gateways = [cnijson.parse_ip(text) for text in _GATEWAYS(config)]
        hints = _HINTS(config)
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
