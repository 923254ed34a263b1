"""A copy of objects of the API in memory, and how far it can be trusted."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from weft.cluster.kube.client import Client
from weft.cluster.kube.collection import Collection, gathered, is_older
from weft.model.errors import Problem, Unavailable
from weft.model.policy import Id
from weft.wire.kubelist import Happened, Page


class Identified(Protocol):
    @property
    def id(self) -> Id: ...


T = TypeVar("T", bound=Identified)


class Mirror(Generic[T]):
    """`touched` is called with the ids of what has changed, and with none when `complete` or `problem` has.

    It is complete after its first list. While there is a problem, it may be old.
    """

    def __init__(self, client: Client, what: Collection[T], touched: Callable[[Iterable[Id]], None]) -> None:
        self.items: dict[Id, T] = {}
        self.complete = False
        self.problem: Problem | None = None
        self._client = client
        self.what = what
        self._touched = touched
        self._version = ""  # up to which all is known
        self._asked: dict[Id, str] = {}  # the versions of what was read beside, which are newer than what is heard

    def get(self, name: Id) -> T | None:
        return self.items.get(name)

    def put(self, item: T, version: str) -> None:
        """What was read by itself. What is heard of it that is older counts no more, nor what has been heard since."""
        if version != self._version and not is_older(version, self._version) and self.items.get(item.id) != item:
            self._asked[item.id] = version
            self.items[item.id] = item
            self._touched((item.id,))

    async def list(self) -> str:
        found, version = await gathered(self._client, self.what, dict[Id, T], _take)
        for name in [each for each in list(self._asked) if self._is_overtaken(each, version)]:
            found[name] = self.items[name]
        self._version = version
        self._set(found)
        return version

    def _set(self, found: dict[Id, T]) -> None:
        before, self.items = self.items, found
        self.complete, self.problem = True, None
        self._touched({name for name in before.keys() | found.keys() if before.get(name) != found.get(name)})

    async def changed(self, events: Sequence[Happened[T]], version: str) -> bool:
        touched = set()
        for event in events:
            item, self._version = event.item, event.version
            if item is None or self._is_overtaken(item.id, event.version):
                continue
            before = self.items.pop(item.id, None)
            now = None if event.kind == "DELETED" else item
            if now is not None:
                self.items[item.id] = now
            if now != before:
                touched.add(item.id)
        await self.back(version)
        if touched:
            self._touched(touched)
        return bool(touched)

    async def lost(self, error: Unavailable) -> None:
        self.problem = error.problems[0]
        self._touched(())

    async def back(self, version: str) -> None:  # noqa: ARG002 - the protocol has it
        if self.problem is not None:
            self.problem = None
            self._touched(())

    def _is_overtaken(self, name: Id, version: str) -> bool:
        """Tell whether what was heard with this version is older than what was read beside."""
        if name not in self._asked:
            return False
        if is_older(version, self._asked[name]):
            return True
        del self._asked[name]
        return False


def _take(found: dict[Id, T], page: Page[T]) -> None:
    found.update((each.id, each) for each in page.items)
