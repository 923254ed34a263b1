"""Queues at a node's port of the switch that delay packets and let through so many bits a second, in each direction.

What goes to the node waits at the port; what comes from it is redirected to an IFB device with queues of its own. Both
are in the lab's namespace: the node sees a slow link, and no queue.
"""

import errno
from typing import Final

from weft.cni.plugins.bandwidth import bucket_of
from weft.kernel.rtnetlink import tc
from weft.kernel.rtnetlink.netlink import Message, NetlinkError
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.lab.links import Link
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.reported import Limit

_HUNDREDTH: Final = 100  # of a second: what may pass at once beyond the rate, and
_LEAST_BURST: Final = 8 * 16_384  # bits: at slow rates some full packets all the same
_NOT_THERE: Final = (errno.ENOENT, errno.EINVAL)  # of a qdisc that is to be removed


def shape(rtnl: Rtnl, port: str, link: Link) -> None:
    """Have a port's queues be those of a link. `ConfigError` where the kernel cannot delay packets.

    Packets that wait in earlier queues are lost.
    """
    index = rtnl.index_of(port)
    assert index is not None, port  # noqa: S101 - the node was plugged in
    inward = f"{port}-in"
    _clear(rtnl, index, inward)
    if not (link.delay or link.rate):
        return
    _carry_out(rtnl, _queues(index, link))
    ifb = rtnl.add_ifb(inward)
    _carry_out(rtnl, [*_queues(ifb.index, link), tc.add_ingress(index), tc.redirect(index, to=ifb.index)])


def _clear(rtnl: Rtnl, index: int, inward: str) -> None:
    for error in rtnl.batch([tc.delete_root(index), tc.delete_ingress(index)]).values():
        if error.errno not in _NOT_THERE:
            raise error
    ifb = rtnl.index_of(inward)
    if ifb is not None:
        rtnl.delete_link(ifb)


def _queues(index: int, link: Link) -> list[Message]:
    """Return what makes a device's queues. Delayed packets pass the limit afterwards, inside of the delay's queue."""
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
            raise ConfigError(_no_delay(error))
        raise error


def _no_delay(error: NetlinkError) -> Problem:
    return Problem(
        code="HOST-002",
        where="--delay",
        seen=f"this kernel cannot delay packets: it has no netem ({error.strerror})",
        expected="one with CONFIG_NET_SCH_NETEM",
        hint="'modprobe sch_netem' loads it where it is a module; --loss, --rate and --down work without it.",
    )
