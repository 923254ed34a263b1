"""Says whether a packet matches what a rule asks: yes, no, or None where nothing here decides. Pure.

The words are those of libnftables-json(5).
"""

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from operator import and_, or_, xor
from typing import Any, Final

from weft.diag.rules.ruleset import UNKNOWN, Name, Ruleset
from weft.diag.rules.xtables import CHANCE, Statement
from weft.model.net import Ip, ip_in
from weft.model.value import Value

ECHO: Final = {4: "icmp", 6: "ipv6-icmp"}  # the protocol of an echo request, by family
SOME_PORT: Final = 40000  # of a client, where any will do (ip_local_port_range)
_PORTS: Final = ("tcp", "udp", "th", "sctp", "dccp", "udplite")
_TRANSPORTS: Final = (*_PORTS, *ECHO.values(), "igmp", "esp", "ah", "comp")
_NUMBERS: Final = {"icmp": 1, "tcp": 6, "udp": 17, "ipv6-icmp": 58, "icmpv6": 58, "sctp": 132}
_COMMENT: Final = "comment"  # the one match of xtables that every packet passes
_TRANSLATED: Final = frozenset(("dnat", "snat"))
_OPERATORS: Final = {"&": and_, "|": or_, "^": xor}
_LIMITS: Final = frozenset(("limit", "quota", "connlimit", "ct count", "meter", UNKNOWN))
# An ICMP packet here is an echo. nft has these names for what neighbours, routers and groups say.
_NO_ECHOES: Final = ("nd-", "mld")


class Packet(Value):
    """A packet at a hook. `state` is connection tracking's word, and `translated` what NAT has done to its connection.

    `size` is its bytes with the IP header, if it must not be fragmented. `iif` and `oif` are empty where a hook has
    none. `kind` is that of its target's address as rules ask for it, `local` or `unicast`, known behind the routing.
    `mark` is None where nothing decides.
    """

    source: Ip
    target: Ip
    protocol: str
    iif: str = ""
    oif: str = ""
    source_port: int = 0
    target_port: int = 0
    state: str = "new"
    kind: str = ""
    mark: int | None = 0
    translated: frozenset[str] = frozenset()
    size: int = 0

    def __str__(self) -> str:
        port = f":{self.target_port}" if self.target_port else ""
        size = f", {self.size} bytes" if self.size else ""
        return f"{self.protocol} {self.source} to {self.target}{port}{size}"


def matches(statement: Statement, packet: Packet, rules: Ruleset, place: Name) -> bool | None:
    """What only acts, every packet passes."""
    kind, said = statement
    if kind == "match":
        return _compared(said, packet, rules, place)
    if kind == "vmap":
        have = value_of(said["key"], packet, rules)
        return have if have is None or have is False else True
    if kind == CHANCE:
        return None
    if kind == "xt" and said.get("type") == "match":
        return True if said.get("name") == _COMMENT else None
    # A set that only counts, as what is remembered of refusals, limits nothing.
    asked = {kind} if kind not in ("set", "map") else {each for inner in said.get("stmt") or () for each in inner}
    return True if asked.isdisjoint(_LIMITS) else None


def value_of(left: Any, packet: Packet, rules: Ruleset) -> Any:
    """What a packet has of what a rule looks at; None if nothing decides, False if it has no such thing."""
    match left:
        case {"payload": {"protocol": str(protocol), "field": str(name)}}:
            return _field(protocol, name, packet)
        case {"concat": [*parts]}:
            found = tuple(value_of(part, packet, rules) for part in parts)
            return False if any(each is False for each in found) else found
        case {"meta": {"key": str(key)}} | {"ct": {"key": "state" as key}}:
            return _about(packet, rules).get(key)
        case {"fib": {"result": "type", "flags": ["daddr"] | "daddr"}}:
            return packet.kind or None
        case {"&": [inner, mask]}:
            return _masked(value_of(inner, packet, rules), mask)
    return None


def _masked(have: Any, mask: Any) -> Any:
    """Of a number or an address."""
    if isinstance(mask, int):
        return have & mask if isinstance(have, int) and have is not False else None
    bits = ip_in(str(mask))
    if bits is None or not isinstance(have, type(bits)):
        return False if have is False else None
    return type(bits)(int(have) & int(bits))


def calculated(value: Any, packet: Packet, rules: Ruleset) -> int | None:
    """What a rule makes of a mark."""
    if isinstance(value, int):
        return value
    for operator, operate in _OPERATORS.items():
        parts = value.get(operator) if isinstance(value, dict) else None
        if parts is not None and isinstance(parts[1], int):
            have = calculated(parts[0], packet, rules)
            return None if have is None else operate(have, parts[1])
    have = value_of(value, packet, rules)
    return have if isinstance(have, int) else None


