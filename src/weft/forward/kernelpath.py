"""Two eBPF programs between the relay's device and the uplink, and what they know of peers.

They outlive the process that attached them, and leave to the relay what they cannot do. Their source is `bpf/path.c`. A
program is attached as `weft-udp-BUILD-NUMBER-in` or `-out`; a pair has one build and number. Others are not ours.
"""

import errno
import hashlib
import os
import re
import socket
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from fcntl import ioctl
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from itertools import count
from struct import Struct
from typing import Final, NamedTuple, Self

from weft.forward.build import PATH
from weft.kernel import bpf, tun
from weft.kernel.rtnetlink import tc
from weft.kernel.rtnetlink.netlink import Message, NetlinkError, NetlinkSocket
from weft.model.value import Value

_COUNTERS: Final = ("sent", "received")  # as in path.c
_SETTINGS: Final = Struct("=4s2sHII")  # struct settings in path.c
_SUBNET: Final = Struct("=I4s")
_FORWARD: Final = Struct("=4sI")
_COUNT: Final = Struct("=Q")
_MOST_FORWARDS: Final = 1 << 16
# As in path.c.
_MAPS: Final = {
    "settings": partial(bpf.create_map, bpf.MAP_ARRAY, key=4, value=_SETTINGS.size, entries=1),
    "forwards": partial(
        bpf.create_map,
        bpf.MAP_LPM_TRIE,
        key=_SUBNET.size,
        value=_FORWARD.size,
        entries=_MOST_FORWARDS,
        flags=bpf.F_NO_PREALLOC,
    ),
    "counters": partial(bpf.create_map, bpf.MAP_PERCPU_ARRAY, key=4, value=_COUNT.size, entries=len(_COUNTERS)),
}
_OLDEST: Final = (5, 12)  # before, bpf_fib_lookup does not tell that a packet is too long for its path
_FIRST: Final = bytes(4)  # the key of the only settings
_SIOCGIFHWADDR: Final = 0x8927  # linux/sockios.h
_IFREQ: Final = Struct("16sH22x")  # struct ifreq: name, family of the address, which is the kind of device
_LINK_HEADER: Final = {1: 14, 772: 14, 512: 0, 768: 0, 778: 0, 0xFFFE: 0}  # bytes by ARPHRD_* (linux/if_arp.h)
_UNKNOWN_HEADER: Final = 0xFFFF  # no packet is so long: what comes is left to the relay
HOOKS: Final = {"in": tc.HOOK_IN, "out": tc.HOOK_OUT}
MARK: Final = "weft-udp"
_GONE: Final = (errno.ENOENT, errno.ENODEV, errno.EINVAL)
_NAME: Final = re.compile(rf"(?P<pair>{MARK}-(?P<build>[0-9a-f]+)-[0-9]+)-(?P<direction>in|out)")


class Job(Value):
    """Packets of `device` go out of `uplink` to peers, from `local` and to `port`, and come back."""

    device: str
    uplink: str
    local: IPv4Address
    port: int


class Forward(Value, kw_only=False):
    """The peer of a subnet. The relay sends its packets unless the `kernel` programs can."""

    via: IPv4Address
    kernel: bool


class Attached(NamedTuple):
    device: int
    direction: str
    priority: int
    build: str
    pair: str
    program: int


