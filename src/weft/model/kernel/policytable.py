"""The tables in which pods' policies stand, as objects: sets, chains and elements of nf_tables.

All that stands for a pod is an element, all that stands for a policy is a chain. No chain is changed while anything
leads to it: another text is another name, so ranks make an order of it: sets and chains beside what is there, then
elements, which lead packets to them, then the base chains, by which all becomes live. Removal is the reverse.
"""

from hashlib import blake2s
from typing import Final

from weft.model.kernel.nftset import Table
from weft.model.kernel.objects import Object, Ownership
from weft.model.value import put_in

INET: Final = "inet weft-policy"
BRIDGE: Final = "bridge weft-policy"
KINDS: Final = frozenset({"polset", "polchain", "polelement"})

_CHECKSUM_BYTES: Final = 16  # too many for a search for two texts with one name
_NAME_MOST: Final = 128  # nf_tables takes 255 letters; what is listed stays readable
_MARK: Final = 16  # letters of a checksum that stands for the end of a text


class _InTable(Object):
    """`table` is `INET` or `BRIDGE`."""

    table: str

    code_if_changed = code_if_refused = code_if_unwanted = "NFT-002"
    unwanted = "no policy in effect here asks for it"
    patience = 10.0

    def is_within(self, ownership: Ownership) -> bool:  # noqa: ARG002 - one daemon alone enforces on a node
        return True

    def reason(self) -> str:
        return "--network-policy"


class PolicySet(_InTable):
    """A set, or a map; `spec` is nft's text between the braces. Its name stands for its spec: another has another."""

    name: str
    spec: str

    rank = 7

    def __post_init__(self) -> None:
        put_in(self, "key", ("polset", self.table, self.name))

    def __str__(self) -> str:
        return f"set {self.table} {self.name}"

    @property
    def is_map(self) -> bool:
        return " : " in self.spec


class PolicyChain(_InTable):
    """`rules` are nft's text; `hook` is that of a base chain. Its name has a checksum of both (`named`)."""

    name: str
    rules: tuple[str, ...]
    hook: str = ""

    def __post_init__(self) -> None:
        put_in(self, "key", ("polchain", self.table, self.name))

    def __str__(self) -> str:
        return f"chain {self.table} {self.name} ({len(self.rules)})"

    @property
    def rank(self) -> int:  # type: ignore[override]
        return 10 if self.hook else 8


class PolicyElement(_InTable):
    """`element` is the key in the set, its fields padded (`nftset.field`); `verdict` is `accept` or a chain to go to.

    A comment has at most 127 bytes.
    """

    set: str
    element: bytes
    verdict: str = ""
    comment: str = ""

    rank = 9

    def __post_init__(self) -> None:
        put_in(self, "key", ("polelement", self.table, self.set, self.element))

    def __str__(self) -> str:
        shown = self.comment or self.element.hex()
        return f"element {self.table} {self.set} {shown}{f': {self.verdict}' if self.verdict else ''}"


def table_of(name: str) -> Table:
    return Table(*name.split(" "))


def named(prefix: str, rules: tuple[str, ...], hook: str = "", table: str = INET) -> PolicyChain:
    """A chain whose name is `prefix`, short, and a checksum of its text."""
    text = "\n".join((prefix, hook, *rules))
    name = f"{short(prefix, _NAME_MOST)}-{checksum(text)}"
    return PolicyChain(table=table, name=name, rules=rules, hook=hook)


def unnamed(name: str) -> str:
    """A chain's name without the checksum."""
    return name[: -2 * _CHECKSUM_BYTES - 1]


def short(text: str, most: int) -> str:
    """The text; of one with more than `most` bytes its beginning and a checksum, so that others do not look the same.

    No name of Kubernetes has the two dots between them, and nf_tables takes them in the name of a chain.
    """
    whole = text.encode()
    if len(whole) <= most:
        return text
    mark = f"..{checksum(text)[:_MARK]}"
    return whole[: most - len(mark)].decode(errors="ignore") + mark


def checksum(text: str) -> str:
    return blake2s(text.encode(), digest_size=_CHECKSUM_BYTES).hexdigest()
