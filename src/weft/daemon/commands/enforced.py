"""What `weft policy denied` and `weft policy list` look at: the kernel's tables, and a daemon, if one runs.

It knows the names of pods elsewhere, and why policies are not in effect.
"""

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Final

from weft.desired.policy import refusals
from weft.desired.policy.refusals import Held, PodsHere, Refusal, Refused
from weft.kernel import daemons
from weft.kernel.netfilter import refused
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.model.errors import Problem, Unavailable
from weft.model.kernel.policytable import INET
from weft.model.node.nodestate import PoliciesTold
from weft.model.node.status import POLICIES
from weft.screen.documents import watched

_LOOK_SECONDS: Final = 1.0


def look() -> Refused:
    """Raises `Unavailable` where no table is."""
    held = _held()
    names = dict[str, str]()
    for name in daemons.living():
        with suppress(Unavailable):  # one that enforces none, or that stops
            names |= daemons.pods_at(name, refusals.addresses(held))
    return refusals.refused(held, names)


def here() -> PodsHere:
    """Raises `Unavailable` where no table is."""
    held, problems, told = _held(), list[Problem](), None
    for name, said in _enforcing():
        told = said
        with suppress(Unavailable, KeyError):  # one that stops, or with which all is well
            problems.append(daemons.health(name).troubles[POLICIES])
    return refusals.here(held, problems, told)


def told_here() -> PoliciesTold | None:
    """What this node's weftd says; None where none enforces policies, and for those whom it does not answer."""
    return None if os.geteuid() else next((told for _, told in _enforcing()), None)


def _enforcing() -> Iterator[tuple[str, PoliciesTold]]:
    """The daemons that enforce policies, by their names, and what each says of them."""
    for name in daemons.living():
        with suppress(Unavailable):  # one that enforces none, or stops
            yield name, daemons.policies(name)


def _held() -> Held:
    try:
        with closing(NfSocket.open()) as nf:
            held = refused.look(nf)
    except OSError as error:
        raise Unavailable(Problem("KERN-001", "nf_tables", f"cannot be asked: {error.strerror}")) from None
    if held is None:
        hint = "Start weftd with --network-policy=enforce, or audit"
        seen = "is not there: weft enforces no policies here"
        raise Unavailable(Problem("POL-001", f"table {INET}", seen, hint=hint))
    return held


def following(seen: Refused) -> Iterator[tuple[Refusal, bool]]:
    """The latest, then what is refused from now on; whether it is an audit."""
    for each in reversed(list(islice(seen.flows, 10))):
        yield each, seen.audit
    for now in watched(look, _LOOK_SECONDS):
        for each, _ in refusals.grown(seen, now):
            yield each, now.audit
        seen = now
