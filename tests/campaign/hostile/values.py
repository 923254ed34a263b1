"""Values that nobody expects where they stand: texts, numbers, names, versions, and whole trees of them."""

from copy import deepcopy
from random import Random
from typing import Any, Final

Json = Any

TEXTS: Final = (
    *("", " ", ".", "..", "/", "//", "-", "--help", "lo", "eth0", "x" * 15, "x" * 16),
    *("x" * 300, "x" * 70_000, "../../../etc/passwd", "/../../etc", "/proc/self/fd/0", "/dev/null"),
    *("/etc/passwd/x", "net/../../x", "a/b", "\0", "a\0b", "\n", "a\nb", "\x1b[31m", "\x7f", "\u202ebad"),
    *("\ud800", "\xe9" * 8, "\U0001f9f5", "%s%n", "$(id)", "a b", "';--", '"', "\\"),
    *("{}", "[]", "true", "0", "-1", "1.1.0", "host-local", "garbage", "noisy", "dies", "nope", "../garbage"),
    *("10.99.0.5", "10.99.0.0/24", "10.99.0.0/33", "10.99.0.0/", "/24", "0.0.0.0/0", "255.255.255.255/32"),
    *("300.1.1.1", "::", "::/0", "fd00::/64", "fe80::1%eth0", "::ffff:10.0.0.1", "2001:db8::1/129", "224.0.0.1"),
    *("127.0.0.1/8", "010.1.1.1", "aa:bb:cc:dd:ee:ff", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "aa:bb", "tcp"),
    *("sctp", "icmp", "iptables", "nftables"),
)
NUMBERS: Final = (
    *(0, 1, -1, 2, 67, 255, 1500, 4095, 65535, 65536, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63, 1 << 64, 10**40),
    -(1 << 63),
)
OTHERS: Final = (
    *(None, True, False, 0.5, -0.0, 1e308, [], {}, [[]], [{}], [None], {"": None}, {"\0": "\0"}),
    [1, "x", {}, []],
)
NAMES: Final = (
    *("../../etc", "..", ".", "/", "a/b", "-x", "_x", " net", "net ", "n\0t", "n\nt", "\xf1et", "net\u200b"),
    *("a:b", "\ud800", "\x1b"),
)
VERSIONS: Final = (
    *("9.9.9", "1.0", "1.0.0.0", "v1.0.0", "1.1.0 ", "one", "0", "-1.0.0", "1.1.0\0", "\u0661.\u0660.\u0660"),
    *("9" * 5000, "2.0.0"),
)
IFNAMES: Final = (
    *(".", "..", "a/b", "a:b", "a b", "x" * 16, "x" * 5000, "a\tb", "\xe9" * 8),
    *("\u2003x", "../eth0", "a\nb", "/"),
)
ARGS: Final = (
    *("=", ";", "a", "a=b", "a=b=c", ";;;", "IP=", "IP=x", "IP=10.99.0.7", "IP=10.99.0.0/33", "MAC=x"),
    *("MAC=aa:bb:cc:dd:ee:ff", "IgnoreUnknown=1;a=b", "IgnoreUnknown=perhaps", "IgnoreUnknown=1;IP=::/0"),
    *("\n=\n", "x" * 100_000, "k=v;" * 20_000, "\xe9=\xfc"),
)
NAMESPACES: Final = (
    *("/none/here", "/etc/passwd", "/proc", "/proc/self/ns/mnt", "relative", "/" * 4096, "x" * 100_000, "\n"),
    "/dev/null",
)


def value(chance: Random, depth: int = 0) -> Json:
    """Something that is not expected where it stands."""
    match chance.randrange(12):
        case 0 | 1 | 2 | 3 | 4:
            return chance.choice(TEXTS)
        case 5 | 6:
            return chance.choice(NUMBERS)
        case 7 | 8:
            return deepcopy(chance.choice(OTHERS))
        case 9 if depth < 2:
            return [value(chance, depth + 1) for _ in range(chance.choice((1, 2, 300)))]
        case 10 if depth < 2:
            return {chance.choice(TEXTS): value(chance, depth + 1) for _ in range(3)}
    nested: Json = 1
    for _ in range(chance.choice((3, 60, 150))):
        nested = [nested] if chance.random() < 0.5 else {"a": nested}
    return nested
