"""The lab's switch: which links are down, slow or lossy, and which ways are cut.

Packets to a node wait at its port; those from it are redirected to an IFB device with queues of its own. Both are in
the lab's namespace: the node sees a slow link, and no queue.
"""

import asyncio
import errno
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Final

from weft.beside.tasks import watched
from weft.cni.plugins.bandwidth import bucket_of
from weft.kernel.namespaces import CLONE_NEWNET, unshare
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.rtnetlink import tc
from weft.kernel.rtnetlink.netlink import Message
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab import spec
from weft.lab.inside import underlay
from weft.lab.inside.changes import rules
from weft.lab.inside.changes.rules import INSIDE, OUTSIDE, Place
from weft.lab.inside.namespaces import Inside, Room
from weft.lab.inside.processes import Processes
from weft.lab.links import STORE, Conditions, Link
from weft.lab.spec import Nat, Node
from weft.model.errors import ConfigError, Problem, Unavailable, WeftError
from weft.model.kernel.nftset import Element
from weft.model.kernel.reported import Limit
from weft.model.net import Family
from weft.model.value import replace

_NFT: Final = ("nft", "-f", "-")
_HUNDREDTH: Final = 100  # of a second: what may pass at once beyond the rate, and
_LEAST_BURST: Final = 8 * 16_384  # bits: at slow rates some full packets all the same
_NOT_THERE: Final = (errno.ENOENT, errno.EINVAL)  # of a qdisc that is to be removed
_COUNT_SECONDS: Final = 30.0


class Switch:
    """`now` are the conditions that are set."""

    def __init__(self, rtnl: Rtnl, processes: Processes, families: Sequence[Family], nat: Mapping[int, Nat]) -> None:
        """`rtnl` is a socket of the lab's own namespace, `nat` has the segments that are behind one."""
        self.now = Conditions()
        self.store = Place(addresses=tuple(underlay.address(family).ip for family in families))
        self._families = families
        self._nat = nat
        self._rtnl = rtnl
        self._processes = processes
        self._end: asyncio.TimerHandle | None = None  # of counting, while that goes on

    async def set(self, wanted: Conditions, nodes: Iterable[Node]) -> None:
        """What is refused leaves all as it was.

        Raises `ConfigError` where this machine cannot do it, else `Unavailable` or `OSError`.
        """
        places = {node.name: self.place(node) for node in nodes}
        try:
            await self._go(self.now, wanted, places)
        except (WeftError, OSError):
            with suppress(WeftError, OSError):  # the first refusal says what cannot be put back either
                await self._go(wanted, self.now, places)
            raise
        self.now = wanted

    async def _go(self, had: Conditions, wanted: Conditions, places: dict[str, Place]) -> None:
        for node, place in places.items():
            old, new = had.link(node), wanted.link(node)
            if (old.delay, old.rate) != (new.delay, new.rate):
                shape(self._rtnl, place.port, new)
        if self._rules(had, places) != (script := self._rules(wanted, places)):
            await self.load(script)
        for node, place in places.items():
            if had.link(node).up != (up := wanted.link(node).up):
                self._rtnl.set_link(_index(self._rtnl, place.port), up=up)

    async def carried(self) -> tuple[list[Element], list[Element]]:
        """What was sent and what was lost, by the MACs from and to which it went.

        Counting begins with the first question and ends some time after the last: each packet pays for it.
        """
        loop = asyncio.get_running_loop()
        if self._end is None:
            await self.load(rules.counting(wanted=True))
        else:
            self._end.cancel()
        self._end = loop.call_later(_COUNT_SECONDS, lambda: watched(self._count_no_more()))
        with closing(NfSocket.open()) as asking:
            return asking.elements(rules.COUNTING, rules.SENT), asking.elements(rules.TABLE, rules.LOST)

    async def _count_no_more(self) -> None:
        self._end = None
        with suppress(WeftError, OSError):
            await self.load(rules.counting(wanted=False))

    def place(self, node: Node) -> Place:
        addresses = tuple(underlay.address_of(node, family) for family in self._families)
        place = Place(port=underlay.port(node.index), segment=node.segment, addresses=addresses)
        if node.segment not in self._nat:
            return place
        outside = tuple(underlay.beyond(family, node.segment).ip for family in self._families)
        wireguard = underlay.outer_port(node) if self._nat[node.segment] == "cone" else 0
        return replace(place, outside=outside, wireguard=wireguard)

    async def add_router(self, inside: Inside, lab: spec.Lab, segment: int) -> Room:
        """Put a router with NAT, as homes have them, between a segment's switch and the first one's.

        It is a network namespace, there as long as its room is open.
        """
        families = self._families
        room, own = await inside.run(None, lambda: _router(inside, families))
        with own:
            underlay.bring_up(own, "lo")
            beyond = [underlay.beyond(family, segment) for family in families]
            within = [underlay.address(family, segment=segment) for family in families]
            for link, to, addresses in ((OUTSIDE, 1, beyond), (INSIDE, segment, within)):
                port = self._rtnl.add_veth(f"nat{segment}-{link}", peer=link, peer_netns_fd=room.net, up=True)
                self._rtnl.set_link(port.index, master=self._rtnl.index_of(spec.switch(to)))
                underlay.add_addresses(own, underlay.bring_up(own, link), addresses)
            underlay.lead_out(own, families, OUTSIDE)
        underlay.lead_behind(self._rtnl, families, segment)
        nodes = [self.place(node) for node in lab.nodes if node.segment == segment]
        await self.load(rules.nat(self._nat[segment], lab=self.store.addresses, nodes=nodes), room)
        return room

    def _rules(self, conditions: Conditions, nodes: dict[str, Place]) -> str:
        places = nodes | {STORE: self.store}
        losses = {nodes[name].port: link.loss for name, link in conditions.links.items() if link.loss}
        cuts = [(places[cut.source], places[cut.target]) for cut in conditions.in_order()]
        return rules.transaction(losses, cuts)

    async def load(self, script: str, room: Room | None = None) -> None:
        """Into the lab's own namespace or another. `ConfigError` without nft, `Unavailable` if it refuses."""
        try:
            ran = await self._processes.answer(room, _NFT, {}, script.encode())
        except FileNotFoundError:
            hint = "'apt-get install nftables'."
            raise ConfigError(Problem("HOST-002", "nft", "no such program on PATH", hint=hint)) from None
        if ran.exit:
            words = " ".join(ran.stderr.decode(errors="replace").split())
            raise Unavailable(Problem("LAB-002", "nft, for the lab's switch", words))


