"""What is attached to the devices of a network namespace: the programs of the kernel path, found by their names.

A name is `weft-udp-BUILD-NUMBER-in` or `-out`: the two that belong together have the same build and number.
"""

import errno
import re
import socket
from collections.abc import Collection, Iterator
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

    def attach(self, index: int, hook: int, name: str, program: int) -> None:
        """Attach a program, in place of ours that is there. EBUSY where a qdisc of somebody's does not take it."""
        self._request(tcbpf.add_clsact(index), but=(errno.EEXIST,))
        if hook not in self._hooks(index):
            raise OSError(errno.EBUSY, "a qdisc that takes no programs for what is sent")
        self._request(tcbpf.set_program(index, hook, name, program))

    def detach(self, attached: Attached) -> None:
        """Take a program away, and leave the qdisc: with it the device would lose the packets of a moment."""
        self._request(tcbpf.delete_program(attached.device, HOOKS[attached.direction]), but=_GONE)

    def delete_empty(self, index: int) -> None:
        """Delete a device's qdisc for programs if it holds none, and is not somebody else's."""
        hooks = self._hooks(index)
        if len(hooks) == len(HOOKS) and not any(self._socket.dump(*tcbpf.list_filters(index, hook)) for hook in hooks):
            self._request(tcbpf.delete_clsact(index), but=_GONE)

    def attached(self) -> Iterator[Attached]:
        """All programs of ours, of whatever build."""
        for index, hooks in map(tcbpf.hooks_in, self._socket.dump(*tcbpf.list_qdiscs())):
            for direction in (direction for direction, hook in HOOKS.items() if hook in hooks):
                for body in self._socket.dump(*tcbpf.list_filters(index, HOOKS[direction])):
                    found = tcbpf.filter_in(body)
                    named = found and _NAME.fullmatch(found.name)
                    if found and named and named["direction"] == direction:
                        yield Attached(index, direction, named["build"], named["pair"], found.program)

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