class Hooks:
    def __init__(self) -> None:
        self._socket = NetlinkSocket.open()

    def close(self) -> None:
        self._socket.close()

    def attach(self, index: int, hook: int, name: str, program: int) -> str:
        """Attach a program in place of ours. EBUSY where somebody else's qdisc does not allow it.

        It comes behind another's program with our priority; the text says so, else it is empty.
        """
        self._request(tc.add_clsact(index), but=(errno.EEXIST,))
        if hook not in self._hooks(index):
            raise OSError(errno.EBUSY, "a qdisc that takes no programs for what is sent")
        there = list(self._filters(index, hook))
        ours = (each.priority for each in there if _NAME.fullmatch(each.name))
        taken = {each.priority: each for each in there}
        priority = next(ours, next(number for number in count(tc.BPF_PRIORITY) if number not in taken))
        self._request(tc.set_program(index, hook, priority, name, program))
        first = taken.get(tc.BPF_PRIORITY)  # who was there may have gone since
        return "" if first is None or _NAME.fullmatch(first.name) else _words(first, index, hook, priority)

    def detach(self, attached: Attached) -> None:
        """Remove a program but leave the qdisc: removing that too loses the device's packets of a moment."""
        self._request(tc.delete_program(attached.device, HOOKS[attached.direction], attached.priority), but=_GONE)

    def delete_empty(self, index: int) -> None:
        """Delete a device's qdisc for programs if it holds none and is not somebody else's."""
        hooks = self._hooks(index)
        if len(hooks) == len(HOOKS) and not any(self._socket.dump(*tc.list_hooked(index, hook)) for hook in hooks):
            self._request(tc.delete_clsact(index), but=_GONE)

    def attached(self) -> Iterator[Attached]:
        """All our programs, of whatever build."""
        for index, hooks in map(tc.hooks_in, self._socket.dump(*tc.list_qdiscs())):
            for direction in (direction for direction, hook in HOOKS.items() if hook in hooks):
                for found in self._filters(index, HOOKS[direction]):
                    named = _NAME.fullmatch(found.name)
                    if found.program and named and named["direction"] == direction:
                        yield Attached(index, direction, found.priority, named["build"], named["pair"], found.program)

    def _filters(self, index: int, hook: int) -> Iterator[tc.Hooked]:
        return map(tc.parse_hooked, self._socket.dump(*tc.list_hooked(index, hook)))

    def _hooks(self, index: int) -> tuple[int, ...]:
        qdiscs = map(tc.hooks_in, self._socket.dump(*tc.list_qdiscs()))
        return next((hooks for device, hooks in qdiscs if device == index and hooks), ())

    def _request(self, message: Message, *, but: Collection[int] = ()) -> None:
        try:
            self._socket.request(message)
        except NetlinkError as error:
            if error.errno not in but:
                raise


def _words(there: tc.Hooked, index: int, hook: int, priority: int) -> str:
    direction = "ingress" if hook == tc.HOOK_IN else "egress"
    named = f" {there.name!r}" if there.name else ""
    numbered = f", program {there.program}" if there.program else ""
    return (
        f"{socket.if_indextoname(index)} {direction}: a filter of another program ({there.kind}{named}{numbered}) has"
        f" priority {tc.BPF_PRIORITY}, so ours has {priority}: packets that it keeps do not reach ours"
    )


class Programs:
    """Attached programs and their maps. Each method raises `OSError`. One thread at a time.

    `behind` says what is before them at a device.
    """

    def __init__(self, job: Job, maps: Mapping[str, int], there: Sequence[Attached], held: ExitStack) -> None:
        self.job = job
        self.behind: tuple[str, ...] = ()
        self._maps = maps
        self._there = there
        self._held = held

    def close(self) -> None:
        """Let go of the maps; the programs stay attached."""
        self._held.close()

    def is_attached(self) -> bool:
        """Tell whether all is attached as it was, and nothing else."""
        with closing(Hooks()) as hooks:
            return list(hooks.attached()) == self._there

    def change(self, changes: Mapping[IPv4Network, Forward | None]) -> None:
        """None deletes a forward."""
        _change(self._maps["forwards"], changes)

    def forwards(self) -> dict[IPv4Network, Forward]:
        found = {}
        for key, value in bpf.entries(self._maps["forwards"], _SUBNET.size, _FORWARD.size):
            length, address = _SUBNET.unpack(key)
            via, kernel = _FORWARD.unpack(value)
            found[IPv4Network((address, length))] = Forward(IPv4Address(via), bool(kernel))
        return found

    def packets(self) -> dict[str, int]:
        """How many packets were `sent` and `received` since the programs were attached."""
        size = _COUNT.size * bpf.processors()
        found = {}
        for number, name in enumerate(_COUNTERS):
            values = bpf.lookup(self._maps["counters"], number.to_bytes(4, sys.byteorder), size)
            found[name] = sum(value for (value,) in _COUNT.iter_unpack(values))
        return found

    @classmethod
    def attach(cls, job: Job, forwards: Mapping[IPv4Network, Forward]) -> Self:
        """Load and attach the programs in place of older ones, with these forwards from the first packet on."""
        with ExitStack() as held, ExitStack() as loading, closing(Hooks()) as hooks:
            programs, maps = _load(held, loading)
            _change(maps["forwards"], forwards)
            indexes = {"in": socket.if_nametoindex(job.uplink), "out": socket.if_nametoindex(job.device)}
            settings = _SETTINGS.pack(
                job.local.packed,
                job.port.to_bytes(2, "big"),
                _link_header(job.uplink),
                indexes["in"],
                indexes["out"],
            )
            bpf.update(maps["settings"], _FIRST, settings)
            pair = f"{MARK}-{_build()}-{bpf.map_id(maps['settings'])}"
            behind = [
                hooks.attach(index, HOOKS[direction], f"{pair}-{direction}", programs[direction])
                for direction, index in indexes.items()
            ]
            for old in list(hooks.attached()):
                if old.device != indexes[old.direction]:
                    hooks.detach(old)
            made = cls(job, maps, list(hooks.attached()), held.pop_all())
            made.behind = tuple(filter(None, behind))
            return made

    @classmethod
    def find(cls, device: str) -> Self | None:
        """Find a complete pair of this build, else None. `PermissionError` without SYS_ADMIN."""
        with closing(Hooks()) as hooks:
            there = list(hooks.attached())
        if len(there) != len(HOOKS) or len({each.pair for each in there}) != 1 or there[0].build != _build():
            return None
        with ExitStack() as held:
            maps = bpf.maps_of(there[0].program)
            for descriptor in maps.values():
                held.callback(os.close, descriptor)
            if not maps.keys() >= _MAPS.keys():
                return None
            local, port, _, *indexes = _SETTINGS.unpack(bpf.lookup(maps["settings"], _FIRST, _SETTINGS.size))
            if {each.direction: each.device for each in there} != dict(zip(HOOKS, indexes, strict=True)):
                return None
            uplink, found = map(socket.if_indextoname, indexes)
            job = Job(device=found, uplink=uplink, local=IPv4Address(local), port=int.from_bytes(port, "big"))
            return cls(job, maps, there, held.pop_all()) if found == device else None
        return None


