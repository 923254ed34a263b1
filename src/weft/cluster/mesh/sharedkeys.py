"""The keys of the mesh's passwords, each computed once: that takes a moment for a password of words."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from weft.beside.threads import beside
from weft.model.value import Secret
from weft.wire.meshpassword import shared


class SharedKeys:
    """`read` gives the passwords as they are now: none, one or two."""

    def __init__(self, read: Callable[[], Awaitable[tuple[Secret, ...]]]) -> None:
        self._read = read
        self._known: dict[Secret, bytes] = {}
        self._turn = asyncio.Lock()

    async def now(self) -> tuple[bytes, ...]:
        async with self._turn:  # or each of many links would compute the same
            passwords = await self._read()
            known, self._known = self._known, {}
            for each in passwords:
                self._known[each] = known[each] if each in known else await beside(partial(shared, each))
            return tuple(self._known.values())
