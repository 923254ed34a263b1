"""The kernel's own way between the relay's device and the uplink: two eBPF programs, and what they know of peers.

They outlive the process that attached them. The programs are `bpf/path.c`; whatever they leave, the relay does.
"""

import errno
import hashlib
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from fcntl import ioctl
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from struct import Struct
from typing import Final, Self

from weft.forward.build import PATH
from weft.forward.hooks import HOOKS, MARK, Attached, Hooks
from weft.kernel import tun
from weft.kernel.bpf import calls, objectfile
from weft.model.value import Value

_COUNTERS: Final = ("sent", "received")  # as in path.c
_SETTINGS: Final = Struct("=4s2sHII")  # struct settings in path.c
_SUBNET: Final = Struct("=I4s")
_FORWARD: Final = Struct("=4sI")
_COUNT: Final = Struct("=Q")
_MOST_FORWARDS: Final = 1 << 16
# As in path.c.
_MAPS: Final = {
    "settings": partial(calls.create_map, calls.MAP_ARRAY, key=4, value=_SETTINGS.size, entries=1),
    "forwards": partial(
        calls.create_map,
        calls.MAP_LPM_TRIE,
        key=_SUBNET.size,
        value=_FORWARD.size,
        entries=_MOST_FORWARDS,
        flags=calls.F_NO_PREALLOC,
    ),
    "counters": partial(calls.create_map, calls.MAP_PERCPU_ARRAY, key=4, value=_COUNT.size, entries=len(_COUNTERS)),
}
_OLDEST: Final = (5, 12)  # before, bpf_fib_lookup does not tell that a packet is too long for its path
_FIRST: Final = bytes(4)  # the key of the only settings
_SIOCGIFHWADDR: Final = 0x8927  # linux/sockios.h
_IFREQ: Final = Struct("16sH22x")  # struct ifreq: name, family of the address, which is the kind of device
_LINK_HEADER: Final = {1: 14, 772: 14, 512: 0, 768: 0, 778: 0, 0xFFFE: 0}  # bytes by ARPHRD_* (linux/if_arp.h)
_UNKNOWN_HEADER: Final = 0xFFFF  # no packet is so long: what comes is left to the relay


class Job(Value):
    """What the programs do: packets of `device` go to peers from `local` and to `port` out of `uplink`, and back."""

    device: str
    uplink: str
    local: IPv4Address
    port: int


class Forward(Value, kw_only=False):
    """Where the packets of a subnet go and come from. The relay sends them unless the peer's `kernel` takes them."""

    via: IPv4Address
    kernel: bool


