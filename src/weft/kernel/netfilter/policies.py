"""The tables of policies in the kernel: looked at and taken from by netlink, and made by nft, which compiles rules.

Chains and sets are made in one transaction beside what is there; elements follow in another, by which packets are led
to them. What others changed of a chain is not read: the whole chain is written again.
"""

import errno
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from time import monotonic
from typing import Final

from weft.beside.threads import beside
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.kernel.tools import ToolError, Tools
from weft.model.errors import Failure
from weft.model.kernel import nftset
from weft.model.kernel.nftset import Change, DeleteChain, DeleteSet, DeleteTable, Element, Empty, Table, replacing
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.kernel.policytable import BRIDGE, INET, KINDS, PolicyChain, PolicyElement, PolicySet, table_of
from weft.model.node.nodestate import Durations
from weft.plan.diff import Put, Step
from weft.wire.nft import payload, refill

_COMMENT: Final = re.compile(r' comment "([^"]*)"$')
_CHANGED: Final = ("as others left it",)  # the rules of a chain that is not as wanted
_FEW: Final = 64  # keys that are asked for one by one, and changes that are made without a thread
_AT_ONCE: Final = 8192  # changes of a transaction, which is one send
# What a chain leads to goes after its rules, and a set after the chains that ask it.
_ORDER: Final = (Empty, DeleteChain, DeleteSet)


class PolicyTables:
    """A plane (`daemon.planes.contract`). One caller at a time; `nf` is closed by who opened it.

    `made` counts the chains and sets that were written, and `transactions` the others.
    """

    kinds = KINDS
    sweep = 60.0
    blind = False
    counts: Mapping[str, int] = {}

    def __init__(self, nf: NfSocket, tools: Tools, *, announces: bool = True) -> None:
        self.announces = announces
        self.transactions = Durations()
        self.made = 0
        self._nf = nf
        self._tools = tools
        tools.own.started(nf.port)  # what is changed by this socket is no change by others

    async def look(self, known: Objects, only: Collection[Key] | None = None, /) -> dict[Key, Object]:
        """See all, or `only` what others have touched: a chain among these counts as changed."""
        if only is not None and len(only) <= _FEW:
            return {thing.key: thing for key in only for thing in self._one(key)}
        return await beside(lambda: {thing.key: thing for thing in self._all(known, only or ())})

    def _one(self, key: Key) -> Iterator[Object]:
        match key:
            case ("polchain", str(table), str(name)) if self._nf.has_chain(table_of(table), name):
                yield PolicyChain(table=table, name=name, rules=_CHANGED)
            case ("polset", str(table), str(name)) if name in self._nf.sets(table_of(table)):
                yield PolicySet(table=table, name=name, spec="")
            case ("polelement", str(table), str(name), bytes(key_in_set)):
                found = self._nf.element(table_of(table), name, key_in_set)
                if found is not None:
                    yield _element(table, found)

    def _all(self, known: Objects, touched: Collection[Key]) -> Iterator[Object]:
        nf = self._nf
        for table, where in ((name, table_of(name)) for name in (INET, BRIDGE)):
            comments: defaultdict[str, list[str]] = defaultdict(list)
            for chain, comment in nf.comments(where):
                comments[chain].append(comment)
            asleep = nf.is_dormant(where)
            for name in nf.chains(where):
                seen = _chain(table, name, comments[name], known, touched)
                # To write a base chain wakes its table.
                yield PolicyChain(table=table, name=name, rules=_CHANGED) if asleep and seen.hook else seen
            for name in nf.sets(where):
                yield known.get(("polset", table, name)) or PolicySet(table=table, name=name, spec="")
            for name in nf.sets(where, filled_by_rules=False):
                for found in nf.elements(where, name):
                    thing = _element(table, found)
                    wanted = known.get(thing.key)
                    yield thing if wanted is None or wanted != thing else wanted

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        failures: list[Failure] = []
        for part in stages(steps):
            if isinstance(part[0], Put) and not isinstance(part[0].object, PolicyElement):
                failures += await self._make(part)
            elif len(part) <= _FEW:
                failures += self._change(part)
            else:
                failures += await beside(partial(self._change, part))
        return failures

    async def _make(self, steps: Sequence[Step]) -> list[Failure]:
        """Make chains and sets. What is refused is tried again while any succeeds: one may lead to one behind it."""
        failed = await self._try(steps)
        while 0 < len(failed) < len(steps):
            refused = {id(failure.step) for failure in failed}
            steps = [step for step in steps if id(step) in refused]
            failed = await self._try(steps)
        return failed

    async def _try(self, steps: Sequence[Step]) -> list[Failure]:
        """All at once; what nft refuses of them is then found by halves."""
        try:
            await self._tools.run("nft", ("-f", "-"), payload(_lines([step.object for step in steps])))
        except ToolError as error:
            if error.errno == errno.EIO and len(steps) > 1:
                middle = len(steps) // 2
                return [*await self._try(steps[:middle]), *await self._try(steps[middle:])]
            return [_failure(step, error) for step in steps]
        self.made += len(steps)
        return []

    def _change(self, steps: Sequence[Step]) -> list[Failure]:
        failures: list[Failure] = []
        for name in (INET, BRIDGE):
            part = sorted((step for step in steps if _table(step) == name), key=_leads)
            for start in range(0, len(part), _AT_ONCE):
                failures += self._transact(table_of(name), part[start : start + _AT_ONCE])
        return failures

    def _transact(self, table: Table, steps: Sequence[Step]) -> list[Failure]:
        """All at once; what is refused of it is left out of the next try."""
        failures: list[Failure] = []
        while steps:
            changes = [(step, change) for step in steps for change in self._changes(table, step)]
            changes.sort(key=lambda each: _ORDER.index(type(each[1])) if type(each[1]) in _ORDER else 0)
            try:
                began = monotonic()
                refused = self._nf.transaction(table, [change for _, change in changes])
                self.transactions.note(monotonic() - began)
            except NetlinkError as error:
                return [*failures, *(_failure(step, error) for step in steps)]
            if not refused:
                break
            errors = {id(changes[position][0]): error for position, error in refused.items()}
            bad = [(step, errors[id(step)]) for step in steps if id(step) in errors]
            failures += [_failure(step, error) for step, error in bad if error.errno != _done_already(step)]
            steps = [step for step in steps if id(step) not in errors]
        return failures

    def _changes(self, table: Table, step: Step) -> Sequence[Change]:
        """A plain element is added without a look, since it has nothing that could be another's."""
        thing = step.object
        match thing:
            case PolicyElement(set=name, element=key, verdict=verdict, comment=comment):
                whole = Element(set=name, key=key, verdict=verdict, comment=comment)
                if not isinstance(step, Put):
                    return (nftset.Delete(whole),)
                if not (verdict or comment):
                    return (nftset.Add(whole),)
                return replacing(whole, self._nf.element(table, name, key))
            case PolicyChain(name=name):
                return (Empty(name), DeleteChain(name))
            case PolicySet(name=name):
                return (DeleteSet(name),)
        raise TypeError(f"not of a table of policies: {thing!r}")