def looked_up(said: Mapping[str, Any], packet: Packet, rules: Ruleset, place: Name) -> list[tuple[Any, bool]]:
    """What a map has for a packet, each with whether that is in doubt. By chance there may be several."""
    key, data = said["key"], said["data"]
    pairs = rules.sets.get((*place[:2], data[1:])) if isinstance(data, str) else data.get("set", [])
    if "numgen" in key:
        return [(value, False) for _, value in pairs or ()]
    have = value_of(key, packet, rules)
    if have is False or pairs is None:
        return [(None, pairs is None)]
    met = [(value, None if have is None else is_one_of(have, each, rules, place)) for each, value in pairs]
    certain = [value for value, found in met if found]
    if certain:
        return [(certain[0], False)]
    possible = [(value, True) for value, found in met if found is None]
    return [*possible, (None, bool(possible))]


def _about(packet: Packet, rules: Ruleset) -> dict[str, Any]:
    return {
        "state": packet.state,
        "mark": None if rules.marks else packet.mark,
        "iif": packet.iif,
        "iifname": packet.iif,
        "oif": packet.oif,
        "oifname": packet.oif,
        "l4proto": packet.protocol,
        "nfproto": f"ipv{packet.source.version}",
        "length": packet.size or None,
    }


def _field(protocol: str, name: str, packet: Packet) -> Any:
    if protocol in ("ip", "ip6"):
        if packet.source.version != (4 if protocol == "ip" else 6):
            return False
        named = {"saddr": packet.source, "daddr": packet.target, "protocol": packet.protocol}
        return named.get(name, packet.protocol if name == "nexthdr" else None)
    protocol = ECHO[6] if protocol == "icmpv6" else protocol
    if protocol not in ("th", packet.protocol):
        return False if protocol in _TRANSPORTS and packet.protocol in _TRANSPORTS else None
    if protocol in _PORTS:
        return {"sport": packet.source_port or None, "dport": packet.target_port or None}.get(name)
    if name == "type" and protocol in ECHO.values():
        return "echo-request" if packet.state == "new" else "echo-reply"
    return None


def _compared(said: Mapping[str, Any], packet: Packet, rules: Ruleset, place: Name) -> bool | None:
    operator, right = said.get("op", "=="), said["right"]
    if said["left"] == {"ct": {"key": "status"}}:
        asked = set(right) if isinstance(right, list) else {right}
        met = not asked.isdisjoint(packet.translated)
        return met != (operator == "!=") if asked <= _TRANSLATED else None
    have = value_of(said["left"], packet, rules)
    if have is None or have is False:
        return have
    if operator in ("==", "in", "!="):
        found = is_one_of(have, right, rules, place)
        return found if found is None or operator != "!=" else not found
    if isinstance(have, int) and isinstance(right, int):
        return {"<": have < right, ">": have > right, "<=": have <= right, ">=": have >= right}.get(operator)
    return None


def is_one_of(have: Any, right: Any, rules: Ruleset, place: Name) -> bool | None:
    """The right side is one value, a range, a set or a set's name."""
    if isinstance(right, str) and right.startswith("@"):
        right = rules.sets.get((place[0], place[1], right[1:]))
    elif isinstance(right, dict) and "set" in right:
        right = right["set"]
    if isinstance(right, list):
        found = [_is(have, each) for each in right]
        return True if True in found else None if None in found else False
    return _is(have, right)


def _is(have: Any, right: Any) -> bool | None:
    """The right side has as many parts as there are fields looked at."""
    if isinstance(right, dict) and "elem" in right:
        return _is(have, right["elem"]["val"])
    if not isinstance(have, tuple):
        return _equals(have, right)
    parts = right["concat"] if isinstance(right, dict) else ()
    found = [None if each is None else _equals(each, part) for each, part in zip(have, parts, strict=False)]
    return False if False in found else None if None in found or not found else True


def _equals(have: Any, right: Any) -> bool | None:
    match right:
        case {"prefix": {"addr": str(address), "len": int(length)}}:
            return None if isinstance(have, str | int) else have in _network(f"{address}/{length}")
        case {"range": [low, high]}:
            return _within(have, low, high)
        case str(text):
            return _is_text(have, text)
        case int(number):
            return number == (_NUMBERS.get(have, -1) if isinstance(have, str) else have)
    return None


@lru_cache(maxsize=1 << 16)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text, strict=False)


def _is_text(have: Any, text: str) -> bool | None:
    """Compare with a name, which may end in `*`, or with an address."""
    if isinstance(have, str):
        found = have.startswith(text[:-1]) if text.endswith("*") else have == text
        return found or _NUMBERS.get(have) == _NUMBERS.get(text, -1)
    address = ip_in(text)
    return None if address is None else bool(have == address)


def _within(have: Any, low: Any, high: Any) -> bool | None:
    if isinstance(have, int) and isinstance(low, int):
        return bool(low <= have <= high)
    if isinstance(have, str) and all(str(end).startswith(_NO_ECHOES) for end in (low, high)):
        return False
    ends = ip_in(str(low)), ip_in(str(high))
    if isinstance(have, str | int) or ends[0] is None or ends[1] is None:
        return None
    return have.version == ends[0].version and int(ends[0]) <= int(have) <= int(ends[1])
