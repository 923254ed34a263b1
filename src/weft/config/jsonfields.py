"""Reads a JSON object as Go's `encoding/json` does (flannel.md §2.1), strictly, with all errors at once.

Keys match in any case, the last of several wins, `null` changes nothing. A value of the wrong kind is a problem and
reads as absent.
"""

import json
import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final, TypeVar

from weft.config.goflags import did_you_mean
from weft.model import keyed
from weft.model.errors import ConfigError, Problem
from weft.model.value import Value

T = TypeVar("T")
V = TypeVar("V", bound=Value)

CODE: Final = "CONF-002"
_SHOWN: Final = 60
# net.ParseCIDR: an address, a slash and a decimal length; Python alone would take a netmask or nothing as well.
_CIDR: Final = re.compile(r"[0-9A-Fa-f:.]+/[0-9]{1,3}", re.ASCII)


class _Object(list[tuple[str, Any]]):
    """All members of a JSON object in the order of the text, with duplicates."""


class _NotJson(Exception):
    """Python takes `NaN` and `Infinity`, JSON does not."""


def decode(text: str, where: str) -> Any:
    """`ConfigError` names line and column. Objects come as `Fields` takes them."""
    try:
        return json.loads(text, object_pairs_hook=_Object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place, seen = f"{where}: line {error.lineno}, column {error.colno}", error.msg
        if error.msg == "Extra data":
            seen = "more text after the end of the object"  # which is not shown: it may hold a key
    except RecursionError:
        place, seen = where, "too many nested brackets"
    except _NotJson as error:
        place, seen = where, str(error)
    except ValueError:
        place, seen = where, "a number of thousands of digits"
    raise ConfigError(Problem(code=CODE, where=place, seen=seen, expected="one JSON object"))


def _refuse_constant(name: str) -> None:
    raise _NotJson(f"{name} is not JSON")


def shown(value: Any, *, quote: bool = True) -> str:
    """A value for people: short, on one line, in ASCII."""
    if isinstance(value, list):
        return "an object" if isinstance(value, _Object) else "an array"
    text = json.dumps(value) if quote else json.dumps(value)[1:-1]
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


class Fields:
    """One object: typed reads of its keys, and `problems` with what could not be read.

    Messages put `prefix` before keys (`Backend.`). Null is an empty object; anything else is a problem, and no object.
    """

    def __init__(self, value: Any, where: str, problems: list[Problem], *, prefix: str = "") -> None:
        self.is_object = value is None or isinstance(value, _Object)
        self._where = where
        self._prefix = prefix
        self._problems = problems
        self._known: dict[str, str] = {}
        self._members: dict[str, tuple[str, list[Any]]] = {}
        self._ignored: list[str] = []
        if isinstance(value, _Object):
            for key, member in value:
                # Go folds case by Unicode's simple folding; for the letters of our keys casefold is the same.
                _, members = self._members.setdefault(key.casefold(), (key, []))
                members.append(member)
        elif not self.is_object:
            name = f"{where}: {prefix.removesuffix('.')}" if prefix else where
            problems.append(Problem(code=CODE, where=name, seen=shown(value), expected="a JSON object"))

    def problem(self, key: str, seen: str, *, expected: str = "", hint: str = "") -> None:
        where = f"{self._where}: {self._prefix}{key}"
        self._problems.append(Problem(code=CODE, where=where, seen=seen, expected=expected, hint=hint))

    def last(self, key: str) -> tuple[bool, Any]:
        """Tell whether `key` occurs, and its last value, which may be null."""
        self._known[key.casefold()] = key
        _, members = self._members.get(key.casefold(), (key, []))
        return bool(members), members[-1] if members else None

    def read(self, kind: type[V]) -> V:
        """Booleans and integers, by the keys of a value's fields (`weft.model.keyed`)."""
        found: dict[str, Any] = {}
        for field in keyed.fields(kind):
            key: Any = field.sources[0]
            if field.type is bool:
                found[field.name] = self.boolean(key.name, default=field.default)
            else:
                found[field.name] = self.integer(key.name, field.default, low=key.least, high=key.most)
        return kind(**found)

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self._value(key, bool, "true or false")
        return default if value is None else bool(value)

    def integer(self, key: str, default: int, *, low: int, high: int) -> int:
        """From `low` to `high`, both inclusive; `1.0` and `1e0` are no integers."""
        expected = f"a whole number from {low} to {high}"
        value = self._value(key, int, expected)
        if value is None:
            return default
        if not low <= value <= high:
            self.problem(key, shown(value), expected=expected)
            return default
        return int(value)

    def text(self, key: str) -> str | None:
        value = self._value(key, str, "a text")
        return None if value is None else str(value)

    def words(self, key: str) -> str | tuple[str, ...] | None:
        """A string, or an array of strings."""
        value = self.last(key)[1]
        if type(value) is not list:
            return self.text(key)
        if value and all(type(word) is str for word in value):
            return tuple(value)
        self.problem(key, shown(value), expected="a text, or an array of texts")
        return None

    def network4(self, key: str) -> IPv4Network | None:
        """Host bits are cleared."""
        return self._parsed(key, _network4, "an IPv4 network such as 10.244.0.0/16")

    def network6(self, key: str) -> IPv6Network | None:
        """Host bits are cleared; IPv4-mapped ones are refused (Q-10)."""
        return self._parsed(key, _network6, "an IPv6 network such as fd00:10:244::/48")

    def address4(self, key: str) -> IPv4Address | None:
        return self._parsed(key, IPv4Address, "an IPv4 address")

    def address6(self, key: str) -> IPv6Address | None:
        """Without a zone."""
        return self._parsed(key, _address6, "an IPv6 address")

    def unknown(self) -> Iterable[Problem]:
        """A problem for each key that nothing has read, with a guess at what was meant."""
        for folded, (key, _) in self._members.items():
            if folded not in self._known:
                name = shown(f"{self._prefix}{key}", quote=False)
                hint = did_you_mean(key, self._known.values(), prefix=self._prefix)
                yield Problem(code=CODE, where=f"{self._where}: {name}", seen="an unknown key", hint=hint)

    def warnings(self) -> Iterable[str]:
        """Which keys are ignored, and which value of a repeated key counts."""
        for problem in self.unknown():
            yield f"{problem.where} is no known key and is ignored. {problem.hint}".rstrip()
        for folded, (_, members) in self._members.items():
            known = self._known.get(folded)
            if known is not None and len(members) > 1:
                yield f"{self._where}: {self._prefix}{known} stands there {len(members)} times; the last one counts"
        yield from self._ignored

    def ignored(self, key: str, why: str) -> None:
        """Read a key that has no use here; `why` is a verb."""
        if self.last(key)[0]:
            self._ignored.append(f"{self._prefix}{key} {why} and is ignored")

    def _value(self, key: str, kind: type, expected: str) -> Any:
        """The last value that is not null, if all are of the kind."""
        self.last(key)
        _, members = self._members.get(key.casefold(), (key, []))
        value = None
        for member in members:
            if member is None:
                continue
            if type(member) is not kind:  # not isinstance: to Python a bool is an int
                self.problem(key, shown(member), expected=expected)
                return None
            value = member
        return value

    def _parsed(self, key: str, parse: Callable[[str], T], expected: str) -> T | None:
        text = self._value(key, str, f"{expected}, in quotes")
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError:
            self.problem(key, shown(text), expected=expected)
            return None


def _network4(text: str) -> IPv4Network:
    return IPv4Network(_cidr(text), strict=False)


def _network6(text: str) -> IPv6Network:
    network = IPv6Network(_cidr(text), strict=False)
    if network.network_address.ipv4_mapped is not None:
        raise ValueError(text)
    return network


def _address6(text: str) -> IPv6Address:
    address = IPv6Address(text)
    if address.scope_id is not None or address.ipv4_mapped is not None:
        raise ValueError(text)
    return address


def _cidr(text: str) -> str:
    if not _CIDR.fullmatch(text):
        raise ValueError(text)
    return text
