"""Sees what this machine says of itself, and its other programs: its name, managers' files, the clock, counters.

Each function raises `OSError` for what cannot be read, and passes over what is not there.
"""

import ctypes
import os
import struct
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from weft.diag.sight.node import Clock
from weft.model.kernel.reported import LinkInfo

_NETWORKD: Final = "systemd/netif/links"
_NETWORKMANAGER: Final = "NetworkManager/devices"
# By the name of their process, of which the kernel keeps 15 bytes.
_LINK_PROGRAMS: Final = {
    "systemd-network": "systemd-networkd",
    **{name: name for name in ("NetworkManager", "dhclient", "dhcpcd", "udhcpc", "connmand")},
}
_SNMP: Final = ("snmp", "netstat")
_NAMED: Final = ("snmp6", "xfrm_stat")  # a name and a number in each line
# Files below stat of which the kernel keeps a line for each processor, in hexadecimal, and how we call them.
_STATISTICS: Final = {"nf_conntrack": "Conntrack", "arp_cache": "Neighbours4", "ndisc_cache": "Neighbours6"}
_COUNTED: Final = ("insert_failed", "drop", "table_fulls")
_TIMEX_SIZE: Final = 256  # bytes; `struct timex` of adjtimex(2) has 208
_STATUS: Final = 40  # where in it `status` is, with 64 bits
_UNSYNCHRONISED: Final = 0x40  # STA_UNSYNC


def node_name() -> str:
    """This node's host name, or words for it where the kernel has none: it says `(none)` then."""
    name = os.uname().nodename
    return "this node" if name in ("", "(none)") else name


def managers(run: Path, links: Iterable[LinkInfo]) -> dict[str, str]:
    """The program that manages each link, by the link's name, as its own files below /run say."""
    found: dict[str, str] = {}
    for link in links:
        networkd = _variables(run / _NETWORKD / str(link.index))
        if networkd.get("NETWORK_FILE") and networkd.get("ADMIN_STATE") != "unmanaged":
            found[link.name] = "systemd-networkd"
        elif _variables(run / _NETWORKMANAGER / str(link.index)).get("managed") == "true":
            found[link.name] = "NetworkManager"
    return found


def link_programs(running: Collection[str]) -> frozenset[str]:
    return frozenset(name for comm, name in _LINK_PROGRAMS.items() if comm in running)


def _variables(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(errors="replace")
    except FileNotFoundError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in text.splitlines())}


def clock() -> Clock:
    """Read it without setting anything (adjtimex(2))."""
    timex = ctypes.create_string_buffer(_TIMEX_SIZE)  # all zero: it is asked, and nothing is set
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(timex) == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), "adjtimex")
    (status,) = struct.unpack_from("=i", timex.raw, _STATUS)
    return Clock(unix=time.time(), synchronised=not status & _UNSYNCHRONISED)


def counters(proc: int, *, own: str = "self") -> dict[str, int]:
    """The kernel's counters of a process's or thread's network namespace; `proc` is a descriptor of /proc.

    Those of links are named `Link.rx.eth0` and `Link.tx.eth0`: what the link has dropped, not its queue.
    """

    def read(file: str) -> str:
        with os.fdopen(os.open(f"{own}/net/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)) as opened:
            return opened.read()

    found = dict[str, int]()
    for file in _SNMP:
        found |= _snmp(read(file))
    for file in _NAMED:
        with suppress(FileNotFoundError):  # no IPv6, no xfrm
            found |= {name: int(number) for name, number in map(str.split, read(file).splitlines())}
    found |= links(read("dev"))
    for name, ours in _STATISTICS.items():
        with suppress(FileNotFoundError):
            found |= {f"{ours}.{each}": count for each, count in statistics(read(f"stat/{name}")).items()}
    return found


def links(text: str) -> dict[str, int]:
    """Read the dropped packets in /proc/net/dev: two lines of names, and for each link eight numbers and eight more."""
    rows = (line.rpartition(":") for line in text.splitlines()[2:])
    numbers = {name.strip(): each.split() for name, _, each in rows}
    return {
        f"Link.{way}.{name}": int(each[column])
        for name, each in numbers.items()
        for way, column in (("rx", 3), ("tx", 11))
    }


def _snmp(text: str) -> dict[str, int]:
    """Read /proc/net/snmp or netstat (proc(5)): a line of names and one of numbers for each protocol."""
    lines = [line.split() for line in text.splitlines()]
    return {
        f"{names[0].rstrip(':')}.{name}": int(number)
        for names, numbers in zip(lines[::2], lines[1::2], strict=True)
        for name, number in zip(names[1:], numbers[1:], strict=True)
    }


def statistics(text: str) -> dict[str, int]:
    """Sum a file of /proc/net/stat: a line of names, and one of numbers for each processor."""
    names, *lines = [line.split() for line in text.splitlines()]
    columns = {name: names.index(name) for name in _COUNTED if name in names}
    return {name: sum(int(line[column], 16) for line in lines) for name, column in columns.items()}
