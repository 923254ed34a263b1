"""Where it is seen that a node drops packets: the kernel's monitor where it has one, else counters."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Final, Protocol

from weft.desired.policy import refusals
from weft.desired.policy.refusals import Refusal, Refused
from weft.diag.drops.loss import Loss, Whose, losses_of, told
from weft.diag.owners import POLICY_TABLE
from weft.diag.rules.matching import Packet
from weft.diag.sight.look import Places, look
from weft.diag.trace.bothways import entry_of
from weft.diag.trace.grown import difference
from weft.diag.trace.predict import follow
from weft.diag.trace.sending import counters_there
from weft.kernel.dropmonitor import Monitor
from weft.kernel.netfilter import refused
from weft.kernel.netfilter.nfnetlink import NFPROTO, NfSocket
from weft.model.errors import Problem
from weft.model.kernel.nftset import Table

_LOOK_AGAIN: Final = 10.0  # seconds: a look takes some tenths of one
_REST: Final = 10  # times what a look takes, which with ten thousand rules is seconds
_UNHEARD: Final = "more came at once than the kernel keeps and weft reads, of this node's packets of any kind"


class Source(Protocol):
    def losses(self) -> Iterator[Loss]:
        """What was dropped since the last call."""
        ...


class _Seen:
    """The node as it was last looked at; again after a while."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._look()

    def _look(self) -> None:
        began = time.monotonic()
        self.whose = Whose(look(self._places))
        ended = time.monotonic()
        self._again = ended + max(_LOOK_AGAIN, _REST * (ended - began))
        self._foretold = dict[Packet, Problem | None]()  # of kinds that were shown since: some hundreds

    def refresh(self) -> None:
        if time.monotonic() > self._again:
            self._look()

    def problem(self, packet: Packet) -> Problem | None:
        """What a look at the node says that drops such packets, None for nothing."""
        self.refresh()
        if packet not in self._foretold:
            way = follow(self.whose.sight, packet, entry_of(self.whose.sight, packet))
            self._foretold[packet] = way.problem if way.end == "dropped" else None
        return self._foretold[packet]


class Told:
    """By the kernel's monitor: each packet, why and where."""

    def __init__(self, places: Places, monitor: Monitor) -> None:
        self._monitor, self._seen = monitor, _Seen(places)
        self._unheard = monitor.unheard()

    def losses(self) -> Iterator[Loss]:
        self._monitor.renew()
        yield from told(self._monitor.take(), self._seen.whose, self._seen.problem)
        before, self._unheard = self._unheard, self._monitor.unheard()
        if self._unheard > before:
            yield Loss(reason="unheard", count=self._unheard - before, words=_UNHEARD)


class Counted:
    """By counters of the kernel, of rules, and of what policies refuse; without whose packets it was, mostly."""

    def __init__(self, places: Places) -> None:
        self._seen = _Seen(places)
        self._before = self._counters()
        self._rules = self._dropped_by_rules()
        self._refused = _refusals()

    def losses(self) -> Iterator[Loss]:
        self._seen.refresh()
        now, rules, denied = self._counters(), self._dropped_by_rules(), _refusals()
        yield from losses_of(difference(self._before, now), self._seen.whose)
        for where, count in difference(self._rules, rules).items():
            yield Loss(reason="rule", count=count, code="FW-002", words="a rule of the packet filter", rule=where)
        if denied is not None and not denied.audit:
            yield from (_of_policy(each) for each in refusals.grown(self._refused, denied))
        self._before, self._rules, self._refused = now, rules, denied

    def _counters(self) -> dict[str, int]:
        with counters_there() as read:
            return read()

    def _dropped_by_rules(self) -> Mapping[str, int]:
        """What rules of others have counted that drop; `_refusals` has those of policies."""
        found = dict[str, int]()
        with suppress(OSError), closing(NfSocket.open()) as nf:
            tables = {chain[:2] for chain in self._seen.whose.sight.rules.chains}
            for family, name in sorted(each for each in tables if each[0] in NFPROTO and each[1] != POLICY_TABLE):
                for number, rule in enumerate(nf.rules(Table(family=family, name=name)), 1):
                    if rule.leads == "drop":
                        found[f"rule {number} of {family} {name}, in chain {rule.chain}"] = rule.packets
        return found


def _refusals() -> Refused | None:
    with suppress(OSError), closing(NfSocket.open()) as nf:
        held = refused.look(nf)
        return None if held is None else refusals.refused(held, {})
    return None


def _of_policy(each: Refusal) -> Loss:
    return Loss(
        reason="policy",
        protocol=each.protocol,
        source=each.source,
        target=each.target,
        port=each.port,
        pod=each.source_pod or each.target_pod,
        words="a network policy refuses them",
        rule=", ".join(each.policies),
    )
