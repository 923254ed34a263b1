"""A user's command, as arguments: no shell ever sees it."""

import re
from collections.abc import Mapping
from typing import Final

from weft.model.value import Value

_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))", re.ASCII)


class Command(Value):
    """With `expands`, `$NAME` and `${NAME}` in each word stand for a variable, as in flannel (flannel.md §6.9)."""

    words: tuple[str, ...]
    expands: bool = True

    def __str__(self) -> str:
        """The program, and `…` for its arguments, which may hold credentials."""
        return f"{self.words[0]} …" if self.words[1:] else "".join(self.words)

    def arguments(self, variables: Mapping[str, str]) -> list[str]:
        """Replace variables, a missing one by nothing; no word is split again."""
        if not self.expands:
            return list(self.words)
        return [_VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), word) for word in self.words]
