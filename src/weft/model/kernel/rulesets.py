"""Firewall rules as values: the chains of a family, replaced as a whole (docs/decisions/0004)."""

from typing import Final

from weft.model.kernel.objects import Object, Ownership
from weft.model.value import Value, put_in

_MASQ: Final = "--ip-masq"
_FORWARD: Final = "--iptables-forward-rules"


class Chain(Value):
    """`rules` are in the tool's own syntax.

    `hook` is nft's text behind `chain NAME {` (`type nat hook postrouting priority srcnat; …`). For iptables `table` is
    `nat` or `filter`, and `jump_from` the built-in chain that jumps here.
    """

    name: str
    rules: tuple[str, ...]
    table: str = ""
    hook: str = ""
    comment: str = ""
    jump_from: str = ""
    jump: str = ""


class RuleSet(Object):
    """Our rules of one kind (`nft` or `iptables`) and family (4 or 6)."""

    kind: str
    family: int
    chains: tuple[Chain, ...] = ()

    rank = 6
    code_if_unwanted = "NFT-002"
    patience = 10.0
    unwanted = f"none of {_MASQ}, {_FORWARD} and EnableNFTables asks for it"

    def __post_init__(self) -> None:
        put_in(self, "key", ("ruleset", self.kind, self.family))

    def __str__(self) -> str:
        chains = ", ".join(f"{chain.name} ({len(chain.rules)})" for chain in self.chains)
        return f"ruleset {self.kind} IPv{self.family}: {chains or 'none'}"

    def is_within(self, ownership: Ownership) -> bool:  # noqa: ARG002 - one daemon alone keeps the rules of a node
        return True

    @property
    def code(self) -> str:
        return "NFT-002"

    def reason(self) -> str:
        flags = dict.fromkeys(_MASQ if "nat" in (chain.table or chain.hook) else _FORWARD for chain in self.chains)
        return ", ".join(flags)
