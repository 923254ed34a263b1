"""What `iptables-restore --noflush` does to a table, without a kernel. tests/kernel/test_iptables.py holds it to it."""

from collections.abc import Iterable

from weft.wire.iptables import Table, target

# Of those without options; "" stands for none, and for those with options.
_TARGETS = ("", "ACCEPT", "DROP", "MASQUERADE", "RETURN")


class Refused(Exception):
    """A line that iptables-restore refuses, and with it all others."""


def restore(have: Table, lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the table after these lines. Raises `Refused`."""
    table = {chain: list(rules) for chain, rules in have.items()}
    for line in lines:
        try:
            _carry_out(table, line)
        except (KeyError, ValueError) as error:
            raise Refused(line) from error
    return table


def _carry_out(table: dict[str, list[str]], line: str) -> None:
    verb, _, rest = line.partition(" ")
    chain, _, rule = rest.partition(" ")
    if line.startswith(":"):
        table[verb[1:]] = []
        return
    match verb:
        case "-N" if chain not in table:
            table[chain] = []
        case "-A" | "-I" if target(rule) not in {*table, *_TARGETS}:
            raise Refused(line)
        case "-A":
            table[chain].append(rule)
        case "-I":
            table[chain].insert(0, rule.removeprefix("1 "))
        case "-D":
            table[chain].remove(rule)
        case "-F":
            table[chain].clear()
        case "-X" if not table[chain] and not any(target(rule) == chain for rules in table.values() for rule in rules):
            del table[chain]
        case _:
            raise Refused(line)
