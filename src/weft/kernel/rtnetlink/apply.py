"""Sends the steps of `plan.diff` to the kernel in order, at most 64 messages at a time; returns those that failed.

A failed step stops no other. Deleting what is absent succeeds. Rule sets are `kernel.netfilter.firewall`'s.
"""

import errno
from collections.abc import Sequence
from typing import Final

from weft.kernel import sysctl, tun
from weft.kernel.cooperative import Slices, at_once
from weft.kernel.rtnetlink import codec
from weft.kernel.rtnetlink.codec import Plain
from weft.kernel.rtnetlink.netlink import Message, NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import Failure
from weft.model.kernel.links import Link, NodeLink, Tun
from weft.model.kernel.objects import Object, Route, Sysctl
from weft.model.kernel.reported import LinkInfo
from weft.plan.diff import Delete, Put, Step

# 64 messages block the event loop 3.8 ms at worst, 256 take 11; the total is the same.
CHUNK: Final = 64
_ABSENT: Final = frozenset((errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENXIO))


def apply(rtnl: Rtnl, steps: Sequence[Step]) -> list[Failure]:
    return at_once(applying(rtnl, steps))


def applying(rtnl: Rtnl, steps: Sequence[Step]) -> Slices[list[Failure]]:
    """Settings go to the calling thread's namespace."""
    work = _Work(rtnl)
    for step in steps:
        thing = step.object
        if isinstance(thing, Plain):
            work.add(step, thing)
            if work.full:
                work.flush()
                yield
        else:
            work.flush()
            work.single(step, thing)
            yield
    work.flush()
    return work.failures


class _Work:
    def __init__(self, rtnl: Rtnl) -> None:
        self._pending: list[tuple[Step, Plain, Message]] = []
        self.failures: list[Failure] = []
        self._rtnl = rtnl
        self._indexes: dict[str, int] = {}  # of links, whose own steps come before those of what is on them

    @property
    def full(self) -> bool:
        return len(self._pending) >= CHUNK

    def add(self, step: Step, thing: Plain) -> None:
        index = self._index_for(thing)
        if index is None:
            if isinstance(step, Put):
                self._failed(step, errno.ENODEV, f"there is no link {thing.link}")
            return
        encode = codec.encode if isinstance(step, Put) else codec.encode_removal
        self._pending.append((step, thing, encode(thing, index)))

    def flush(self) -> None:
        """Send what is pending, and again in another way what needs that."""
        sent, self._pending = self._pending, []
        again: list[tuple[Step, Plain]] = []
        for (step, thing, _), error in self._batch(sent):
            # An IPv6 on-link route is refused while another link's route leads to its gateway, often the very route it
            # shall replace (ip6_route_check_nh_onlink): it passes once that is deleted.
            is_onlink_v6 = isinstance(thing, Route) and thing.onlink and thing.dst.version == 6
            if isinstance(step, Put) and is_onlink_v6 and error.errno == errno.EINVAL:
                again.append((step, thing))
            elif isinstance(step, Put) or error.errno not in _ABSENT:
                self._refused(step, error)
        self._after_removal(again)

    def single(self, step: Step, thing: Object) -> None:
        match step, thing:
            case Put(), Sysctl():
                failure = sysctl.write(thing)
                if failure is not None:
                    self._failed(step, failure.errno, failure.message)
            case Delete(), Sysctl() | NodeLink():
                pass  # a setting has no absence, and a link is its pods'; it is wanted no more
            case _, Link() | NodeLink():
                try:
                    if isinstance(thing, NodeLink):
                        _set_up(self._rtnl, thing)
                    elif isinstance(step, Put):
                        _put_link(self._rtnl, thing)
                    elif (there := self._rtnl.link(thing.name)) is not None and thing.kind in ("", there.kind):
                        self._rtnl.delete_link(there.index)
                except NetlinkError as error:
                    self._refused(step, error)
            case _:
                raise TypeError(f"not for rtnetlink: {step}")

    def _after_removal(self, again: Sequence[tuple[Step, Plain]]) -> None:
        """Delete what is in the way and put, both in one send."""
        messages: list[tuple[Step, Plain, Message]] = []
        for step, thing in again:
            index = self._index_for(thing) or 0
            messages.append((Delete(thing), thing, codec.encode_removal(thing, index, anyones=True)))
            messages.append((step, thing, codec.encode(thing, index)))
        for start in range(0, len(messages), CHUNK):
            for (step, _, _), error in self._batch(messages[start : start + CHUNK]):
                if isinstance(step, Put):
                    self._refused(step, error)

    def _batch(
        self, sent: Sequence[tuple[Step, Plain, Message]]
    ) -> list[tuple[tuple[Step, Plain, Message], NetlinkError]]:
        try:
            refused = self._rtnl.batch([message for _, _, message in sent])
        except NetlinkError as error:  # the answers are lost: all may have failed, and all may be done again
            return [(each, error) for each in sent]
        return [(sent[position], error) for position, error in refused.items()]

    def _index_for(self, thing: Plain) -> int | None:
        """0 for an object that is on no link, None if the link is missing."""
        name = thing.link
        if name is None:
            return 0
        index = self._indexes.get(name)
        if index is None:
            index = self._rtnl.index_of(name)
            if index is not None:
                self._indexes[name] = index
        return index

    def _refused(self, step: Step, error: NetlinkError) -> None:
        self._failed(step, error.errno or errno.EIO, error.strerror or "")

    def _failed(self, step: Step, number: int, message: str) -> None:
        self.failures.append(Failure(step=step, errno=number, message=message))