def missing(*, attach: bool) -> str:
    """Say why this machine cannot load the programs; empty if it can.

    With `attach` it also attaches them to a device that it makes for a moment.
    """
    if PATH.built() is None:
        return "this weft was built without clang"
    if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < _OLDEST:
        return f"Linux {os.uname().release} is older than {'.'.join(map(str, _OLDEST))}, and minds no MTU of a path"
    try:
        with ExitStack() as held:
            programs, _ = _load(held, held)
            if attach:
                index = held.enter_context(tun.trial())
                traffic = held.enter_context(closing(Hooks()))
                for direction, hook in HOOKS.items():
                    traffic.attach(index, hook, "weft-trial", programs[direction])
    except OSError as error:
        return f"the kernel does not take the programs: {error.strerror or error}"
    return ""


def _change(forwards: int, changes: Mapping[IPv4Network, Forward | None]) -> None:
    for network, forward in changes.items():
        key = _SUBNET.pack(network.prefixlen, network.network_address.packed)
        if forward is not None:
            bpf.update(forwards, key, _FORWARD.pack(forward.via.packed, forward.kernel))
            continue
        with suppress(FileNotFoundError):
            bpf.delete(forwards, key)


def _load(held: ExitStack, loading: ExitStack) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the programs' descriptors, which `loading` closes, and those of the maps, which `held` closes."""
    file = PATH.built()
    if file is None:
        raise OSError(errno.ENOENT, PATH.hint)
    try:
        read = bpf.read(file.read_bytes())
    except bpf.Unreadable as error:
        raise OSError(errno.ENOEXEC, f"{file}: {error}") from None
    maps, programs = {}, {}
    for name, made in _MAPS.items():
        maps[name] = made(name)
        held.callback(os.close, maps[name])
    for name, program in read.programs.items():
        programs[name] = bpf.load_program(f"weft_udp_{name}", program.with_maps(maps), read.license)
        loading.callback(os.close, programs[name])
    return programs, maps


def _build() -> str:
    file = PATH.built()
    return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _link_header(uplink: str) -> int:
    """The size of the header before packets that a device has received."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = ioctl(any_socket, _SIOCGIFHWADDR, _IFREQ.pack(uplink.encode(), 0))
    return _LINK_HEADER.get(_IFREQ.unpack(answer)[1], _UNKNOWN_HEADER)


def detach_all(*, wholly: bool = False) -> list[str]:
    """Detach all our programs in this network namespace, and return the names of their devices.

    `wholly`: delete the qdiscs too, unless they hold something else; this loses the packets of a moment.
    """
    with closing(Hooks()) as hooks:
        there = list(hooks.attached())
        for each in there:
            hooks.detach(each)
            if wholly:
                hooks.delete_empty(each.device)
    return [socket.if_indextoname(each.device) for each in there]


def present() -> list[str]:
    with closing(Hooks()) as hooks:
        return [socket.if_indextoname(each.device) for each in hooks.attached()]
