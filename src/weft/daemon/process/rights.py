"""Gives away the capabilities that the daemon never uses (capabilities(7)).

That holds for all threads and programs that start later, so it comes before them.
"""

from functools import partial
from pathlib import Path
from typing import Final

from weft.daemon.process.modules import Modules
from weft.kernel import namespaces

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


def kept() -> int:
    """The bits of the capabilities in `KEPT`."""
    return sum(1 << number for number in KEPT)


def give_away_all_but_modules(bridge_filter: Path = _BRIDGE_FILTER) -> Modules:
    """Without br_netfilter, a thread keeps the right to load it, if the network wants it."""
    with_modules = partial(namespaces.keep, kept() | 1 << _SYS_MODULE)
    modules = Modules() if bridge_filter.exists() else Modules.apart(with_modules)
    namespaces.keep(kept())
    return modules
