"""What is needed by several at once, counted, so that it goes with the last of them."""

from collections.abc import Hashable

from weft.model.kernel.objects import Key, Object


class Needed:
    """Objects by key, counted. Of one that is needed in several forms, the newest that is still needed counts."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.elements = 0
        self._again: dict[Key, int] = {}  # how often beyond the first
        self._forms: dict[Key, list[Object]] = {}  # each need of what is needed in several, instead
        self._touched: set[Key] = set()

    def need(self, thing: Object) -> None:
        key = thing.key
        before = self.objects.get(key)
        if before is None:
            self.elements += key[0] == "polelement"
        elif key in self._forms:
            self._forms[key].append(thing)
        elif before == thing:
            self._again[key] = self._again.get(key, 0) + 1
        else:
            self._forms[key] = [*[before] * (1 + self._again.pop(key, 0)), thing]
        self._set(key, thing)

    def unneed(self, thing: Object) -> None:
        key = thing.key
        if forms := self._forms.get(key):
            forms.remove(thing)
            self._set(key, forms[-1])
            if all(each == forms[0] for each in forms):
                del self._forms[key]
                self._again[key] = len(forms) - 1
        elif more := self._again.pop(key, 0):
            if more > 1:
                self._again[key] = more - 1
        else:
            del self.objects[key]
            self.elements -= key[0] == "polelement"
            self._touched.add(key)

    def _set(self, key: Key, thing: Object) -> None:
        if self.objects.get(key) != thing:
            self.objects[key] = thing
            self._touched.add(key)

    def touched(self) -> set[Key]:
        """The keys of what has changed since the last call."""
        touched, self._touched = self._touched, set()
        return touched


class Uses:
    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}

    def __contains__(self, use: Hashable) -> bool:
        return use in self._counts

    def first(self, use: Hashable) -> bool:
        """Count one more; tell whether it is the first."""
        self._counts[use] = self._counts.get(use, 0) + 1
        return self._counts[use] == 1

    def last(self, use: Hashable) -> bool:
        """Count one less; tell whether it was the last."""
        self._counts[use] -= 1
        if self._counts[use]:
            return False
        del self._counts[use]
        return True
