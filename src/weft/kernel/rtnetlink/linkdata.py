"""A device's own attributes, by the table of its class: to IFLA_INFO_DATA and back. Pure."""

from typing import Any

from weft.kernel.rtnetlink.attributes import Attributes, attribute, be16, parse, u8, u16, u32
from weft.model.kernel.links import Attribute, Link

_NUMBERS = {"u8": u8, "u16": u16, "u32": u32, "be16": be16}


def encode(thing: Link, *, live: bool = False) -> bytes:
    """With `live`, what can be changed on a device that exists."""
    return b"".join(_encode(each, getattr(thing, each.name)) for each in thing.attributes if each.live or not live)


def decode(kind: type[Link], data: bytes) -> dict[str, Any] | None:
    """The fields of a device of this kind; None if it has what no device of ours has. Raises `Malformed`."""
    found = parse(data)
    if any(_is_set(found, number) for number in kind.foreign):
        return None
    fields: dict[str, Any] = {}
    for each in kind.attributes:
        if each.number in found or each.name not in fields:
            fields[each.name] = _decode(each, found)
    return fields


def _encode(each: Attribute, value: Any) -> bytes:
    if each.form == "flag":
        return attribute(each.number, b"") if value else b""
    if each.form in ("ip4", "ip6"):
        return attribute(each.number, value.packed) if each.form == f"ip{value.version}" else b""
    return _NUMBERS[each.form](each.number, value)


def _decode(each: Attribute, found: Attributes) -> Any:
    if each.form == "flag":
        return each.number in found
    if each.form in ("ip4", "ip6"):
        return found.ip(each.number)
    if each.form == "be16":
        return found.network_number(each.number) or 0
    return found.number(each.number) or 0


def _is_set(found: Attributes, number: int) -> bool:
    """Some attributes are there even when they say no; a mere presence says yes."""
    value = found.get(number)
    return value is not None and (not value or any(value))
