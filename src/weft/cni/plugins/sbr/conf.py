"""sbr's configuration (cni.md §6.5)."""

from typing import Annotated, Final

from weft.cni.plugins.sbr.routing import SbrConf
from weft.model.keyed import Key
from weft.model.net import Ip
from weft.model.value import Value
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode_or_fail

_LARGEST_TABLE: Final = 0xFFFFFFFF


class SbrKeys(Value):
    """What the configuration says."""

    table: Annotated[
        int | None,
        Key(
            "table",
            "The table for all addresses. Only rules that lead to it are made: its routes are yours.",
            default="a free one from 100 on for each address, with the interface's routes",
        ),
    ] = None
    gateways: Annotated[
        tuple[Ip, ...],
        Key(
            "gateways",
            "Gateways of the tables' default routes instead of the addresses', at most one per family.",
        ),
    ] = ()
    source_hints: Annotated[
        bool,
        Key(
            "addSourceHints",
            "Keep the routes to the interface's subnets in the main table, with the address as source.",
        ),
    ] = False


def parse(config: Object) -> SbrConf:
    """Read a request. Raises `CniError`."""
    keys = decode_or_fail(SbrKeys, config, failed="failed to parse network configuration")
    if keys.table is not None and not 0 < keys.table <= _LARGEST_TABLE:
        raise failure(f"invalid table {keys.table} (must be between 1 and {_LARGEST_TABLE})")
    found: dict[int, Ip] = {}
    for gateway in keys.gateways:
        other = found.setdefault(gateway.version, gateway)
        if other != gateway:
            raise failure(f"more than one IPv{gateway.version} gateway: {other} and {gateway}")
    return SbrConf(table=keys.table, gateways=found, source_hints=keys.source_hints)
