"""What is in a bundle, by the names of its files; what is read back of it. Pure.

`manifest.json` says the form, `sight.json` is the sight of which verbs answer, `events.json` is the daemon's history;
the rest is for people. The form's number changes when a file means something else than before; a field that is new does
not change it.

msgspec writes values itself, and reads none that has an address of either family: in a union it allows one type that is
not its own. A mapping whose keys are no texts is an array of pairs.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from weft.diag.bundle import secrets
from weft.diag.sight.node import Sight
from weft.model.errors import ConfigError, Problem
from weft.model.net import Mac
from weft.model.node.history import EventsSince
from weft.model.value import Value, field, fields_of

V = TypeVar("V", bound=Value)
Read = Callable[[Any], Any]

_TEXTS: Final[dict[Any, Read]] = {
    frozenset((IPv4Address, IPv6Address)): ip_address,
    frozenset((IPv4Network, IPv6Network)): ip_network,
    frozenset((Mac,)): Mac.parse,
    frozenset((bytes,)): lambda text: b64decode(text, validate=True),
}
_PLAIN: Final[dict[Any, tuple[type, ...]]] = {str: (str,), int: (int,), bool: (bool,), float: (float, int)}

FORM: Final = 1
MANIFEST: Final = "manifest.json"
_SIGHT: Final = "sight.json"
_EVENTS: Final = "events.json"
_MOST_VALUES: Final = (
    2_000_000  # in a file, ten times those of a node with 5,000 peers: the smallest cost 70 bytes each
)


def plain(content: Any) -> Any:
    match content:
        case Value():
            made: Any = {name: plain(inner) for name, inner in fields_of(content).items()}
        case dict() if all(isinstance(key, str) for key in content):
            made = {key: plain(inner) for key, inner in content.items()}
        case dict():
            made = [[plain(key), plain(inner)] for key, inner in content.items()]
        case frozenset():
            made = sorted(map(plain, content))
        case list() | tuple():
            made = [plain(inner) for inner in content]
        case Mac() | IPv4Address() | IPv6Address() | IPv4Network() | IPv6Network():
            made = str(content)
        case bytes():
            made = b64encode(content).decode()
        case _:
            made = content
    return made


def read(kind: type[V], data: Any) -> V:
    """Read what `plain` has made; fields that are not known here are passed over. Raises `ValueError`."""
    made: V = _reader(kind)(data)
    return made


@cache
def _reader(kind: Any) -> Read:
    """How a value of a type is read. `TypeError` for a type that no value has yet."""
    origin = get_origin(kind) or kind
    members = frozenset(get_args(kind)) if origin is UnionType else frozenset((kind,))
    if NoneType in members:
        inner = _reader(_united(members - {NoneType}))
        return lambda data: None if data is None else inner(data)
    if members in _TEXTS:
        parse = _TEXTS[members]
        return lambda data: parse(_checked(data, (str,)))
    if origin in (tuple, list, frozenset, dict):
        return _held(origin, get_args(kind))
    return _single(kind)


def _single(kind: Any) -> Read:
    if kind is Any:
        return lambda data: data
    if kind in _PLAIN:
        return lambda data: _checked(data, _PLAIN[kind])
    if get_origin(kind) is Literal:
        return lambda data: _one_of(data, get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Value):
        return lambda data: _value(kind, data)
    raise TypeError(f"no reader of {kind}")


def _united(members: frozenset[Any]) -> Any:
    first, *others = members
    for other in others:
        first |= other
    return first


def _held(origin: Any, of: tuple[Any, ...]) -> Read:
    if origin is dict:
        key, inner = map(_reader, of)
        return lambda data: {key(name): inner(each) for name, each in _pairs(data)}
    if origin is tuple and of[-1] is not ...:
        readers = list(map(_reader, of))
        return lambda data: tuple(
            read_one(each) for read_one, each in zip(readers, _checked(data, (list,)), strict=True)
        )
    one = _reader(of[0])
    return lambda data: origin(map(one, _checked(data, (list,))))


def _pairs(data: Any) -> Any:
    return data.items() if isinstance(data, dict) else [_pair(each) for each in _checked(data, (list,))]


def _pair(data: Any) -> Any:
    name, inner = _checked(data, (list,))
    return name, inner


def _checked(data: Any, kinds: tuple[type, ...]) -> Any:
    if type(data) not in kinds:
        raise ValueError(f"{type(data).__name__} where {kinds[0].__name__} is expected")
    return data


def _one_of(data: Any, known: tuple[Any, ...]) -> Any:
    if data not in known:
        raise ValueError(f"none of {', '.join(map(str, known))}")
    return data


@cache
def _fields(kind: type[Value]) -> dict[str, Read]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items() if name in kind.__struct_fields__}


def _value(kind: type[V], data: Any) -> V:
    known = _fields(kind)
    made = {}
    for name, inner in _checked(data, (dict,)).items():
        if name in known:
            try:
                made[name] = known[name](inner)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    try:
        return kind(**made)
    except TypeError as error:  # a field is missing
        raise ValueError(str(error)) from None


class Manifest(Value):
    """A bundle's form, weft's version that made it, the node, and when, in Unix seconds.

    `unseen` says why a text could not be had, by its name.
    """

    form: int
    weft: str
    node: str
    made: float
    unseen: dict[str, str] = field(default_factory=dict)


class Bundle(Value):
    """A node at one moment. `told` is its daemon's history, None if no daemon answered."""

    manifest: Manifest
    sight: Sight
    told: EventsSince | None = None


