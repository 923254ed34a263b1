"""Lists objects of the API, of any kind, in pages, of which one at a time is in memory."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from weft.cluster.kube.client import JSON, Client
from weft.cluster.kube.problems import ExpiredError, LargeError, reading, silent
from weft.model.value import Value
from weft.wire.kubelist import Kind, Page

T = TypeVar("T")
FoundT = TypeVar("FoundT")

_AGAIN: Final = 0.2  # seconds before a list that was forgotten is asked for again
_LISTS: Final = 5
_DIGITS: Final = 20  # of a number of 64 bits


class Collection(Value, Generic[T]):
    """What is listed and watched as one: what lies at `path` and is selected by `query`; `page` objects at a time.

    `list_as` and `watch_as` are types that are asked for. What is `few` of many is listed at once, as the API server
    has it in memory (`resourceVersion=0`): it may be behind there, as a watch may. Pages come from etcd, where each
    one reads all objects at `path` until enough are selected.
    """

    path: str
    kind: Kind[T]
    query: Mapping[str, str] = MappingProxyType({})
    page: int = 100
    few: bool = False
    list_as: str = JSON
    watch_as: str = JSON

    async def pages(self, client: Client) -> AsyncGenerator[Page[T], None]:
        """Raises `Unavailable`, and `ExpiredError` when the API forgets the list between two pages."""
        rest, most, few = "", self.page, self.few
        while True:
            part = {"resourceVersion": "0"} if few else {"limit": str(most), **({"continue": rest} if rest else {})}
            try:
                page = await self._page(client, **self.query, **part)
            except LargeError:  # somebody has made large objects
                if most == 1:
                    raise
                few, most = False, max(1, most // 4)
                continue
            few, rest = False, page.rest
            yield page
            if not rest:
                return
            await asyncio.sleep(0)

    async def version_now(self, client: Client) -> str:
        """Of all that lies at `path`: to select one of it might take reading all."""
        return (await self._page(client, limit="1")).version

    async def _page(self, client: Client, **query: str) -> Page[T]:
        body = await client.get(self.path, accept=self.list_as, **query)
        with reading(client.where):
            return self.kind.page(body)


async def gathered(
    client: Client, what: Collection[T], begin: Callable[[], FoundT], take: Callable[[FoundT, Page[T]], None]
) -> tuple[FoundT, str]:
    """All there is, which `take` puts into what `begin` makes, page by page, and its version. Raises `Unavailable`.

    It begins again when the API forgets the list between two pages.
    """
    for _ in range(_LISTS):
        found, version = begin(), ""
        try:
            async with aclosing(what.pages(client)) as pages:
                async for page in pages:
                    version = version or page.version
                    take(found, page)
        except ExpiredError:
            await asyncio.sleep(_AGAIN)
        else:
            return found, version
    raise silent(client.where, f"it has forgotten {_LISTS} lists of {what.path} before their last page")


def is_older(version: str, other: str) -> bool:
    """Tell whether one resourceVersion is of a time before another; versions that are no numbers tell nothing.

    All that there are come from etcd's revision; the API lets clients compare them from 1.35 on.
    """
    return all(each.isdecimal() and len(each) <= _DIGITS for each in (version, other)) and int(version) < int(other)
