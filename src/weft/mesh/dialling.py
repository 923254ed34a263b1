"""Which addresses are dialled when: each one longer after the last time in vain, and none in step with the others."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final

from weft.mesh.recent import Recent
from weft.model.value import Value

FIRST: Final = 1.0  # seconds
FACTOR: Final = 1.5
LONGEST: Final = 60.0
LASTED: Final = 60.0  # a link that lived so long was no failure
UNREACHED: Final = 10.0  # one member that no link leads to is dialled every so often
ALONE: Final = 1.0  # without any link


class _Pace(Value, frozen=False):
    wait: float = FIRST
    next: float = 0.0


class Dialling:
    """Names are keys of peers, or addresses of which nothing else is known."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._paces = Recent[bytes | str, _Pace]()
        self._calls: dict[str, bytes | str] = {}  # addresses that are being dialled
        self._attempts = Recent[bytes | str, int]()
        self._unreached = 0.0

    def dial(self, wanted: Iterable[tuple[bytes | str, Sequence[str]]], now: float) -> tuple[list[str], float]:
        """Addresses to dial now, of those wanted, and when to ask again. A name may have several addresses."""
        calls, due = [], inf
        busy = set(self._calls.values())
        for name, addresses in wanted:
            if name in busy or not addresses:
                continue
            pace = self._paces.setdefault(name, _Pace())
            if pace.next > now:
                due = min(due, pace.next)
                continue
            attempt = self._attempts.get(name, 0)
            self._attempts[name] = attempt + 1
            address = addresses[attempt % len(addresses)]
            if address not in self._calls:
                calls.append(address)
                self._calls[address] = name
                busy.add(name)
            self._later(pace, now)
            due = min(due, pace.next)
        return calls, due

    def unreached(self, names: Sequence[tuple[bytes, Sequence[str]]], now: float, *, alone: bool) -> list[str]:
        """One of the members that no link leads to, whatever its pace; called at any time."""
        if now < self._unreached or not names:
            return []
        self._unreached = now + (ALONE if alone else UNREACHED) * (0.5 + self._chance())
        name, addresses = names[int(self._chance() * len(names))]
        address = addresses[int(self._chance() * len(addresses))]
        if address in self._calls:
            return []
        self._calls[address] = name
        return [address]

    def answered(self, address: str) -> None:
        self._calls.pop(address, None)

    def ended(self, names: Iterable[bytes | str], lived: float) -> None:
        """A link that we had dialled is down."""
        if lived >= LASTED:
            for name in names:
                self._paces.pop(name, None)

    def _later(self, pace: _Pace, now: float) -> None:
        pace.next = now + pace.wait * (0.5 + self._chance())
        pace.wait = min(pace.wait * FACTOR, LONGEST)
