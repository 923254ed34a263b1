"""Packets of pods that a doctor sees arrive, and what loses those that do not.

What the checks read is what they know of; a packet meets all that there is. What is lost is traced by probes.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from ipaddress import ip_address
from math import ceil
from secrets import randbits
from typing import Final, TypeVar

from weft.diag.check import node_trials, trying
from weft.diag.check.scenarios import End
from weft.diag.checks.packets import is_unexplained
from weft.diag.owners import POLICY_TABLE
from weft.diag.rules.matching import ECHO, Packet
from weft.diag.sight.host import node_name
from weft.diag.sight.look import Places, ask_peers, look
from weft.diag.sight.node import Lost, Proof, Sight
from weft.diag.sight.peers import peers
from weft.diag.sight.pods import Pods, pods_of
from weft.diag.sight.routing import address_on
from weft.diag.trace.probes import Probe, patterns, so_many
from weft.diag.trace.proving import prove
from weft.diag.trace.ruled import ends_of_dropped
from weft.diag.trace.sending import send
from weft.kernel.netfilter import nftrace
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.net import Ip
from weft.model.value import Value, replace

T = TypeVar("T")

_MOST_PODS: Final = 128
_MOST_PEERS: Final = 512
_TRACED: Final = 4  # of what is lost: each takes a second or two
_AT_ONCE: Final = 32  # packets of which nf_tables tells, so that all is read
_ON_THE_WAY: Final = 0.03  # seconds from a pod to the last rule
_BY_CHANCE: Final = "A limit, a full table or queue, or chance loses some. Run it again, or 'weft trace --probe'"


class _Sent(Value):
    """An echo request; `peer` is as in `Lost`."""

    source: Ip
    target: Ip
    peer: str
    arrived: bool


def examined(places: Places) -> Sight:
    """See this node, ask its peers, send packets of its pods, and trace what is lost."""
    sight = ask_peers(look(places))
    try:
        with pods_of(sight, node_name(), "weft doctor") as pods:
            others, most = node_trials.reachable(sight), min(_MOST_PODS, node_trials.most_pairs(sight))
            some, theirs = _some(pods.found, most), _some(others, _MOST_PEERS)
            own = node_trials.ends(sight, node_name(), some)
            sent = [*_by_pods(pods, own, theirs), *_by_node(sight)]
            lost = [each for each in sent if not each.arrived]
            refused = _refused(sight, pods, lost)
        alive = {end for each in sent if each.arrived for end in (each.source, each.target)}
        unexplained = [each for each in lost if (each.source, each.target) not in refused]
        followed = {each: _followed(sight, each) for each in _examples(unexplained, alive)}
    except (Unavailable, ConfigError, OSError) as error:
        return replace(sight, unseen={**sight.unseen, "proof": str(error)})
    proof = _proof(sight, sent, [followed.get(each, _untraced(each, refused)) for each in lost])
    more = len(pods.found) - len(some) + len(others) - len(theirs)
    return replace(sight, proof=replace(proof, pods=len(some), more=more))


def _proof(sight: Sight, sent: Sequence[_Sent], lost: Sequence[Lost]) -> Proof:
    """What a policy forbids was not to arrive; and a peer without a device need not answer, if nothing here is why."""
    unsure = {str(peer.subnet) for peer in peers(sight) if peer.inner is None}
    due = [each for each in lost if each.peer not in unsure or not is_unexplained(each)]
    silent = {each.peer for each in lost} - {each.peer for each in due}
    forbidden = sum(each.forbidden for each in due)
    counted = [each for each in sent if each.arrived or each.peer not in silent]
    return Proof(
        tried=len(counted) - forbidden,
        arrived=sum(each.arrived for each in counted),
        pods=0,
        peers=len({each.peer for each in counted} - {""}),
        lost=tuple(due),
        silent=tuple(sorted(silent)),
    )


def _refused(sight: Sight, pods: Pods, lost: Sequence[_Sent]) -> set[tuple[Ip, Ip]]:
    """The ends of lost packets that network policies drop here, by the kernel's word: each is sent once more.

    Policies may refuse any number of them, and each trace takes seconds.
    """
    found = set[tuple[Ip, Ip]]()
    if not lost or all(table != POLICY_TABLE for _, table, _ in sight.rules.chains):
        return found
    numbers = so_many(randbits(32), len(lost))
    with suppress(OSError), ExitStack() as held:  # no right to ask nf_tables, or more than was kept
        sock = nftrace.listen(patterns("icmp", numbers))
        held.callback(nftrace.close, sock)
        for start in range(0, len(lost), _AT_ONCE):
            for each, number in zip(lost[start : start + _AT_ONCE], numbers[start:], strict=False):
                pod = pods.named(str(each.source))
                place = "" if pod is None else pod.name
                probe = Probe(
                    source=place, address=str(each.source), target=str(each.target), kind="icmp", numbers=[number]
                )
                pods.run(place, partial(send, probe))
            time.sleep(_ON_THE_WAY)
            found |= ends_of_dropped(nftrace.take(sock), nftrace.tables(sock), POLICY_TABLE)
    return found


def _untraced(sent: _Sent, refused: Collection[tuple[Ip, Ip]] = ()) -> Lost:
    return Lost(source=sent.source, target=sent.target, peer=sent.peer, forbidden=(sent.source, sent.target) in refused)


def _by_pods(pods: Pods, own: Sequence[End], others: Sequence[End]) -> Iterator[_Sent]:
    trials = node_trials.few(own, others)
    outcomes = trying.at_once(pods.visit, trials)
    lost = {end for trial, outcome in zip(trials, outcomes, strict=True) if not outcome.answered for end in trial.ends}
    ended = pods.ended(lost)
    addresses = {end.name: end.addresses for end in own}
    names = {end.name for end in others}
    for trial, outcome in zip(trials, outcomes, strict=True):
        if ended.isdisjoint(trial.ends):
            source = outcome.own or addresses[trial.source][trial.family]
            peer = trial.target if trial.target in names else ""
            yield _Sent(
                source=ip_address(source),
                target=ip_address(trial.address),
                peer=peer,
                arrived=bool(outcome.answered),
            )


def _by_node(sight: Sight) -> Iterator[_Sent]:
    """They leave with the address of a device between nodes."""
    found = ((version, address_on(sight, device.index, version)) for version in (6, 4) for device in sight.devices)
    own = {version: address for version, address in found if address is not None}
    for each in sight.probes:
        source = own.get(each.address.version) if each.way == "overlay" else None
        if source is not None:
            yield _Sent(source=source, target=each.address, peer=each.peer, arrived=each.answered)


def _some(everything: Sequence[T], most: int) -> Sequence[T]:
    return everything[:: max(1, ceil(len(everything) / max(1, most)))]


def _examples(lost: Sequence[_Sent], alive: Collection[Ip]) -> Iterator[_Sent]:
    """One for each address that all have in common which nothing passes, where most is lost first."""
    left = list(lost)
    for _ in range(_TRACED):
        if not left:
            return
        counts = Counter(end for each in left for end in (each.source, each.target))
        common = max(counts, key=lambda end: (end not in alive, counts[end]))
        yield next(each for each in left if common in (each.source, each.target))
        left = [each for each in left if common not in (each.source, each.target)]


def _followed(sight: Sight, sent: _Sent) -> Lost:
    packet = Packet(source=sent.source, target=sent.target, protocol=ECHO[sent.source.version])
    lost = traced(sight, packet, sent.peer)
    if lost is None:
        where = f"packets from {sent.source} to {sent.target}"
        seen = "some were lost, and three that were sent later arrived"
        lost = replace(_untraced(sent), cause=Problem("LOST-001", where, seen, hint=_BY_CHANCE), here=True)
    return lost


def traced(sight: Sight, packet: Packet, peer: str) -> Lost | None:
    """What loses a packet of this node or its pods, by probes like it; None if they arrive. `peer` is as in `Lost`."""
    lost = Lost(source=packet.source, target=packet.target, peer=peer)
    try:
        found = prove(sight, packet)
    except ConfigError as error:  # one end has just gone, or has lost its address, or another has it, too
        found_out = next((each for each in error.problems if each.code == "CHECK-001"), None)
        return replace(lost, cause=found_out, here=found_out is not None)
    except (Unavailable, OSError):
        return lost
    if found.well:
        return None
    problem = found.problem or Problem("LOST-001", f"packets from {lost.source} to {lost.target}", found.verdict)
    # As a trace has it of what leaves the node, and of a machine that does not tell its MAC.
    beyond = problem.where.startswith((f"{node_name()} to ", "link "))
    return replace(lost, cause=problem, here=not beyond, forbidden=found.ruling is not None and found.ruling.is_policys)
