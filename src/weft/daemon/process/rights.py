"""Gives away the capabilities that the daemon never uses, before anything from outside is read (capabilities(7)).

What is given away is gone for every thread and program that is started later, so this comes before all others.
One thread alone keeps one right more, for a while (`daemon.process.modules`).
"""

import ctypes
import struct
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import Final

from weft.daemon.process.modules import Modules

# linux/capability.h: what each is for here.
KEPT: Final = {
    0: "CHOWN: files of CNI plugins keep their owner",
    1: "DAC_OVERRIDE: directories below which a runtime of another user keeps its files",
    3: "FOWNER: modes of such files",
    10: "NET_BIND_SERVICE: --healthz-port below 1024",
    12: "NET_ADMIN: devices, routes, rules, settings, in containers as well",
    13: "NET_RAW: asking by ARP whether an address is alive, and iptables",
    38: "PERFMON: without it older kernels refuse programs that a compiler has made",
    39: "BPF: back end udp in the kernel",
}
_SYS_MODULE: Final = 16
_BRIDGE_FILTER: Final = Path("/proc/sys/net/bridge")
_VERSION_3: Final = 0x20080522
_HEADER: Final = struct.Struct("=Ii")  # struct __user_cap_header_struct: version, pid (0: this thread)
_DATA: Final = struct.Struct("=IIIIII")  # two of struct __user_cap_data_struct: effective, permitted, inheritable
_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4


def kept() -> int:
    """Return the bits of the capabilities that the daemon needs."""
    return sum(1 << number for number in KEPT)


def give_away_all_but_modules(bridge_filter: Path = _BRIDGE_FILTER) -> Modules:
    """Keep the capabilities in `kept`; where br_netfilter is not loaded, a thread keeps the right to load it.

    `daemon.host` loads it, if the network wants it.
    """
    with_modules = partial(_give_away, kept() | 1 << _SYS_MODULE)
    modules = Modules() if bridge_filter.exists() else Modules.apart(with_modules)
    _give_away(kept())
    return modules


def _give_away(bits: int) -> None:
    """Keep these capabilities, as far as they are there; what the kernel refuses to take stays as well."""
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel says no of the first number that it does not know.
    for number in takewhile(lambda number: libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) >= 0, count()):
        if not bits >> number & 1:
            libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = ctypes.create_string_buffer(_HEADER.pack(_VERSION_3, 0))
    held = ctypes.create_string_buffer(_DATA.size)
    if libc.capget(header, held):
        return
    low, high = bits & 0xFFFFFFFF, bits >> 32
    effective, permitted, _, high_effective, high_permitted, _ = _DATA.unpack(held.raw)
    left = _DATA.pack(effective & low, permitted & low, 0, high_effective & high, high_permitted & high, 0)
    libc.capset(header, left)
