"""What is attached to the devices of a network namespace: the programs of the kernel path, found by their names.

A name is `weft-udp-BUILD-NUMBER-in` or `-out`: the two that belong together have the same build and number. What has
another name is somebody else's, and stays.
"""

import errno
import re
import socket
from collections.abc import Collection, Iterator
from itertools import count
from typing import Final, NamedTuple, Self

from weft.kernel.rtnetlink import tcbpf
from weft.kernel.rtnetlink.netlink import Message, NetlinkError, NetlinkSocket

HOOKS: Final = {"in": tcbpf.INGRESS, "out": tcbpf.EGRESS}
MARK: Final = "weft-udp"
_GONE: Final = (errno.ENOENT, errno.ENODEV, errno.EINVAL)
_NAME: Final = re.compile(rf"(?P<pair>{MARK}-(?P<build>[0-9a-f]+)-[0-9]+)-(?P<direction>in|out)")


class Attached(NamedTuple):
    """A program at a device, by index: its direction, the build that it is of, and the two that belong together."""

    device: int
    direction: str
    priority: int
    build: str
    pair: str
    program: int


class Hooks:
    """What is attached to the devices of a network namespace."""

    def __enter__(self) -> Self:
        self._socket = NetlinkSocket.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def attach(self, index: int, hook: int, name: str, program: int) -> str:
        """Attach a program, in place of ours that is there. EBUSY where a qdisc of somebody's does not take it.

        Where somebody else has our priority it comes behind that, and says what is there; else "".
        """
        self._request(tcbpf.add_clsact(index), but=(errno.EEXIST,))
        if hook not in self._hooks(index):
            raise OSError(errno.EBUSY, "a qdisc that takes no programs for what is sent")
        there = list(self._filters(index, hook))
        ours = (each.priority for each in there if _NAME.fullmatch(each.name))
        taken = {each.priority: each for each in there}
        priority = next(ours, next(number for number in count(tcbpf.PRIORITY) if number not in taken))
        self._request(tcbpf.set_program(index, hook, priority, name, program))
        first = taken.get(tcbpf.PRIORITY)  # who was there may have gone since
        return "" if first is None or _NAME.fullmatch(first.name) else _words(first, index, hook, priority)

    def detach(self, attached: Attached) -> None:
        """Take a program away, and leave the qdisc: with it the device would lose the packets of a moment."""
        self._request(tcbpf.delete_program(attached.device, HOOKS[attached.direction], attached.priority), but=_GONE)

    def delete_empty(self, index: int) -> None:
        """Delete a device's qdisc for programs if it holds none, and is not somebody else's."""
        hooks = self._hooks(index)
        if len(hooks) == len(HOOKS) and not any(self._socket.dump(*tcbpf.list_filters(index, hook)) for hook in hooks):
            self._request(tcbpf.delete_clsact(index), but=_GONE)

    def attached(self) -> Iterator[Attached]:
        """All programs of ours, of whatever build."""
        for index, hooks in map(tcbpf.hooks_in, self._socket.dump(*tcbpf.list_qdiscs())):
            for direction in (direction for direction, hook in HOOKS.items() if hook in hooks):
                for found in self._filters(index, HOOKS[direction]):
                    named = _NAME.fullmatch(found.name)
                    if found.program and named and named["direction"] == direction:
                        yield Attached(index, direction, found.priority, named["build"], named["pair"], found.program)

    def _filters(self, index: int, hook: int) -> Iterator[tcbpf.Filter]:
        """All that is attached to a device, whose ever it is."""
        return map(tcbpf.filter_in, self._socket.dump(*tcbpf.list_filters(index, hook)))

    def _hooks(self, index: int) -> tuple[int, ...]:
        """Where programs are attached to a device."""
        qdiscs = map(tcbpf.hooks_in, self._socket.dump(*tcbpf.list_qdiscs()))
        return next((hooks for device, hooks in qdiscs if device == index and hooks), ())

    def _request(self, message: Message, *, but: Collection[int] = ()) -> None:
        try:
            self._socket.request(message)
        except NetlinkError as error:
            if error.errno not in but:
                raise


def _words(there: tcbpf.Filter, index: int, hook: int, priority: int) -> str:
    """Say what has our priority, and what follows."""
    direction = "ingress" if hook == tcbpf.INGRESS else "egress"
    named = f" {there.name!r}" if there.name else ""
    numbered = f", program {there.program}" if there.program else ""
    return (
        f"{socket.if_indextoname(index)} {direction}: a filter of another program ({there.kind}{named}{numbered}) has"
        f" priority {tcbpf.PRIORITY}, so ours has {priority}: packets that it keeps do not reach ours"
    )


def detach_all(*, wholly: bool = False) -> list[str]:
    """Take away all that is attached in this network namespace, and return where: the names of devices.

    Wholly is with what it was attached to, unless that holds something else; this costs packets of a moment.
    """
    with Hooks() as hooks:
        there = list(hooks.attached())
        for each in there:
            hooks.detach(each)
            if wholly:
                hooks.delete_empty(each.device)
    return [socket.if_indextoname(each.device) for each in there]


def present() -> list[str]:
    """Return the names of the devices at which something of ours is attached."""
    with Hooks() as hooks:
        return [socket.if_indextoname(each.device) for each in hooks.attached()]