class Programs:
    """Programs that are attached, and their maps. Each method raises `OSError`. One thread at a time.

    `behind` says of what is before them at a device.
    """

    def __init__(self, job: Job, maps: Mapping[str, int], there: Sequence[Attached], held: ExitStack) -> None:
        self.job = job
        self.behind: tuple[str, ...] = ()
        self._maps = maps
        self._there = there
        self._held = held

    def close(self) -> None:
        """Let go of the maps; packets go on."""
        self._held.close()

    def is_attached(self) -> bool:
        """Tell whether all is attached as it was, and nothing else."""
        with Hooks() as hooks:
            return list(hooks.attached()) == self._there

    def change(self, changes: Mapping[IPv4Network, Forward | None]) -> None:
        """Set the forwards of subnets; None deletes one."""
        _change(self._maps["forwards"], changes)

    def forwards(self) -> dict[IPv4Network, Forward]:
        """All that is known of peers."""
        found = {}
        for key, value in calls.entries(self._maps["forwards"], _SUBNET.size, _FORWARD.size):
            length, address = _SUBNET.unpack(key)
            via, kernel = _FORWARD.unpack(value)
            found[IPv4Network((address, length))] = Forward(IPv4Address(via), bool(kernel))
        return found

    def packets(self) -> dict[str, int]:
        """How many packets were `sent` and `received` since the programs were attached."""
        size = _COUNT.size * calls.processors()
        found = {}
        for number, name in enumerate(_COUNTERS):
            values = calls.lookup(self._maps["counters"], number.to_bytes(4, sys.byteorder), size)
            found[name] = sum(value for (value,) in _COUNT.iter_unpack(values))
        return found

    @classmethod
    def attach(cls, job: Job, forwards: Mapping[IPv4Network, Forward]) -> Self:
        """Load and attach the programs, in place of those that are there; they know these forwards from the first."""
        with ExitStack() as held, ExitStack() as loading, Hooks() as hooks:
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
            calls.update(maps["settings"], _FIRST, settings)
            pair = f"{MARK}-{_build()}-{calls.map_id(maps['settings'])}"
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
        """Find what is attached whole, by this build; None for anything else. `PermissionError` without SYS_ADMIN."""
        with Hooks() as hooks:
            there = list(hooks.attached())
        if len(there) != len(HOOKS) or len({each.pair for each in there}) != 1 or there[0].build != _build():
            return None
        with ExitStack() as held:
            maps = calls.maps_of(there[0].program)
            for descriptor in maps.values():
                held.callback(os.close, descriptor)
            if not maps.keys() >= _MAPS.keys():
                return None
            local, port, _, *indexes = _SETTINGS.unpack(calls.lookup(maps["settings"], _FIRST, _SETTINGS.size))
            if {each.direction: each.device for each in there} != dict(zip(HOOKS, indexes, strict=True)):
                return None
            uplink, found = map(socket.if_indextoname, indexes)
            job = Job(device=found, uplink=uplink, local=IPv4Address(local), port=int.from_bytes(port, "big"))
            return cls(job, maps, there, held.pop_all()) if found == device else None
        return None


def missing(*, attach: bool) -> str:
    """Say why this machine cannot have it; empty if it can: the kernel takes the programs.

    With `attach` they are attached to a device as well, which is made for that and gone at the end.
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
                traffic = held.enter_context(Hooks())
                for direction, hook in HOOKS.items():
                    traffic.attach(index, hook, "weft-trial", programs[direction])
    except OSError as error:
        return f"the kernel does not take the programs: {error.strerror or error}"
    return ""


def _change(forwards: int, changes: Mapping[IPv4Network, Forward | None]) -> None:
    for network, forward in changes.items():
        key = _SUBNET.pack(network.prefixlen, network.network_address.packed)
        if forward is not None:
            calls.update(forwards, key, _FORWARD.pack(forward.via.packed, forward.kernel))
            continue
        with suppress(FileNotFoundError):
            calls.delete(forwards, key)


def _load(held: ExitStack, loading: ExitStack) -> tuple[dict[str, int], dict[str, int]]:
    """Load the programs: their descriptors, which `loading` closes, and those of their maps, which `held` does."""
    file = PATH.built()
    if file is None:
        raise OSError(errno.ENOENT, PATH.hint)
    try:
        read = objectfile.read(file.read_bytes())
    except objectfile.Unreadable as error:
        raise OSError(errno.ENOEXEC, f"{file}: {error}") from None
    maps, programs = {}, {}
    for name, made in _MAPS.items():
        maps[name] = made(name)
        held.callback(os.close, maps[name])
    for name, program in read.programs.items():
        programs[name] = calls.load_program(f"weft_udp_{name}", program.with_maps(maps), read.license)
        loading.callback(os.close, programs[name])
    return programs, maps


def _build() -> str:
    """What tells one build of the programs from another."""
    file = PATH.built()
    return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _link_header(uplink: str) -> int:
    """Bytes before a packet that a device has received."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = ioctl(any_socket, _SIOCGIFHWADDR, _IFREQ.pack(uplink.encode(), 0))
    return _LINK_HEADER.get(_IFREQ.unpack(answer)[1], _UNKNOWN_HEADER)
