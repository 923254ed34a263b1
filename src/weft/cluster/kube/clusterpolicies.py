"""ClusterNetworkPolicies, whose kind somebody may install later.

Discovery, which every account may ask, says whether the kind exists; it is asked once a minute. An API server that has
not read its own kinds yet does not answer 404 (Kubernetes 1.23).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, NoReturn

from weft.cluster.kube.client import Client
from weft.cluster.kube.collection import Collection
from weft.cluster.kube.mirror import Mirror
from weft.cluster.kube.problems import NotFoundError, reading
from weft.cluster.pace import Pace
from weft.model.errors import Unavailable
from weft.model.policy import Id
from weft.wire import kubepolicy
from weft.wire.kubepolicy import PolicyText

_GROUP: Final = "/apis/policy.networking.k8s.io"
_NAME: Final = "clusternetworkpolicies"
_VERSIONS: Final = ("v1beta1", "v1alpha2")  # with the same schema
_LOOK_SECONDS: Final = 60.0


class ClusterPolicies(Mirror[PolicyText]):
    """Empty while the API has no such kind."""

    def __init__(self, client: Client, touched: Callable[[Iterable[Id]], None], pace: Pace) -> None:
        super().__init__(client, _collection(_VERSIONS[0]), touched)
        self._pace = pace

    async def run(self, follow: Callable[[Mirror[PolicyText]], Coroutine[Any, Any, NoReturn]]) -> NoReturn:
        while True:
            try:
                what = await served(self._client)
            except Unavailable as error:
                await self.lost(error)
                await self._pace.wait()
                continue
            self._pace.answered()
            if what is not None:
                self.what = what
                with suppress(NotFoundError):  # the kind was removed, after its objects
                    await follow(self)
            else:
                self._set({})
            await asyncio.sleep(_LOOK_SECONDS)

    async def lost(self, error: Unavailable) -> None:
        if isinstance(error, NotFoundError):
            raise error
        await super().lost(error)


async def served(client: Client) -> Collection[PolicyText] | None:
    """The collection of the newest version that the API serves; None without the kind. Raises `Unavailable`."""
    for version in _VERSIONS:
        with suppress(NotFoundError):
            body = await client.get(f"{_GROUP}/{version}")
            with reading(client.where):
                if kubepolicy.has_resource(body, _NAME):
                    return _collection(version)
    return None


def _collection(version: str) -> Collection[PolicyText]:
    return Collection(path=f"{_GROUP}/{version}/{_NAME}", kind=kubepolicy.CLUSTER_POLICIES)
