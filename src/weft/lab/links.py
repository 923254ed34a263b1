"""What a lab's links do to packets, and which ways between nodes are cut. Pure: `inside.changes` sets it.

A quantity is written as `20ms`, `5%` or `50mbit` and kept as a number.
"""

import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from weft.model.errors import ConfigError, Problem
from weft.model.text import one_of
from weft.model.value import Value, replace

DAEMON: Final = "weftd"  # of a node, as in node1/weftd
ITSELF: Final = "the lab"  # beside the names of nodes in lists of events: what commands have done to the lab
STORE: Final = "store"  # stands beside the names of nodes: the place where the store is, at the switch itself

MOST_DELAY: Final = 60_000.0  # milliseconds
LEAST_RATE: Final = 8_000  # bits a second: a packet of 1,500 bytes takes 1.5 seconds
MOST_RATE: Final = 100_000_000_000
_NUMBER: Final = r"(\d+(?:\.\d*)?|\.\d+)"
_QUANTITY: Final = re.compile(rf"{_NUMBER}\s*([a-z%/]*)", re.IGNORECASE)
_MILLISECONDS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_SHOWN: Final = {"Gbit/s": 1_000_000_000, "Mbit/s": 1_000_000, "kbit/s": 1_000, "bit/s": 1}
_DIGITS: Final = 12  # of a quantity that is read again
_BITS: Final = {"bit": 1, "kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}


class Link(Value):
    """What a node's link does to packets in each direction.

    `delay` in milliseconds, `loss` in percent, `rate` in bits a second; 0 is none, of `rate` no limit.
    """

    up: bool = True
    delay: float = 0.0
    loss: float = 0.0
    rate: int = 0


class Change(Value):
    """None stays as it is. `clear` starts from a new link."""

    up: bool | None = None
    delay: float | None = None
    loss: float | None = None
    rate: int | None = None
    clear: bool = False

    def of(self, link: Link) -> Link:
        wanted = {"up": self.up, "delay": self.delay, "loss": self.loss, "rate": self.rate}
        start = Link() if self.clear else link
        return replace(start, **{name: value for name, value in wanted.items() if value is not None})


class Cut(Value):
    """No packet gets from `source` to `target`: nodes, or STORE."""

    source: str
    target: str


class Conditions(Value):
    """Links that are not as new, by node, and cuts."""

    links: Mapping[str, Link] = {}
    cuts: frozenset[Cut] = frozenset()

    def link(self, node: str) -> Link:
        return self.links.get(node, Link())

    def concern(self, node: str) -> bool:
        return self != self.without(node)

    def in_order(self) -> list[Cut]:
        return sorted(self.cuts, key=lambda cut: (cut.source, cut.target))

    def changed(self, nodes: Iterable[str], change: Change) -> "Conditions":
        links = {**self.links, **{node: change.of(self.link(node)) for node in nodes}}
        return replace(self, links={node: link for node, link in links.items() if link != Link()})

    def partitioned(self, ones: Collection[str], others: Collection[str], *, one_way: bool) -> "Conditions":
        """Each way from one group to another, and unless `one_way` the ways back."""
        return replace(self, cuts=self.cuts | _between(ones, others, one_way=one_way))

    def healed(self, ones: Collection[str], others: Collection[str]) -> "Conditions":
        return replace(self, cuts=self.cuts - _between(ones, others, one_way=False))

    def without(self, node: str) -> "Conditions":
        links = {name: link for name, link in self.links.items() if name != node}
        return Conditions(links=links, cuts=frozenset(cut for cut in self.cuts if node not in (cut.source, cut.target)))


def _between(ones: Collection[str], others: Collection[str], *, one_way: bool) -> frozenset[Cut]:
    there = {Cut(source=one, target=other) for one in ones for other in others}
    back = {Cut(source=other, target=one) for one in ones for other in others}
    return frozenset(there if one_way else there | back)


def group(text: str, known: Sequence[str]) -> list[str]:
    """Each once: `node1`, `node1,node3`, or `rack1-*`. `ConfigError` if a word means none of `known`."""
    found: list[str] = []
    for word in text.split(","):
        meant = fnmatch.filter(known, word)
        if not meant:
            hint = "Several are written as node1,node2 or 'node*'."
            raise ConfigError(Problem("LAB-002", word, "no node of this name", expected=one_of(known, word), hint=hint))
        found += (name for name in meant if name not in found)
    return found


def read_delay(text: str) -> float:
    """In milliseconds. `ValueError` says what is wrong."""
    number, unit = _split(text)
    if unit not in _MILLISECONDS and number:
        raise ValueError(f"{text!r} is no delay: one is written as 20ms, 1.5s or 800us")
    delay = number * _MILLISECONDS.get(unit, 1.0)
    if delay > MOST_DELAY:
        raise ValueError(f"{text!r} is more than a minute")
    return delay


def read_loss(text: str) -> float:
    """In percent. `ValueError` says what is wrong."""
    number, unit = _split(text)
    if unit not in ("", "%") or number > 100:
        raise ValueError(f"{text!r} is no share of packets: one is written as 5% or 0.1%, up to 100%")
    return number


def read_rate(text: str) -> int:
    """In bits a second. `ValueError` says what is wrong."""
    number, unit = _split(text)
    if unit not in _BITS and number:
        raise ValueError(f"{text!r} is no rate: one is written as 50mbit, 500kbit or 1gbit, in bits a second")
    rate = round(number * _BITS.get(unit, 1))
    if number and not LEAST_RATE <= rate <= MOST_RATE:
        raise ValueError(f"{text!r} is not between {shown_rate(LEAST_RATE)} and {shown_rate(MOST_RATE)}")
    return rate


def shown_delay(delay: float) -> str:
    return f"{delay:g} ms"


def shown_loss(loss: float) -> str:
    return f"{loss:g} %"


def shown_rate(rate: int) -> str:
    unit, size = next((unit, size) for unit, size in _SHOWN.items() if rate >= size or size == 1)
    return f"{rate / size:g} {unit}"


def written(link: Link) -> dict[str, str | bool]:
    """As a lab file has it; the readers above read the same."""
    unit, size = next((unit, size) for unit, size in reversed(_BITS.items()) if link.rate % size == 0)
    quantities = {
        "down": not link.up,
        "delay": link.delay and f"{link.delay:.{_DIGITS}g}ms",
        "loss": link.loss and f"{link.loss:.{_DIGITS}f}".rstrip("0").rstrip(".") + "%",
        "rate": link.rate and f"{link.rate // size}{unit}",
    }
    return {key: value for key, value in quantities.items() if value}


def words(link: Link) -> str:
    """Empty for a new link."""
    said = [] if link.up else ["down"]
    if link.delay:
        said.append(f"delay {shown_delay(link.delay)}")
    if link.loss:
        said.append(f"loss {shown_loss(link.loss)}")
    if link.rate:
        said.append(f"rate {shown_rate(link.rate)}")
    return ", ".join(said)


def _split(text: str) -> tuple[float, str]:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no number with a unit")
    return float(found[1]), found[2].lower()
