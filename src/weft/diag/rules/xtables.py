"""Puts each match and target of iptables into nft's words: nft shows its name alone, iptables-save the rest. Pure.

It knows what kube-proxy's and portmap's rules need. A rule that asks one thing twice stays unknown.
"""

import re
from collections.abc import Callable
from typing import Any, Final

Statement = tuple[str, Any]

CHANCE: Final = "chance"  # a match that comes true now and then

# Targets behind which the next rule is asked. Others may end their chain (NFQUEUE), or translate.
_GO_ON: Final = frozenset(
    (
        *("LOG", "NFLOG", "MARK", "CONNMARK", "TCPMSS", "CT", "NOTRACK", "CHECKSUM", "DSCP", "TOS", "CLASSIFY"),
        *("TRACE", "SET", "SECMARK", "TTL", "HL", "RATEEST", "AUDIT", "LED"),
    )
)

_STATE: Final = re.compile(r"(! )?--ctstate ([A-Z,]+)")
_STATES: Final = frozenset(("new", "established", "related", "invalid", "untracked"))  # not DNAT and SNAT
_MARK: Final = re.compile(r"-m mark (! )?--mark (\w+)(?:/(\w+))?")
# The kind of a target's address, where nothing else of addrtype is asked.
_KIND: Final = re.compile(r"-m addrtype (! )?--dst-type ([A-Z]+)(?= -[jmg] |$)")
_NO_PORT: Final = re.compile(r"-m (tcp|udp) -[jm]")
_SET_MARK: Final = re.compile(r"--set-xmark (\w+)/(\w+)")
# Behind an IPv6 address a port stands only where that is in brackets.
_TO: Final = re.compile(
    r"--to-(?:destination|source) (?:(?P<v4>\d+(?:\.\d+){3})(?::(?P<port>\d+))?"
    r"|\[(?P<v6>[0-9a-fA-F.:]+)\]:(?P<port6>\d+)|(?P<alone>[0-9a-fA-F.:]*:[0-9a-fA-F.:]*))(?: |$)"
)
_TO_PORT: Final = re.compile(r"--to-ports (\d+)(?: |$)")
_ALL: Final = 0xFFFFFFFF
_MARK_OF: Final = {"meta": {"key": "mark"}}


def known(kind: str, name: str, line: str) -> Statement | None:
    """Return a match or a target (`kind`) of a rule from its line of iptables-save; None if it isn't known."""
    if kind == "target":
        return _target(name, line)
    read = _MATCHES.get(name)
    return None if read is None or line.count(f"-m {name} ") > 1 else read(line)


def may_end(statement: Statement) -> bool:
    """True of an unknown target, behind which the next rule may not be asked."""
    kind, said = statement
    return kind == "xt" and said.get("type") == "target" and said.get("name") not in _GO_ON


def _state(line: str) -> Statement | None:
    found = _STATE.search(line)
    states = [] if found is None else found[2].lower().split(",")
    if found is None or line.count("--ct") > 1 or not _STATES.issuperset(states):
        return None
    return _match({"ct": {"key": "state"}}, states, "!=" if found[1] else "in")


def _mark(line: str) -> Statement | None:
    found = _MARK.search(line)
    if found is None:
        return None
    mask = _ALL if found[3] is None else int(found[3], 0)
    return _match({"&": [_MARK_OF, mask]}, int(found[2], 0), "!=" if found[1] else "==")


def _kind(line: str) -> Statement | None:
    found = _KIND.search(line)
    if found is None:
        return None
    asked = {"fib": {"result": "type", "flags": ["daddr"]}}
    return _match(asked, found[2].lower(), "!=" if found[1] else "==")


def _protocol(line: str) -> Statement | None:
    found = _NO_PORT.search(line)
    return None if found is None else _match({"meta": {"key": "l4proto"}}, found[1], "==")


_MATCHES: Final[dict[str, Callable[[str], Statement | None]]] = {
    "conntrack": _state,
    "mark": _mark,
    "addrtype": _kind,
    "statistic": lambda _: (CHANCE, None),
    "tcp": _protocol,
    "udp": _protocol,
}


def _target(name: str, line: str) -> Statement | None:
    match name:
        case "MARK" if found := _SET_MARK.search(line):
            value, mask = int(found[1], 0), int(found[2], 0)
            kept = {"&": [_MARK_OF, ~mask & _ALL]}
            return "mangle", {"key": _MARK_OF, "value": {"^": [kept, value]}}
        case "DNAT" | "SNAT" if found := _TO.search(line):
            port = found["port"] or found["port6"]
            address = found["v4"] or found["v6"] or found["alone"]
            return name.lower(), {"addr": address, **({} if port is None else {"port": int(port)})}
        case "REDIRECT" if "--to-ports" not in line:
            return "redirect", None
        case "REDIRECT" if found := _TO_PORT.search(line):
            return "redirect", {"port": int(found[1])}
        case "MASQUERADE":
            return "masquerade", None
    return None


def _match(left: Any, right: Any, operator: str) -> Statement:
    return "match", {"op": operator, "left": left, "right": right}