def _router(inside: Inside, families: Sequence[Family]) -> tuple[Room, Rtnl]:
    unshare(CLONE_NEWNET)
    underlay.route_between(families)
    return Room.here(inside.proc), Rtnl.open()


def shape(rtnl: Rtnl, port: str, link: Link) -> None:
    """`ConfigError` where the kernel cannot delay packets. Packets in earlier queues are lost."""
    index, inward = _index(rtnl, port), f"{port}-in"
    for error in rtnl.batch([tc.delete_root(index), tc.delete_ingress(index)]).values():
        if error.errno not in _NOT_THERE:
            raise error
    if (former := rtnl.index_of(inward)) is not None:
        rtnl.delete_link(former)
    if link.delay or link.rate:
        _carry_out(rtnl, _queues(index, link))
        ifb = rtnl.add_ifb(inward)
        _carry_out(rtnl, [*_queues(ifb.index, link), tc.add_ingress(index), tc.redirect(index, to=ifb.index)])


def _index(rtnl: Rtnl, port: str) -> int:
    index = rtnl.index_of(port)
    assert index is not None, port  # noqa: S101 - the node was plugged in
    return index


def _queues(index: int, link: Link) -> list[Message]:
    """Delayed packets pass the limit afterwards, inside of the delay's queue."""
    messages = []
    if link.delay:
        messages.append(tc.set_delay(index, nanoseconds=round(link.delay * 1_000_000)))
    if link.rate:
        burst = max(link.rate // _HUNDREDTH, _LEAST_BURST)
        messages.append(tc.set_bucket(index, bucket_of(Limit(rate=link.rate, burst=burst)), delayed=bool(link.delay)))
    return messages


def _carry_out(rtnl: Rtnl, messages: list[Message]) -> None:
    for position, error in sorted(rtnl.batch(messages).items()):
        if messages[position].kind == tc.RTM_NEWQDISC and error.errno == errno.ENOENT:
            seen = f"this kernel cannot delay packets: it has no netem ({error.strerror})"
            hint = "'modprobe sch_netem' loads it where it is a module; --loss, --rate and --down work without it."
            raise ConfigError(Problem("HOST-002", "--delay", seen, expected="one with CONFIG_NET_SCH_NETEM", hint=hint))
        raise error
