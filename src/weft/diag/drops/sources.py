"""Where it is seen that a node drops packets: the kernel's monitor where it has one, else counters."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Protocol

from weft.desired.policy import refusals
from weft.desired.policy.refusals import Refusal, Refused
from weft.diag.drops.loss import Loss, Whose, losses_of, told
from weft.diag.owners import POLICY_TABLE
from weft.diag.rules.matching import Packet
from weft.diag.rules.ruleset import Name, Ruleset
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

    def __init__(self, places: Places, generation: Callable[[], int] = int) -> None:
        """`generation` gives the number of the rules' state, which changes with them."""
        self._places, self._generation = places, generation
        self._look()

    def _look(self) -> None:
        began = time.monotonic()
        self.generation = self._generation()
        self.whose = Whose(look(self._places))
        self.dropping = _dropping(self.whose.sight.rules)
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
    """By counters of the kernel, of rules, and of what policies refuse; without whose packets it was, mostly.

    To read all rules of a node of many Services takes tenths of a second. So each time only the chains are read that
    have a rule which counts and drops. Which these are is looked for when rules have changed, and whose addresses are
    which when something was dropped. `close` it: it holds a socket, None without nf_tables.
    """

    def __init__(self, places: Places) -> None:
        self._nf: NfSocket | None = None
        with suppress(OSError):
            self._nf = NfSocket.open()
        self._seen = _Seen(places, self._generation)
        self._counters = _counters()
        self._rules = self._dropped_by_rules()
        self._flows = dict[tuple[str, bytes], int]()
        self._refused: Refused | None = None
        list(self._refusals())

    def close(self) -> None:
        if self._nf is not None:
            self._nf.close()

    def losses(self) -> Iterator[Loss]:
        before, self._counters = self._counters, _counters()
        grown = difference(before, self._counters)
        if grown or self._generation() != self._seen.generation:
            self._seen.refresh()
        yield from losses_of(grown, self._seen.whose)
        counted, self._rules = self._rules, self._dropped_by_rules()
        for where, count in difference(counted, self._rules).items():
            yield Loss(reason="rule", count=count, code="FW-002", words="a rule of the packet filter", rule=where)
        for each, count in self._refusals():
            yield _of_policy(each, count)

    def _generation(self) -> int:
        with suppress(OSError):
            return 0 if self._nf is None else self._nf.generation()
        return 0

    def _dropped_by_rules(self) -> dict[str, int]:
        """What rules of others have counted that drop; `_refusals` has those of policies."""
        found = dict[str, int]()
        if self._nf is None:
            return found
        with suppress(OSError):
            for family, name, chain in self._seen.dropping:
                for rule in self._nf.rules(Table(family=family, name=name), chain):
                    if rule.leads == "drop":
                        found[f"rule of {family} {name} {chain} (handle {rule.handle})"] = rule.packets
        return found

    def _refusals(self) -> Iterator[tuple[Refusal, int]]:
        """What policies have refused since the last call, in an audit nothing."""
        if self._nf is None:
            return
        with suppress(OSError):
            flows = {(each.set, each.key): each.packets for each in refused.flows(self._nf)}
            more = any(count > self._flows.get(which, 0) for which, count in flows.items())
            self._flows = flows
            if more and (held := refused.look(self._nf)) is not None:
                before, self._refused = self._refused, refusals.refused(held, {})
                if not self._refused.audit:
                    yield from refusals.grown(before, self._refused)


def _counters() -> dict[str, int]:
    with counters_there() as read:
        return read()


def _dropping(rules: Ruleset) -> list[Name]:
    """The chains, but of policies, that have a rule which counts and drops."""
    return [
        place
        for place, chain in rules.chains.items()
        if place[0] in NFPROTO
        and place[1] != POLICY_TABLE
        and any({"counter", "drop"} <= {kind for kind, _ in rule.statements} for rule in chain.rules)
    ]


def _of_policy(each: Refusal, count: int) -> Loss:
    return Loss(
        reason="policy",
        count=count,
        protocol=each.protocol,
        source=each.source,
        target=each.target,
        port=each.port,
        pod=each.source_pod or each.target_pod,
        words="a network policy refuses them",
        rule=", ".join(each.policies),
    )
