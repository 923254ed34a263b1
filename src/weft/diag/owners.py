"""Whose a chain is that drops packets of pods, and what has that program accept them. Pure.

An accept elsewhere does not help: each chain of a hook is asked, and one that drops is enough. So its owner must accept
them, by its own means, which outlive its next start.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from weft.diag.finding import Command
from weft.diag.rules.ruleset import Name
from weft.model.net import Net
from weft.model.value import Value

POLICY_TABLE: Final = "weft-policy"  # what NetworkPolicies refuse is meant so
_DOCKERS: Final = "DOCKER-USER"  # Docker leaves it to the user, and asks it before all else


# How tables and chains are called of programs that enforce policies beside another network.
_ENFORCERS: Final = {
    name: re.compile(theirs, re.IGNORECASE)
    for name, theirs in (
        ("kube-network-policies or kindnet", r"network-polic"),
        ("Calico", r"\bcali-"),
        ("kube-router, which k3s has built in", r"\bKUBE-(?:ROUTER|NWPLCY|POD-FW)\b"),
        ("Cilium", r"\bCILIUM_"),
        ("Antrea", r"\bANTREA\b"),
        ("Azure's NPM", r"\bAZURE-NPM\b"),
        ("Romana", r"\bROMANA-"),
        ("Weave Net's NPC", r"\bWEAVE-NPC"),
    )
}


class Owner(Value):
    """A program. `mends` are its commands that have it forward packets of pod networks; `hint` says it to people."""

    name: str
    hint: str
    mends: Callable[[Iterable[Net]], tuple[Command, ...]]


def owner_of(chains: Iterable[Name], place: Name) -> Owner | None:
    """A chain of iptables' own belongs to the program whose chains, among `chains`, are asked from there."""
    family, table, chain = place
    if table == POLICY_TABLE:
        return POLICIES
    beside = {name for one, other, name in chains if (one, other) == (family, table)}
    if (
        table == "firewalld"
        or chain.startswith(("FWD", "FORWARD_"))
        or (_is_shared(place) and "FORWARD_direct" in beside)
    ):
        return FIREWALLD
    if chain.startswith("DOCKER") or (_is_shared(place) and _DOCKERS in beside):
        return _DOCKER
    if chain.startswith("ufw") or (_is_shared(place) and any(name.startswith("ufw") for name in beside)):
        return _UFW
    return None


def refusal(chains: Iterable[Name], place: Name | None) -> tuple[str, str]:
    """The code of what a chain drops that a packet meets, and what helps."""
    owner = None if place is None else owner_of(chains, place)
    if owner is POLICIES:
        return "FW-002", POLICIES.hint
    whose = "the program that made it" if owner is None else owner.name
    return "FW-001" if owner is FIREWALLD else "FW-002", f"Have {whose} accept this; an accept elsewhere does not help"


def enforcer_in(text: str) -> str:
    """The program that enforces policies and has tables or chains of these names; empty for none that is known."""
    return next((name for name, theirs in _ENFORCERS.items() if theirs.search(text)), "")


def _is_shared(place: Name) -> bool:
    return place[1:] in (("filter", "FORWARD"), ("filter", "INPUT"))


def _by_firewalld(networks: Iterable[Net]) -> tuple[Command, ...]:
    """Now and for good, one by one: a reload would remove what other programs have added since the boot."""
    return tuple(
        Command(
            ("firewall-cmd", *when, "--zone=trusted", f"--add-source={network}"),
            f"has firewalld trust {network}, which may then reach all ports of this node, too",
        )
        for network in networks
        for when in ((), ("--permanent",))
    )


def _by_docker(networks: Iterable[Net]) -> tuple[Command, ...]:
    return tuple(
        Command(
            ("iptables" if network.version == 4 else "ip6tables", "-I", _DOCKERS, side, str(network), "-j", "ACCEPT"),
            f"accepts what is forwarded {'from' if side == '-s' else 'to'} {network}, until the next boot",
        )
        for network in networks
        for side in ("-s", "-d")
    )


def _by_ufw(networks: Iterable[Net]) -> tuple[Command, ...]:
    return tuple(
        Command(("ufw", "route", "allow", side, str(network)), f"has ufw forward what is {side} {network}")
        for network in networks
        for side in ("from", "to")
    )


FIREWALLD: Final = Owner(name="firewalld", hint="Have firewalld trust the pod network", mends=_by_firewalld)
_DOCKER: Final = Owner(
    name="Docker",
    hint='Docker sets the policy to DROP: have its chain for users accept the pod network, or say "iptables": false'
    " in /etc/docker/daemon.json",
    mends=_by_docker,
)
_UFW: Final = Owner(name="ufw", hint="Have ufw route the pod network's packets", mends=_by_ufw)
POLICIES: Final = Owner(
    name="weftd's network policies",
    hint="'weft policy explain A B' says why, and what would allow it. A pod that nobody knows is refused all",
    mends=lambda _: (),
)
