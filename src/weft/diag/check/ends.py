"""Who sends to whom: the ends of a check's trials, and the trials between them. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from weft.diag.check.scenarios import Scenario
from weft.diag.check.trial import Trial
from weft.model.net import Family
from weft.model.value import Value

_LOOPBACK: Final[dict[Family, str]] = {4: "127.0.0.1", 6: "::1"}


class End(Value):
    """A node or a pod. `mtu` is that of the pods of its node; `number` counts the pods of a node from 0.

    Where it is known, `bridge` is the index of the one in whose network a pod is.

    A `peer` is another node by the address of its device in the pod network. What is `afar` is another machine, which
    answers echo requests alone.
    """

    kind: Literal["pod", "node", "peer", "outside"]
    name: str
    node: str
    addresses: dict[Family, str]
    mtu: int
    number: int = 0
    afar: bool = False
    bridge: int = 0


def trials_of(scenario: Scenario, pairs: Iterable[tuple[End, End]], families: Sequence[Family]) -> Iterator[Trial]:
    """The trials of a scenario from the first to the second of each pair, in each family that both have."""
    for source, target in pairs:
        for family in families:
            address = _LOOPBACK[family] if scenario.where == "loopback" else target.addresses.get(family, "")
            if not address or family not in source.addresses:
                continue
            for protocol in ("icmp",) if target.afar else scenario.protocols:
                yield Trial(
                    scenario=scenario.name,
                    source=source.name,
                    target=target.name,
                    from_node=source.node,
                    to_node=target.node,
                    family=family,
                    protocol=protocol,
                    address=address,
                    size=_size(scenario, min(source.mtu, target.mtu)),
                    flows=scenario.flows,
                    afar=target.afar,
                )


def _size(scenario: Scenario, mtu: int) -> int:
    return {"any": 0, "mtu": mtu, "more": mtu + 1}[scenario.size]
