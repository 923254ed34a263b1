"""JSON as CNI plugins read it, and addresses in it (cni.md §1.17). Readers raise `JsonError`, which names the key.

Keys match exactly or in any letter case, and the last one wins; unknown keys are ignored; `null` leaves the default.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from math import isinf
from typing import Any, Final, NoReturn, TypeVar

from weft.model.attachment import Cidr
from weft.model.keyed import LEAST, MOST
from weft.model.net import Ip

Object = dict[str, Any]

T = TypeVar("T")

# A node's pods have few networks, gateways and shapes of configuration, and a chain names an address over and over.
_REMEMBERED: Final = 256
_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "an integer", float: "a number"}


class JsonError(ValueError):
    """The text is no JSON, or a known key has the wrong type."""


def _ordered(pairs: list[tuple[str, Any]]) -> Object:
    # A repeated key moves to its last place, so that "the later one wins" holds among spellings too.
    found: Object = {}
    for key, value in pairs:
        found.pop(key, None)
        found[key] = value
    return found


def _no_constant(text: str) -> NoReturn:
    # Python's decoder takes NaN and Infinity, which JSON has not.
    raise ValueError(f"invalid value {text}")


def _finite(text: str) -> float:
    """Refuse a number that would become infinite, which JSON cannot hold."""
    number = float(text)
    if isinf(number):
        raise ValueError(f"number {text[:20]} is too large")
    return number


_decode: Final = json.JSONDecoder(object_pairs_hook=_ordered, parse_constant=_no_constant, parse_float=_finite).decode


def load(data: bytes) -> Object:
    """Read a JSON object; `null` is an empty one."""
    try:
        value = _decode(data.decode())
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise JsonError("nested too deeply") from error
    except ValueError as error:
        raise JsonError(str(error)) from error
    return {} if value is None else as_kind(dict, value, "the configuration")


def as_kind(kind: type[T], value: Any, where: str) -> T:
    if type(value) is not kind:
        raise JsonError(f"cannot use {_KINDS.get(type(value), 'null')} as {where} (expected {_KINDS[kind]})")
    return value


def value_of(obj: Object, key: str) -> Any:
    """None if it is absent or null."""
    found = None
    for name in _spellings(tuple(obj)).get(key.lower(), ()):
        value = obj[name]
        if value is not None:
            found = value
    return found


@lru_cache(maxsize=_REMEMBERED)
def _spellings(keys: tuple[str, ...]) -> dict[str, list[str]]:
    """Map each key in lower case to its spellings. Cached: the same objects come with every pod."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(key.lower(), []).append(key)
    return found


def _get(obj: Object, key: str, kind: type[T], default: T) -> T:
    value = value_of(obj, key)
    return default if value is None else as_kind(kind, value, key)


def text(obj: Object, key: str) -> str:
    return _get(obj, key, str, "")


def flag(obj: Object, key: str) -> bool:
    return _get(obj, key, bool, default=False)


def integer(obj: Object, key: str) -> int:
    return as_integer(_get(obj, key, int, 0), key)


def as_integer(value: Any, where: str, *, least: int = LEAST, most: int = MOST) -> int:
    """By default 64 bits, with or without a sign; 0 is always allowed."""
    found = as_kind(int, value, where)
    if found and not least <= found <= most:
        raise JsonError(f"cannot use {str(found)[:24]} as {where} (expected an integer from {least} to {most})")
    return found


def member(obj: Object, key: str) -> Object:
    return _get(obj, key, dict, {})


def items(obj: Object, key: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    """`read(item, where)` reads each item."""
    found = _get(obj, key, list, [])
    return tuple(read(item, f"{key}[{index}]") for index, item in enumerate(found))


def as_text(value: Any, where: str) -> str:
    return as_kind(str, value, where)


def as_object(value: Any, where: str) -> Object:
    return {} if value is None else as_kind(dict, value, where)


def as_list(value: Any, where: str) -> list[Any]:
    return [] if value is None else as_kind(list, value, where)


@lru_cache(maxsize=_REMEMBERED)
def parse_ip(address: str) -> Ip:
    """A dotted quad without leading zeros, or IPv6 without a zone; an IPv4-mapped address is IPv4."""
    try:
        if "." in address and ":" not in address:
            return IPv4Address(address)
        if "%" in address:
            raise ValueError(address)
        found = IPv6Address(address)
    except ValueError as error:
        raise JsonError(f"invalid IP address: {address}") from error
    return found.ipv4_mapped or found


@lru_cache(maxsize=_REMEMBERED)
def parse_cidr(cidr: str) -> Cidr:
    """The host bits stay."""
    address, slash, length = cidr.partition("/")
    if slash and length.isascii() and length.isdigit():
        try:
            if ":" in address and "%" not in address:
                return IPv6Interface((address, int(length)))
            return IPv4Interface((address, int(length)))
        except ValueError:
            pass
    raise JsonError(f"invalid CIDR address: {cidr}")


def parse_ip_or_cidr(address: str) -> Ip | None:
    """Either form; an empty text is None."""
    if not address:
        return None
    try:
        return parse_cidr(address).ip if "/" in address else parse_ip(address)
    except JsonError as error:
        raise JsonError(f"invalid IP address {address}") from error
