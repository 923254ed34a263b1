"""A Kubernetes API in memory, as a client of weft's sees it: objects by path, lists, watches, and answers that fail."""

# ruff: noqa: ARG002 - the client has more than tests need

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from weft.cluster.kube.problems import NotFoundError, silent
from weft.model.errors import Problem, Unavailable

Json = dict[str, Any]
POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"
CLUSTER = "/apis/policy.networking.k8s.io/v1beta1"


class Api:
    """What is asked for at a path that is `closed` waits. While it is `behind`, watches of pods bring nothing.

    While it is `away`, nothing is answered.
    """

    where = "https://k"

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}  # by resource, namespace, name
        self.version = 100
        self.away = False
        self.behind = False
        self.closed: set[str] = set()
        self.forbidden = ""  # a path to which the right is missing
        self.has_cluster = False
        self.watched: Counter[str] = Counter()  # that are open
        self.asked: list[str] = []
        self._history: list[tuple[int, str, Json, Json | None]] = []
        self._news = asyncio.Condition()

    async def put(self, resource: str, name: str, namespace: str = "", **fields: Any) -> None:
        self.version += 1
        meta = {"name": name, "namespace": namespace, "resourceVersion": str(self.version), "uid": f"u-{name}"}
        made = {"metadata": {**meta, **fields.pop("metadata", {})}, **fields}
        before = self.objects.get((resource, namespace, name))
        self.objects[resource, namespace, name] = made
        await self._tell(resource, made, before)

    async def delete(self, resource: str, name: str, namespace: str = "") -> None:
        self.version += 1
        gone = self.objects.pop((resource, namespace, name))
        await self._tell(resource, {**gone, "gone": True}, gone)

    async def _tell(self, resource: str, made: Json, before: Json | None) -> None:
        self._history.append((self.version, resource, made, before))
        async with self._news:
            self._news.notify_all()

    async def cut(self) -> None:
        """Break all watches; what is asked next fails."""
        self.away = True
        async with self._news:
            self._news.notify_all()

    async def get(self, path: str, *, accept: str = "", **query: str) -> bytes:
        self.asked.append(path)
        await self._answer(path)
        if path == CLUSTER:
            return b'{"resources": [{"name": "clusternetworkpolicies"}]}'
        resource, namespace, name = _parts(path)
        if name:
            if (resource, namespace, name) not in self.objects:
                raise NotFoundError(Problem(code="STORE-002", where=path, seen="not found"))
            return json.dumps(self.objects[resource, namespace, name]).encode()
        fits = _fits(resource, namespace, query.get("fieldSelector", ""))
        items = [each for (kind, *_), each in self.objects.items() if kind == resource and fits(each)]
        return json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": items}).encode()

    async def _answer(self, path: str) -> None:
        while path in self.closed:  # noqa: ASYNC110 - tests change the set
            await asyncio.sleep(0.001)
        if self.away:
            raise silent(self.where, f"it is silent, {len(self.asked)} times")
        if path == self.forbidden:
            raise Unavailable(Problem(code="API-001", where=path, seen="forbidden"))
        if path.startswith("/apis/policy.networking.k8s.io/") and not self.has_cluster:
            raise NotFoundError(Problem(code="STORE-002", where=path, seen="not found"))

    @asynccontextmanager
    async def watch(self, path: str, *, lasts: int, accept: str = "", **query: str) -> AsyncIterator["Lines"]:
        await self._answer(path)
        self.watched[path] += 1
        resource, namespace, _ = _parts(path)
        try:
            yield Lines(self, resource, _fits(resource, namespace, query.get("fieldSelector", "")), query)
        finally:
            self.watched[path] -= 1


class Lines:
    def __init__(self, api: Api, resource: str, fits: Callable[[Json], bool], query: dict[str, str]) -> None:
        self._api = api
        self._resource = resource
        self._fits = fits
        self._after = int(query["resourceVersion"])

    async def lines(self, quiet: float) -> AsyncGenerator[list[bytes], None]:
        api = self._api
        while True:
            if api.away:
                raise silent(api.where, "it is silent")
            while api.behind and self._resource == "pods":  # noqa: ASYNC110 - tests set it
                await asyncio.sleep(0.001)
            found = [each for each in api._history if each[0] > self._after]
            self._after = api.version
            lines = [line for _, *what in found for line in self._line(*what)]
            if lines:
                yield lines
            else:
                yield []
                with suppress(TimeoutError):
                    async with asyncio.timeout(quiet), api._news:
                        if api.version == self._after and not api.away:
                            await api._news.wait()

    def _line(self, resource: str, made: Json, before: Json | None) -> list[bytes]:
        if resource != self._resource:
            return []
        was = before is not None and self._fits(before)
        now = "gone" not in made and self._fits(made)
        if not (was or now):
            return []
        kind = "DELETED" if not now else "MODIFIED" if was else "ADDED"
        return [json.dumps({"type": kind, "object": made}).encode()]

    async def rest(self, seconds: float) -> None:
        """What has come has come."""


def _parts(path: str) -> tuple[str, str, str]:
    """Resource, namespace and name."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = parts[1] if parts[0] == "namespaces" and len(parts) > 2 else ""
    resource, *name = parts[2:] if namespace else parts
    return resource, namespace, "".join(name)


def _fits(resource: str, namespace: str, selector: str) -> Callable[[Json], bool]:
    node = selector.partition("spec.nodeName=")[2]

    def fits(each: Json) -> bool:
        is_there = not namespace or each["metadata"]["namespace"] == namespace
        return is_there and (not node or each["spec"].get("nodeName") == node)

    return fits
