"""What is remembered of peers and addresses that nobody has checked, so there must be a most of it."""

from collections import OrderedDict
from typing import Final, TypeVar

from weft.model.mesh.records import MAX_PEERS

_K = TypeVar("_K")
_V = TypeVar("_V")
MOST: Final = 2 * MAX_PEERS  # members, and addresses that are no member's


class Recent(OrderedDict[_K, _V]):
    """Those that were put in last."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
