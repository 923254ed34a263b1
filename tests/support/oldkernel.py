"""Hosts without nf_tables: iptables-legacy alone, and a kernel that knows no nfnetlink; or that lacks a system call.

The kernel's answer is a filter's (seccomp(2)): `socket(AF_NETLINK, …, NETLINK_NETFILTER)` fails in the program and in
all that it starts, as it does without CONFIG_NETFILTER_NETLINK.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from typing import Final

# Debian's legacy programs under the usual names, and no nft, where a program and those that it starts look.
_SCRIPT: Final = """
mount -t tmpfs tmpfs /mnt
for name in iptables ip6tables; do
    for part in '' -save -restore; do cp -a /usr/sbin/xtables-legacy-multi /mnt/$name$part; done
done
mount --bind /mnt /usr/sbin
umount /mnt
exec "$@"
"""
LEGACY: Final = ("unshare", "--mount", "sh", "-ec", _SCRIPT, "sh")
"""A command that runs another on a host whose only firewall program is iptables-legacy."""

NO_NF_TABLES: Final = (*LEGACY, sys.executable, __file__)
"""The same, on a kernel without nf_tables."""

_NETLINK_NETFILTER: Final = 12  # linux/netlink.h
_AF_NETLINK: Final = 16
_CALLS: Final = {
    **{
        "x86_64": {"socket": 41, "setsockopt": 54, "prlimit64": 302, "seccomp": 317},
        "aarch64": {"socket": 198, "setsockopt": 208, "prlimit64": 261, "seccomp": 277},
    }[platform.machine()],
    "pidfd_open": 434,
    "landlock_create_ruleset": 444,
}
_ALLOW: Final = 0x7FFF0000  # SECCOMP_RET_ALLOW, linux/seccomp.h
_ERRNO: Final = 0x00050000  # SECCOMP_RET_ERRNO
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
_NUMBER, _DOMAIN, _PROTOCOL = 0, 16, 32  # offsets in struct seccomp_data
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2


def refuse_nfnetlink() -> None:
    """Have this process, and all that it starts, find no nfnetlink."""
    _filter(
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 5, _CALLS["socket"]),
        (_LOAD, 0, 0, _DOMAIN),
        (_EQUAL, 0, 3, _AF_NETLINK),
        (_LOAD, 0, 0, _PROTOCOL),
        (_EQUAL, 0, 1, _NETLINK_NETFILTER),
        (_RETURN, 0, 0, _ERRNO | errno.EPROTONOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    )


def refuse(call: str, error: int, *, unless_0: int | None = None) -> None:
    """Have this thread, and all that it starts, get an error from a system call; 0 for one that only seems done.

    With `unless_0` it is carried out if the argument of that number is 0.
    """
    _filter(
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 3 if unless_0 is not None else 1, _CALLS[call]),
        *([(_LOAD, 0, 0, _DOMAIN + 8 * unless_0), (_EQUAL, 1, 0, 0)] if unless_0 is not None else []),
        (_RETURN, 0, 0, _ERRNO | error),
        (_RETURN, 0, 0, _ALLOW),
    )


def _filter(*steps: tuple[int, int, int, int]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _MODE_FILTER, program, 0, 0)):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse_nfnetlink()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606
