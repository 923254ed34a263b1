"""Reads from a cluster, once, what policies are judged by: everything, or only what a question about two ends needs.

A question needs its pods, their namespaces and the policies of these; of an address, the pod or Service that has it.
What may not be read is an error, because an answer without it would be wrong.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, TypeVar

from weft.cluster.kube.access import Access
from weft.cluster.kube.client import Client
from weft.cluster.kube.clusterpolicies import served
from weft.cluster.kube.collection import Collection, gathered
from weft.cluster.kube.problems import NotFoundError, reading
from weft.desired.policy.preview import world_of
from weft.desired.policy.question import Name, Question
from weft.desired.policy.verdict import World
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.net import Ip
from weft.model.policy import Namespace, Pod, Service, Thing
from weft.model.value import replace
from weft.wire import kubepolicy
from weft.wire.kubelist import Kind
from weft.wire.kubepolicy import PolicyText
from weft.wire.policy import Unreadable

T = TypeVar("T")

_API: Final = "/api/v1"
_NETWORKING: Final = "/apis/networking.k8s.io/v1"
_MANY: Final = 500  # a page, of which there may be hundreds


async def read_once(access: Access, asked: Question | None = None) -> tuple[World, list[Problem]]:
    """Everything, or what the question needs, and the problems. Raises what a `ClusterReader` does."""
    client = Client(access)
    try:
        cluster = ClusterReader(client)
        world = await (cluster.everything() if asked is None else cluster.about(asked))
    finally:
        client.close()
    return world, cluster.problems


class ClusterReader:
    """`problems` are those of policies that it has read and that cannot be enforced as written.

    Its methods raise `Unavailable`.
    """

    def __init__(self, client: Client) -> None:
        self.problems: list[Problem] = []
        self._client = client
        self._pods: dict[str, Pod] = {}
        self._services: dict[str, Service] = {}

    async def everything(self) -> World:
        self._take(await self._list(kubepolicy.PODS, f"{_API}/pods", page=_MANY))
        namespaces = await self._list(kubepolicy.NAMESPACES, f"{_API}/namespaces")
        return await self._world([*namespaces, *await self._policies(f"{_NETWORKING}/networkpolicies")])

    async def about(self, asked: Question) -> World:
        """Raises `ConfigError` where there is no such pod or Service."""
        for each in (asked.source, asked.target):
            if isinstance(each, Name):
                await self._find(each)
            elif each is not None:
                await self._find_at(each, services=each is asked.target)
        things = list[Thing]()
        for name in sorted({each.namespace for each in self._pods.values()}):
            things.append(await self._namespace(name))
            things += await self._policies(f"{_NETWORKING}/namespaces/{name}/networkpolicies")
        return await self._world(things)

    async def _world(self, things: Iterable[Thing]) -> World:
        cluster = await served(self._client)
        more = () if cluster is None else await self._policies(cluster.path, cluster.kind)
        return replace(world_of([*self._pods.values(), *things, *more]), services=tuple(self._services.values()))

    async def _find(self, wanted: Name) -> None:
        """The pod of that name, else the Service."""
        namespace, name = wanted.namespace, wanted.name
        try:
            if not wanted.is_service:
                with suppress(NotFoundError):
                    self._take([await self._get(kubepolicy.PODS, kubepolicy.path_of("pods", namespace, name))])
                    return
            service = await self._get(kubepolicy.SERVICES, kubepolicy.path_of("services", namespace, name))
            await self._take_service(service)
        except NotFoundError:
            hint = f"See `kubectl get pods,services -n {namespace}`"
            problem = Problem(code="FLAG-001", where=str(wanted), seen="the API has no such pod or Service", hint=hint)
            raise ConfigError(problem) from None
        except Unreadable as error:
            raise ConfigError(error.problem) from None

    async def _find_at(self, ip: Ip, *, services: bool) -> None:
        """The pod or Service that has the address.

        The API finds a pod by one of its two addresses only, so all pods may have to be read.
        """
        path = f"{_API}/pods"
        found = await self._list(kubepolicy.PODS, path, fieldSelector=f"status.podIP={ip}")
        if not found and services:
            for service in await self._list(kubepolicy.SERVICES, f"{_API}/services", page=_MANY):
                if ip in service.ips:
                    await self._take_service(service)
                    return
        self._take(found or [pod for pod in await self._list(kubepolicy.PODS, path, page=_MANY) if ip in pod.ips])

    async def _take_service(self, service: Service) -> None:
        self._services[str(service)] = service
        if service.selector:
            labels = ",".join(f"{key}={value}" for key, value in service.selector.items())
            path = f"{_API}/namespaces/{service.namespace}/pods"
            self._take(await self._list(kubepolicy.PODS, path, labelSelector=labels))

    def _take(self, pods: Iterable[Pod]) -> None:
        self._pods.update((str(pod), pod) for pod in pods)

    async def _namespace(self, name: str) -> Namespace:
        """By the right that there is: users may `get` namespaces of theirs, weftd may `list` them."""
        path = f"{_API}/namespaces"
        try:
            return await self._get(kubepolicy.NAMESPACES, f"{path}/{name}")
        except Unavailable as error:
            if error.problems[0].code != "API-001":
                raise
            with suppress(Unavailable):
                [found] = await self._list(kubepolicy.NAMESPACES, path, fieldSelector=f"metadata.name={name}")
                return found
            raise

    async def _policies(self, path: str, kind: Kind[PolicyText] = kubepolicy.POLICIES) -> list[Thing]:
        found = list[Thing]()
        for text in await self._list(kind, path):
            try:
                policy, problems = kubepolicy.policy_of(text)
            except Unreadable as error:
                self.problems.append(error.problem)
            else:
                found.append(policy)
                self.problems += problems
        return found

    async def _get(self, kind: Kind[T], path: str) -> T:
        body = await self._client.get(path)
        with reading(self._client.where):
            return kind.one(body)

    async def _list(self, kind: Kind[T], path: str, *, page: int = 100, **query: str) -> list[T]:
        what = Collection(path=path, kind=kind, query=query, page=page)
        found, _ = await gathered(self._client, what, list[T], lambda found, page: found.extend(page.items))
        return found
