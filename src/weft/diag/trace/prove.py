"""`weft trace --probe`: sends what was predicted, from where it comes, and counts it at each link of this node."""

import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from secrets import randbits
from typing import Final

from weft.diag.rules.matching import Packet
from weft.diag.sight.node import Sight
from weft.diag.sight.pods import Pods, hidden_words, pods_of
from weft.diag.sight.routing import is_own
from weft.diag.trace.hops import End, Ways
from weft.diag.trace.outcome import Sized
from weft.diag.trace.probe_report import Asked, TraceReport, proved
from weft.diag.trace.probes import Kind, ProbesSeen, Wanted, numbers, so_many
from weft.diag.trace.sending import send, watch
from weft.model.errors import ConfigError, Problem

_KINDS: Final[dict[str, Kind]] = {"icmp": "icmp", "ipv6-icmp": "icmp", "udp": "udp", "tcp": "tcp"}


def prove(
    sight: Sight, words: tuple[str, str], packet: Packet, ways: Ways, *, look_again: Callable[[], Ways]
) -> TraceReport:
    """Send probes as `packet`: three, or more to a Service, of which one pod is followed.

    `look_again` is for lost ones: the node has asked its neighbours for MACs since. Raises `ConfigError` unless the
    packet comes from this node.
    """
    name, kind, there = socket.gethostname(), _KINDS[packet.protocol], ways["there"]
    others = [address for hop in there.hops for address in hop.others]
    sent, size = numbers(randbits(32), 1 + len(others)), packet.size
    ports = {packet.target_port, *([there.packet.target_port] if there.packet is not None else [])}
    with pods_of(sight, name, "weft trace --probe") as pods:
        begin = _local(sight, pods, name, str(packet.source))
        if begin is None:
            raise ConfigError(_elsewhere(str(packet.source), hidden_words(pods.hidden)))
        target = str(packet.target) if there.packet is None else there.packet.target
        end = _local(sight, pods, name, target)
        beyond = "" if end is not None else there.to or target
        end = end or End(node=beyond, address=target)
        places, chosen = ([] if beyond else [end.place]), {each: ip_address(each).packed for each in (target, *others)}

        def counted(numbers: Sequence[int], sizes: Sequence[int], places: Sequence[str]) -> ProbesSeen:
            return watch(
                pods,
                places,
                Wanted(kind=kind, numbers=numbers, ports=ports, chosen=chosen),
                source=begin.place,
                send=lambda: send(
                    packet.source, packet.target, kind=kind, port=packet.target_port, numbers=numbers, sizes=sizes
                ),
                largest=max(sizes, default=0),
            )

        def of_sizes(sizes: Sequence[int]) -> tuple[Sequence[int], ProbesSeen]:
            tries = so_many(randbits(32), len(sizes))
            return tries, counted(tries, sizes, places)

        return proved(
            Asked(source=words[0], target=words[1], kind=kind, numbers=sent),
            begin,
            end,
            [(name, ways)],
            counted(sent, [size] * len(sent) if size else [], [name, *places]),
            beyond=beyond,
            sized=Sized(size=size) if size else None,
            count=of_sizes,
            look_again=lambda: [(name, look_again())],
        )


def _local(sight: Sight, pods: Pods, name: str, address: str) -> End | None:
    if (pod := pods.named(address)) is not None:
        return End(node=name, address=address, pod=pod.name, device=pod.device)
    return End(node=name, address=address) if is_own(sight, ip_address(address)) else None


def _elsewhere(source: str, hidden: str) -> Problem:
    return Problem(
        "FLAG-001",
        "weft trace --probe",
        f"{source} is no address of this node, or of a pod of it",
        hint=f"Run it on the node where it is{f'; {hidden}' if hidden else ''}.",
    )