def files_of(bundle: Bundle, texts: Mapping[str, str]) -> dict[str, bytes]:
    """`texts` are those for people, and have no secrets."""
    made = {MANIFEST: _written(bundle.manifest), _SIGHT: _written(bundle.sight)}
    if bundle.told is not None:
        made[_EVENTS] = _written(bundle.told)
    return made | {name: text.encode(errors="backslashreplace") for name, text in texts.items()}


def bundle_of(files: Mapping[str, bytes], where: str) -> Bundle:
    """Read a bundle, which may be anybody's. Raises `ConfigError` for what is none, or of an unknown form."""
    manifest = _data(files, MANIFEST, where)
    form = manifest.get("form") if isinstance(manifest, dict) else None
    if form != FORM:
        made = f"weft {manifest.get('weft')}" if isinstance(manifest, dict) else "another program"
        hint = f"It was made by {made}; read it with that version"
        raise refused(where, f"a bundle of form {form!r}", expected=f"form {FORM}", hint=hint)
    told = _read(EventsSince, _data(files, _EVENTS, where), f"{where}: {_EVENTS}") if _EVENTS in files else None
    return Bundle(
        manifest=_read(Manifest, manifest, f"{where}: {MANIFEST}"),
        sight=_read(Sight, _data(files, _SIGHT, where), f"{where}: {_SIGHT}"),
        told=told,
    )


def refused(where: str, seen: str, *, expected: str = "a bundle of `weft bundle`", hint: str = "") -> ConfigError:
    return ConfigError(Problem("BUNDLE-001", where, seen, expected=expected, hint=hint))


def _written(value: Value) -> bytes:
    return msgspec.json.format(msgspec.json.encode(secrets.data_without(plain(value))), indent=1)


def _data(files: Mapping[str, bytes], name: str, where: str) -> Any:
    if name not in files:
        raise refused(where, f"there is no {name} in it")
    data = files[name]
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise refused(f"{where}: {name}", f"more than {_MOST_VALUES} values")
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refused(f"{where}: {name}", f"it is no JSON: {error}") from None


def _read(kind: type[V], data: Any, where: str) -> V:
    try:
        return read(kind, data)
    except (ValueError, OverflowError) as error:
        raise refused(where, str(error)) from None
