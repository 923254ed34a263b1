"""A trace that was tried by probes: the legs with their counts, and what became of it. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from weft.diag.sizes import largest
from weft.diag.trace.hops import End, Hop, Leg, Visit, counted, legs, unreached
from weft.diag.trace.outcome import Answers, outcome
from weft.diag.trace.probes import Probe, ProbesSeen, TooLarge
from weft.diag.trace.ruled import Ruling
from weft.diag.trace.sequence import Stage, diagram, lines
from weft.diag.trace.sized import Sized, of_size
from weft.model.errors import Problem
from weft.model.value import Value, field, replace

# Sends one probe of each size, and gives their numbers and what both ends saw of them.
Count = Callable[[Sequence[int]], tuple[Sequence[int], ProbesSeen]]
LookAgain = Callable[[], Sequence[Visit]]


class SourceSeen(Value):
    """The device at which probes were first seen with an address."""

    place: str
    device: str
    address: str


class TraceReport(Value):
    """The legs in order, each with how many probes were seen at its devices.

    Of `tried` probes `reached` came back, and `elsewhere` went to other pods of a Service. Probes came to leg `last`
    and no further; by the kernel's word the rule of `ruling` dropped them. `sources` are the addresses that NAT gave
    them in turn; `sized` is there if they had a size.
    """

    source: str
    target: str
    legs: list[Leg]
    tried: int
    reached: int
    elsewhere: int
    verdict: str
    well: bool
    last: int
    problem: Problem | None = None
    ruling: Ruling | None = None
    sources: list[SourceSeen] = field(default_factory=list)
    sized: Sized | None = None


class Following(Value):
    """What is followed by a probe, from `begin` to `end`. `source` and `target` are the words for it.

    `beyond` is as `outcome` has it. Probes are counted at `places`, each with a link or "" for all; `ends` are
    those of them that tell whether a probe of some size has passed. `ports` and `chosen` are as in `Wanted`.
    """

    source: str
    target: str
    probe: Probe
    begin: End
    end: End
    beyond: str = ""
    places: Mapping[str, str] = {}
    ends: Mapping[str, str] = {}
    ports: Collection[int] = ()
    chosen: Mapping[str, bytes] = {}


def tried(what: Following, visits: Sequence[Visit], seen: ProbesSeen, sized: Sized | None = None) -> TraceReport:
    """Compare what was predicted with what was seen."""
    begin, end, probe = what.begin, what.end, what.probe
    ours = seen.towards(end.address, probe.numbers)
    found = [counted(leg, lambda *at: len(seen.at(*at) & ours)) for leg in legs(begin, end, visits)]
    sources, found = _sources(found, seen, ours)
    reached = len(_came_back(begin, found, seen) & _arrived(what, seen) & ours)
    denied = len(seen.denied & ours)
    answers = Answers(sent=len(ours), reached=reached, denied=denied, renamed=len(sources) > 1, seen=seen)
    result = outcome(found, answers, due=probe.kind != "udp", beyond=what.beyond)
    if sized is not None:
        is_answer = result.problem is not None and found[result.leg].direction == "back"
        sender = end.place if is_answer else begin.place
        sized = _told(sized, seen, sender)
        result = of_size(result, sized, sender)
    if result.unseen is not None:
        found = unreached(found, result.unseen.leg, result.unseen.device)
    return TraceReport(
        source=what.source,
        target=what.target,
        legs=found,
        tried=len(ours),
        elsewhere=len(probe.numbers) - len(ours),
        reached=reached,
        verdict=result.verdict,
        well=result.well,
        last=result.leg,
        problem=result.problem,
        ruling=result.ruling,
        sources=sources,
        sized=sized,
    )


def proved(
    what: Following,
    visits: Sequence[Visit],
    seen: ProbesSeen,
    *,
    count: Count,
    look_again: Callable[[], Sequence[Visit]],
) -> TraceReport:
    """Do as `tried`, and where probes were lost, search the largest packet that passes.

    The probes have made nodes ask their neighbours for MACs, so `look_again` finds those that do not answer. It is not
    called where it is known which rule dropped probes, nor where smaller packets pass: then all neighbours answer, and
    the kernel may have learned another MTU meanwhile.
    """
    sized = Sized(size=what.probe.sizes[0]) if what.probe.sizes else None
    found = tried(what, visits, seen, sized)
    if found.well:
        return found
    sized = searched(sized, what, count)
    if found.ruling is None and (sized is None or not sized.largest):
        visits = look_again()
    return tried(what, visits, seen, sized)


def searched(sized: Sized | None, what: Following, count: Count) -> Sized | None:
    """Search the largest packet that passes; not of a datagram to where nobody looks."""
    if sized is None or (what.beyond and what.probe.kind == "udp"):
        return sized
    return replace(sized, searched=True, largest=largest(sized.size, lambda sizes: passed(what, *count(sizes))))


def passed(what: Following, numbers: Sequence[int], seen: ProbesSeen) -> list[bool]:
    """A probe passed if it came back; a datagram, if it came to its end."""
    by_datagrams = what.probe.kind == "udp"
    came = seen.anywhere(what.end.place, "there") if by_datagrams else seen.anywhere(what.begin.place, "back")
    return [number in came for number in numbers]


def _told(sized: Sized, seen: ProbesSeen, sender: str) -> Sized:
    if seen.sent.mtu:
        return replace(sized, told=TooLarge(mtu=seen.sent.mtu, by=""))
    if sender in seen.told or not seen.told:
        return replace(sized, told=seen.told.get(sender))
    heard, told = next(iter(seen.told.items()))
    return replace(sized, told=told, heard=heard)


def _sources(found: Sequence[Leg], seen: ProbesSeen, ours: set[int]) -> tuple[list[SourceSeen], list[Leg]]:
    """Return the addresses in turn, and the legs, whose devices name a change."""
    sources, shown = list[SourceSeen](), list[Leg]()
    ahead = [(leg.place, hop) for leg in found if leg.direction == "there" for hop in leg.way.hops]
    visits = Counter[tuple[str, str]]()
    for leg in found:
        hops = list[Hop]()
        promised: int | None = None
        for hop in leg.way.hops:
            hops.append(hop)
            promised = len(hops) - 1 if hop.what == "SNAT" else promised
            if leg.direction == "back":
                continue
            del ahead[0]
            # They come back after a translation, even if the way does not name a device twice.
            again = any(each.what == "SNAT" or (at, each.device) == (leg.place, hop.device) for at, each in ahead)
            here, last = seen.sources_at(leg.place, hop.device, ours), sources[-1].address if sources else ""
            at = leg.place, hop.device
            visits[at] += 1
            # A device that is passed for the first time has not shown the old source on an earlier visit.
            changes = promised is not None and visits[at] > 1
            # A probe that nothing translates comes each time with the old one. (`lo` shows each packet twice.)
            kept = hop.device != "lo" and seen.came(*at, last, ours, times=visits[at])
            if promised is not None and changes and kept:
                hops[promised], promised = _broken(hops[promised], hop.device, last), None
            for address in _of_visit(here, last, changes=changes, again=again):
                if not sources:
                    sources.append(SourceSeen(place=leg.place, device=hop.device, address=address))
                elif sources[-1].address != address:
                    hops[-1], promised = replace(hops[-1], seen=f"{hops[-1].seen}, from {address}"), None
                    sources.append(SourceSeen(place=leg.place, device=hop.device, address=address))
                elif promised is not None:
                    hops[promised], promised = _broken(hops[promised], hop.device, address), None
        shown.append(replace(leg, way=replace(leg.way, hops=tuple(hops))))
    return sources, shown


def _of_visit(sources: list[str], last: str, *, changes: bool, again: bool) -> list[str]:
    """Return the sources that packets had on this visit of a device, where they may have been, or come `again`.

    `last` is the source until then; it `changes` if a translation lies between an earlier visit and this.
    """
    here = sources[sources.index(last) :] if last in sources else sources
    if changes and here[:1] == [last]:
        here = here[1:] or here
    return here[:1] if again else here


def _broken(hop: Hop, device: str, address: str) -> Hop:
    seen = f"{hop.seen}; yet {device} shows {address}"
    hint = "See whether a rule takes them out of connection tracking: 'nft list ruleset' with notrack, iptables -t raw"
    problem = Problem("NFT-002", f"link {device}", f"they leave as from {address}", hint=hint)
    return replace(hop, seen=seen, passes=None, suspect=problem)


def _came_back(begin: End, found: Sequence[Leg], seen: ProbesSeen) -> set[int]:
    """On a node an answer that is still wrapped has not come back: it is looked for behind the device that unwraps."""
    hops = [hop for leg in found if (leg.place, leg.direction) == (begin.place, "back") for hop in leg.way.hops]
    outer = [hop.device for hop in hops if hop.what == "received by"]
    if not outer or all(hop.what != "unwrapped by" for hop in hops):
        return seen.anywhere(begin.place, "back")
    return set().union(
        *(seen.at(begin.place, hop.device, "back") for hop in hops if hop.device and hop.device not in outer)
    )


def _arrived(what: Following, seen: ProbesSeen) -> set[int]:
    """The probes that came to their end: a firewall's answer in the target's name does not count."""
    begin, end = what.begin, what.end
    if what.beyond:
        return seen.anywhere(begin.place, "back")
    there = seen.anywhere(end.place, "there")
    # What the end itself has sent is seen there before it has arrived.
    return there & seen.sent_to(end.address) if end.place == begin.place else there


def tried_diagram(found: TraceReport) -> str:
    shown = found.legs[: found.last + 1]
    return diagram(
        [Stage(place=leg.place, way=leg.way, back=leg.direction == "back", counted=leg.counted) for leg in shown]
    )


def tried_lines(found: TraceReport, *, explain: bool) -> Iterator[str]:
    for leg in found.legs[: found.last + 1]:
        yield f"{leg.place}, {leg.direction}"
        yield from lines(leg.way, leg.counted, explain=explain)
    others = f"; {found.elsewhere} went to other pods" if found.elsewhere else ""
    size = f" of {found.sized.size} bytes" if found.sized is not None else ""
    if len(found.sources) > 1:
        seen = (f"{each.address} ({each.device} of {each.place})" for each in found.sources)
        yield f"seen to come from {', then from '.join(seen)}"
    yield f"{found.reached} of {found.tried} probes{size} were answered{others}"
    yield found.verdict
