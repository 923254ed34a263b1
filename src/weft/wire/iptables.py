"""The text of iptables: of `iptables-save` for one table, and for `iptables-restore --noflush`, which is atomic.

A rule is the text behind `-A CHAIN `, so that present and wanted rules compare as text.
"""

from collections.abc import Iterable, Mapping, Sequence

# The rules of each chain of one table, in order.
Table = Mapping[str, Sequence[str]]


def parse(save: str) -> dict[str, list[str]]:
    """Read `iptables-save -t TABLE`."""
    table: dict[str, list[str]] = {}
    # A comment may hold what `splitlines` takes for the end of a line.
    for line in save.split("\n"):
        if line.startswith(":"):
            table[line[1:].partition(" ")[0]] = []
        elif line.startswith("-A "):
            chain, _, rule = line[3:].partition(" ")
            table.setdefault(chain, []).append(rule)
    return table


def payload(name: str, lines: Iterable[str]) -> str:
    text = "".join(f"{line}\n" for line in lines)
    return f"*{name}\n{text}COMMIT\n" if text else ""


def missing_chains(have: Table, names: Iterable[str]) -> list[str]:
    """iptables-restore refuses them if somebody else has made one in the meantime."""
    return [f"-N {name}" for name in names if name not in have]


def removal(have: Table, chain: str, origin: str) -> list[str]:
    """Also removes the rules of `origin` that lead there. Empty without the chain."""
    if chain not in have:
        return []
    return [*(f"-D {origin} {rule}" for rule in leading(have, origin, chain)), f"-F {chain}", f"-X {chain}"]


def leading(have: Table, origin: str, chain: str) -> list[str]:
    return [rule for rule in have.get(origin, ()) if target(rule) == chain]


def target(rule: str) -> str:
    """The chain or target to which a rule leads; else ""."""
    match rule.split(" ")[-2:]:
        case ["-j" | "-g", name] if not name.endswith('"'):  # else these are words of a comment
            return name
    return ""


def comment(text: str) -> str:
    return f"-m comment --comment {quoted(text, always=True)}"


def quoted(word: str, *, always: bool = False) -> str:
    """Quote a word if iptables-restore needs that; a comment is always quoted."""
    if not always and word and not any(char in " \"'\\" for char in word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