def stages(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Steps of `plan.diff`, and which of them are made at once.

    What elements lead to is made before them, and goes after them. All elements change in one transaction, so that no
    packet meets new rules with old sets.
    """
    for _, group in groupby(sorted(steps, key=_stage), key=_stage):
        yield list(group)


def remove_tables(nf: NfSocket) -> list[str]:
    """Take both tables away with all that is in them. Returns the names of those that were there."""
    there = [name for name in (INET, BRIDGE) if nf.has_table(table_of(name))]
    for name in there:
        for refusal in nf.transaction(table_of(name), [DeleteTable()]).values():
            raise refusal
    return there


def _lines(things: Iterable[Object]) -> Iterator[str]:
    """A table that is there stays, and so does a set; a chain that is there is written again."""
    chains = [thing for thing in things if isinstance(thing, PolicyChain)]
    yield from sorted({f"add table {thing.table}" for thing in things if isinstance(thing, (PolicyChain, PolicySet))})
    for thing in things:
        if isinstance(thing, PolicySet):
            yield f"add {'map' if thing.is_map else 'set'} {thing.table} {thing.name} {{ {thing.spec} }}"
    for chain in chains:
        yield f"add chain {chain.table} {chain.name}{f' {{ {chain.hook} }}' if chain.hook else ''}"
    for chain in chains:
        yield from refill(table_of(chain.table), chain.name, chain.rules)


def _chain(table: str, name: str, comments: Sequence[str], known: Objects, touched: Collection[Key]) -> PolicyChain:
    """Rules count as right by their number and comments: the name has a checksum, and who changes them is heard."""
    thing = known.get(("polchain", table, name))
    if isinstance(thing, PolicyChain) and thing.key not in touched:
        wanted = [found[1] if (found := _COMMENT.search(rule)) else "" for rule in thing.rules]
        if wanted == list(comments):
            return thing
    return PolicyChain(table=table, name=name, rules=_CHANGED)


def _element(table: str, found: Element) -> PolicyElement:
    return PolicyElement(table=table, set=found.set, element=found.key, verdict=found.verdict, comment=found.comment)


def _stage(step: Step) -> int:
    """The order of `steps` within a stage stays."""
    if isinstance(step.object, PolicyElement):
        return 2
    leads = step.object.rank > PolicyElement.rank
    if isinstance(step, Put):
        return 3 if leads else 1
    return 4 if leads else 5


def _table(step: Step) -> str:
    thing = step.object
    return thing.table if isinstance(thing, (PolicyChain, PolicyElement, PolicySet)) else ""


def _leads(step: Step) -> bool:
    """Sets are full before a verdict leads to the chain that asks them, where that takes more than one transaction."""
    return isinstance(step.object, PolicyElement) and bool(step.object.verdict)


def _done_already(step: Step) -> int:
    return errno.EEXIST if isinstance(step, Put) else errno.ENOENT


def _failure(step: Step, error: OSError) -> Failure:
    return Failure(step=step, errno=error.errno or errno.EIO, message=error.strerror or str(error))
