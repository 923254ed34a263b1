"""macspoofchk: frames from a pod with another source MAC than its own are dropped (cni.md §3.6).

Names and comments are upstream's. The rules are written and read as JSON, which quotes whatever an interface may be
called.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from weft.cni.host import programs
from weft.model.attachment import Attachment
from weft.wire.cni import CniError, failure

_BASE: Final = "PREROUTING"
_TABLE: Final = {"family": "bridge", "table": "nat"}
_HOOK: Final = {"type": "filter", "hook": "prerouting", "prio": -300, "policy": "accept"}
# What nft allows (NFTNL_UDATA_COMMENT_MAXLEN); longer ids are told apart by the chains' names.
_LONGEST_COMMENT: Final = 128
# Of one attachment, in its two chains.
_RULES: Final = 3

_Command = dict[str, Any]


def add(attachment: Attachment, veth: str, mac: str) -> None:
    chain = _chain_of(attachment)
    checks = f"{chain}-mac"
    from_here = {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": veth}}
    own_mac = {"match": {"op": "==", "left": {"payload": {"protocol": "ether", "field": "saddr"}}, "right": mac}}
    commands: list[_Command] = [
        {"add": {"table": {"family": "bridge", "name": "nat"}}},
        {"add": {"chain": {**_TABLE, "name": _BASE, **_HOOK}}},
        *({"add": {"chain": {**_TABLE, "name": name}}} for name in (chain, checks)),
        # Rules of an attachment of this name that nobody has removed.
        *({"flush": {"chain": {**_TABLE, "name": name}}} for name in (chain, checks)),
        _rule(attachment, _BASE, from_here, {"jump": {"target": chain}}),
        _rule(attachment, chain, {"jump": {"target": checks}}),
        _rule(attachment, checks, own_mac, {"return": None}),
        _rule(attachment, checks, {"drop": None}),
    ]
    try:
        _commit(commands)
    except CniError as error:
        raise error.within("failed to setup spoof-check: ") from error


def remove(attachments: Iterable[Attachment]) -> None:
    chains = {f"{chain}{suffix}" for chain in map(_chain_of, attachments) for suffix in ("", "-mac")}
    programs.settle(lambda: _removals(_list(), chains), _commit)


def _removals(listed: list[_Command], chains: set[str]) -> list[_Command]:
    rules = [
        {"delete": {"rule": {**_TABLE, "chain": _BASE, "handle": rule["handle"]}}}
        for rule in _of_kind(listed, "rule")
        if rule.get("chain") == _BASE and not chains.isdisjoint(_targets(rule))
    ]
    present = [chain["name"] for chain in _of_kind(listed, "chain") if chain.get("name") in chains]
    # A chain that another one jumps to cannot go before it: the one with the jump has the shorter name.
    return [*rules, *({"delete": {"chain": {**_TABLE, "name": name}}} for name in sorted(present, key=len))]


def is_there(attachment: Attachment) -> bool:
    chain = _chain_of(attachment)
    rules = list(_of_kind(_list(), "rule"))
    jumps = any(rule.get("chain") == _BASE and chain in _targets(rule) for rule in rules)
    return jumps and sum(rule.get("chain") in (chain, f"{chain}-mac") for rule in rules) == _RULES


def _chain_of(attachment: Attachment) -> str:
    return f"cni-br-iface-{attachment.container_id}-{attachment.ifname}"


def _rule(attachment: Attachment, chain: str, *expressions: _Command) -> _Command:
    whole = f"macspoofchk-{attachment.container_id}-{attachment.ifname}".encode("utf-8", "replace")
    comment = whole[:_LONGEST_COMMENT].decode("utf-8", "ignore")
    return {"add": {"rule": {**_TABLE, "chain": chain, "expr": expressions, "comment": comment}}}


def _targets(rule: _Command) -> set[str]:
    return {one["jump"]["target"] for one in rule.get("expr", ()) if "jump" in one}


def _of_kind(listed: list[_Command], kind: str) -> Iterator[_Command]:
    for item in listed:
        found = item.get(kind)
        if found is not None and found.get("table") == _TABLE["table"]:
            yield found


def _list() -> list[_Command]:
    # Of the whole family: it is no error that our table is not there.
    text = programs.run("nft", "-j", "-a", "list", "ruleset", "bridge")
    try:
        listed: list[_Command] = json.loads(text)["nftables"]
    except (ValueError, KeyError) as error:
        raise failure(f"nft: its list cannot be read: {error}") from error
    return listed


def _commit(commands: Sequence[_Command]) -> None:
    programs.run("nft", "-j", "-f", "-", stdin=json.dumps({"nftables": commands}))
