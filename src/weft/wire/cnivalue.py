"""Reads and writes values as CNI's JSON, by the keys of their fields (`model.keyed`).

A missing key, `null` and an empty text leave the default. Of several faults the first field's is reported, in
`cnijson`'s words.
"""

from collections.abc import Callable
from functools import cache, partial
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin

from weft.model import keyed
from weft.model.keyed import Arg, Key
from weft.model.net import Mac
from weft.model.value import Value
from weft.wire import cnijson
from weft.wire.cni import failure, parse_args
from weft.wire.cnijson import JsonError, Object

V = TypeVar("V", bound=Value)

Path = tuple[str, ...]
Read = Callable[[Any, str], Any]
# Field, key, key as it is looked up, path to its object, how its value is read, what says nothing, required.
_Row = tuple[str, str, str, Path, Read, str | None, bool]

_ARGS: Final = ("CNI_ARGS",)


def decode(kind: type[V], obj: Object, args: str = "") -> V:
    """`args` is CNI_ARGS. Raises `JsonError`, or `CniError` for bad arguments."""
    rows, known = _table(kind)
    objects: dict[Path, Object] = {(): _folded(obj)}
    made: dict[str, Any] = {}
    for name, key, folded, path, read, nothing, required in rows:
        if name in made:
            continue
        found = objects.get(path)
        if found is None:
            found = objects[path] = parse_args(args, known) if path is _ARGS else _inner(objects[()], path)
        value = found.get(folded)
        if value is not None and value != nothing:
            made[name] = read(value, key)
        elif required:
            made[name] = read("", key)
    return kind(**made)


def decode_or_fail(kind: type[V], obj: Object, args: str = "", *, failed: str) -> V:
    """Raises `CniError` for any fault, with `failed` before its text."""
    try:
        return decode(kind, obj, args)
    except JsonError as error:
        raise failure(f"{failed}: {error}") from error


def encode(value: Value) -> Object:
    """Each field at its first key, without defaults."""
    made: Object = {}
    for name, key, path, required, default in _written(type(value)):
        content = getattr(value, name)
        if required or (content is not default and (default is None or content != default)):
            inner = made
            for step in path:
                inner = inner.setdefault(step, {})
            inner[key] = _plain(content)
    return made


def _plain(content: Any) -> Any:
    if isinstance(content, Value):
        return encode(content)
    if isinstance(content, tuple):
        return [_plain(item) for item in content]
    return str(content) if type(content) in _ADDRESSES else content


def _folded(obj: Object) -> Object:
    """Values by their keys in lower case, without nulls; of several spellings the last."""
    return {key.lower(): value for key, value in obj.items() if value is not None}


def _inner(found: Object, path: Path) -> Object:
    for key in path:
        found = _folded(cnijson.as_object(found.get(key.lower()), key))
    return found


@cache
def _table(kind: type[Value]) -> tuple[tuple[_Row, ...], frozenset[str]]:
    """A row for each source, and the names of arguments."""
    rows: list[_Row] = []
    for field in keyed.fields(kind):
        types = _types(field.type)
        nothing = "" if types <= _TEXTS else None
        for source in field.sources:
            read = _reader(types, source)
            folded, path = (source.name, _ARGS) if isinstance(source, Arg) else (source.name.lower(), _path(source))
            rows.append((field.name, source.name, folded, path, read, nothing, field.required))
    return tuple(rows), frozenset(row[1] for row in rows if row[3] is _ARGS)


@cache
def _written(kind: type[Value]) -> tuple[tuple[str, str, Path, bool, Any], ...]:
    """Each field's name, its first key, the path there, whether it is required, and its default."""
    return tuple(
        (field.name, source.name, _path(source), field.required, field.default)
        for field in keyed.fields(kind)
        if isinstance(source := field.sources[0], Key)
    )


def _path(key: Key) -> Path:
    return tuple(key.at.split(".")) if key.at else ()


def _types(kind: Any) -> frozenset[Any]:
    return frozenset(get_args(kind) if get_origin(kind) is UnionType else (kind,)) - {NoneType}


def _parse_mac(text: str) -> Mac:
    try:
        return Mac.parse(text)
    except ValueError as error:
        raise JsonError(str(error)) from error


# What is a text in JSON, and how it is read.
_PARSE: Final[dict[frozenset[Any], Callable[[str], Any]]] = {
    frozenset({IPv4Address, IPv6Address}): cnijson.parse_ip,
    frozenset({IPv4Interface, IPv6Interface}): cnijson.parse_cidr,
    frozenset({Mac}): _parse_mac,
}
_ADDRESSES: Final = frozenset[Any]().union(*_PARSE)
_TEXTS: Final = _ADDRESSES | {str}


def _reader(types: frozenset[Any], source: Key | Arg) -> Read:
    if types in _PARSE:
        return partial(_read_parsed, _PARSE[types])
    [kind] = types
    origin = get_origin(kind) or kind
    read: Read = partial(cnijson.as_kind, origin)
    if origin is tuple:
        first, *others = get_args(kind)
        read = partial(_read_items, _reader(_types(first), source), 0 if others == [...] else 1 + len(others))
    elif origin is int and isinstance(source, Key):
        read = partial(cnijson.as_integer, least=source.least, most=source.most)
    elif kind == dict[str, str]:
        read = _read_texts
    elif origin is Any:
        read = _as_it_is
    elif issubclass(origin, Value):
        read = partial(_read_value, origin)
    return read


def _read_parsed(parse: Callable[[str], Any], value: Any, where: str) -> Any:
    return parse(cnijson.as_text(value, where))


def _read_items(read: Read, length: int, value: Any, where: str) -> tuple[Any, ...]:
    """`length` 0 is any length."""
    items = cnijson.as_list(value, where)
    if length and len(items) != length:
        raise JsonError(f"cannot use {len(items)} items as {where} (expected {length})")
    return tuple([read(item, f"{where}[{index}]") for index, item in enumerate(items)])


def _read_texts(value: Any, where: str) -> Any:
    for name, item in cnijson.as_object(value, where).items():
        cnijson.as_text(item, f"{where} {name!r}")
    return value


def _read_value(kind: type[Value], value: Any, where: str) -> Value:
    return decode(kind, cnijson.as_object(value, where))


def _as_it_is(value: Any, _where: str) -> Any:
    return value