def _set_up(rtnl: Rtnl, thing: NodeLink) -> None:
    index = rtnl.index_of(thing.name)
    if index is None:
        raise NetlinkError(errno.ENODEV, f"there is no link {thing.name}")
    rtnl.set_link(index, up=thing.up)


def _put_link(rtnl: Rtnl, wanted: Link) -> None:
    """Make a device right, up and with our alias: changed in place if the kernel can, else made again.

    A new MAC makes the kernel drop all neighbours of the device, permanent ones too (arp_netdev_event), with a notice
    for each. Raises `NetlinkError`.
    """
    there = rtnl.link(wanted.name)
    if wanted.parent and rtnl.link(wanted.parent) is None:
        # Looked at first: what works is not taken down for what cannot be made.
        raise NetlinkError(errno.ENODEV, f"there is no link {wanted.parent_name} (index {wanted.parent})")
    if there is not None:
        have, live = codec.decode_link(there, {}, {wanted.name: type(wanted)}), codec.encode_data(wanted, live=True)
        if not wanted.changes_in_place(have):
            rtnl.delete_link(there.index)
            there = None
        elif live != codec.encode_data(have, live=True):
            rtnl.change_link(there.index, wanted.kind, live)
    if there is None:
        there = _create(rtnl, wanted)
    rtnl.set_link(
        there.index,
        up=True,
        # When it creates a device, the kernel lowers an MTU that its parent cannot carry and says nothing.
        mtu=None if there.mtu == wanted.mtu else wanted.mtu,
        mac=None if there.mac == wanted.mac else wanted.mac,
        alias=codec.VTEP_ALIAS,
    )


def _create(rtnl: Rtnl, wanted: Link) -> LinkInfo:
    def create() -> LinkInfo:
        if isinstance(wanted, Tun):
            return _create_tun(rtnl, wanted)
        return rtnl.add_link(wanted.kind, codec.encode_data(wanted), name=wanted.name, mtu=wanted.mtu, mac=wanted.mac)

    try:
        return create()
    except NetlinkError as error:
        # Another device has what only one can have. If it is ours, someone has renamed it.
        renamed = [info for info in rtnl.links() if _is_stray(info, wanted)]
        if error.errno != errno.EEXIST or not renamed:
            raise
        for info in renamed:
            rtnl.delete_link(info.index)
        return create()


def _create_tun(rtnl: Rtnl, wanted: Tun) -> LinkInfo:
    try:
        tun.create(wanted.name, for_relay=bool(wanted.vnet_header))
    except OSError as error:
        raise NetlinkError(error.errno or errno.EIO, f"/dev/net/tun: {error.strerror}") from error
    made = rtnl.link(wanted.name)
    if made is None:
        raise NetlinkError(errno.ENODEV, "it is gone again")
    return made


def _is_stray(info: LinkInfo, wanted: Link) -> bool:
    """Tell whether another device of ours keeps `wanted` from being made."""
    if info.alias != codec.VTEP_ALIAS:
        return False
    have = codec.decode_link(info, {}, {info.name: type(wanted)})
    return isinstance(have, type(wanted)) and wanted.excludes(have)
