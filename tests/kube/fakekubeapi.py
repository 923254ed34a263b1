"""An API server that fails on demand: nodes alone, over plain HTTP, in the test's own event loop.

What it answers when it does not fail is held against the real one (tests/kube/test_faults.py). Each kind of request has
a queue of faults: `fail("watch", gone(), Fault(after=0))` spoils the next two watches.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

import h11

Json = dict[str, Any]
Kind = Literal["list", "watch", "get", "patch"]
_NODES: Final = "/api/v1/nodes"
_PHRASES: Final = {404: "NotFound", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How one request fails: an answer of `status`, or an answer as usual of which only a part arrives, or none."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    in_stream: int = 0  # a watch that begins as usual and ends by an ERROR event with this code
    after: int | None = None  # bytes of the body that arrive before the connection breaks
    silent: bool = False  # nothing arrives, and the connection stays
    held: bool = False  # a watch that begins as usual and says nothing more
    seconds: float = 0.0  # the answer comes so much later


def gone(*, in_stream: bool = False) -> Fault:
    """What was asked for by its version is forgotten."""
    return Fault(in_stream=410) if in_stream else Fault(status=410)


def status(code: int, message: str = "") -> Json:
    """The API's Status object."""
    reason = _PHRASES.get(code, "Unknown")
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message or reason,
        "reason": reason,
        "code": code,
    }


class FakeApi:
    """The nodes of a cluster. A node that changes gets the next version; `rewind` restores an older state."""

    def __init__(self) -> None:
        self.version = 100
        self.requests: list[str] = []
        self.url = ""
        self._nodes: dict[str, Json] = {}
        self._history: list[tuple[int, Json]] = []
        self._changed = asyncio.Event()
        self._faults: dict[str, deque[Fault]] = {kind: deque() for kind in ("list", "watch", "get", "patch")}
        self._connections: set[asyncio.Task[None]] = set()

    def fail(self, kind: Kind, *faults: Fault) -> None:
        """Have the next requests of a kind fail, one each."""
        self._faults[kind] += faults

    def put(self, name: str, cidr: str, annotations: dict[str, str] | None = None) -> None:
        """Register a node, or change it."""
        before = self._nodes.get(name)
        meta: Json = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        said = dict(annotations or {})
        node = {"kind": "Node", "apiVersion": "v1", "metadata": {**meta, "annotations": said}}
        node["spec"] = {"podCIDR": cidr, "podCIDRs": [cidr]}
        self._store(name, node, "ADDED" if before is None else "MODIFIED")

    def delete(self, name: str) -> None:
        """Remove a node."""
        node = self._nodes.pop(name)
        self._tell("DELETED", node)

    def rewind(self, version: int) -> None:
        """Be as a store that was restored: the nodes stay as they are now, and versions go on from an older one."""
        self.version = version
        self._history.clear()
        self.drop()

    def drop(self) -> None:
        """Break all connections."""
        for connection in self._connections:
            connection.cancel()

    def _store(self, name: str, node: Json, kind: str) -> None:
        self._nodes[name] = node
        self._tell(kind, node)

    def _tell(self, kind: str, node: Json) -> None:
        self.version += 1
        node["metadata"]["resourceVersion"] = str(self.version)
        self._history.append((self.version, {"type": kind, "object": json.loads(json.dumps(node))}))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        state = h11.Connection(h11.SERVER)
        body = b""
        request: h11.Request | None = None
        try:
            while True:
                event = state.next_event()
                if event is h11.NEED_DATA:
                    state.receive_data(await reader.read(65536))
                elif isinstance(event, h11.Request):
                    request, body = event, b""
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage) and request is not None:
                    await self._answer(state, writer, request, body)
                    if state.our_state is not h11.DONE:
                        return
                    state.start_next_cycle()
                else:
                    return
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _answer(
        self, state: h11.Connection, writer: asyncio.StreamWriter, request: h11.Request, body: bytes
    ) -> None:
        method, target = request.method.decode(), request.target.decode()
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        name = url.path.removeprefix(_NODES).strip("/").partition("/")[0]
        kind: Kind = "patch" if method == "PATCH" else "get" if name else "watch" if "watch" in query else "list"
        self.requests.append(f"{method} {target}")
        fault = self._faults[kind].popleft() if self._faults[kind] else Fault()
        await asyncio.sleep(fault.seconds)
        if fault.silent:
            await asyncio.Event().wait()
        out = _Out(state, writer, fault.after)
        if fault.status:
            await out.all(fault.status, status(fault.status), fault.headers)
        elif kind == "watch":
            after = int(query["resourceVersion"])
            await self._watch(out, after, float(query["timeoutSeconds"]), fault)
        elif kind == "list":
            await out.all(200, self._list(int(query.get("limit", "0")), query.get("continue", "")))
        elif name not in self._nodes:
            await out.all(404, status(404, f'nodes "{name}" not found'))
        else:
            if method == "PATCH":
                self._patch(name, json.loads(body))
            await out.all(200, self._nodes[name])

    def _patch(self, name: str, patch: Json) -> None:
        node = json.loads(json.dumps(self._nodes[name]))
        said = node["metadata"].setdefault("annotations", {})
        for key, text in patch.get("metadata", {}).get("annotations", {}).items():
            said[key] = text
            if text is None:
                del said[key]
        if "status" in patch:
            node["status"] = patch["status"]
        if node != self._nodes[name]:
            self._store(name, node, "MODIFIED")

    def _list(self, limit: int, rest: str) -> Json:
        names = sorted(self._nodes)
        start = int(rest or 0)
        part = names[start : start + limit] if limit else names
        meta: Json = {"resourceVersion": str(self.version)}
        if start + len(part) < len(names):
            meta["continue"] = str(start + len(part))
        return {"kind": "NodeList", "apiVersion": "v1", "metadata": meta, "items": [self._nodes[each] for each in part]}

    async def _watch(self, out: "_Out", after: int, seconds: float, fault: Fault) -> None:
        await out.head(200, {"Transfer-Encoding": "chunked"})
        if fault.held:
            await asyncio.Event().wait()
        if fault.in_stream:
            await out.data(_line({"type": "ERROR", "object": status(fault.in_stream)}))
            await out.end()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    changed = self._changed
                    for version, event in [each for each in self._history if each[0] > after]:
                        await out.data(_line(event))
                        after = version
                    await changed.wait()
        await out.end()


class _Out:
    """Writes an answer, of whose body only `after` bytes arrive if that is given."""

    def __init__(self, state: h11.Connection, writer: asyncio.StreamWriter, after: int | None) -> None:
        self._state = state
        self._writer = writer
        self._left = after

    async def all(self, code: int, content: Json, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        await self.head(code, {"Content-Length": str(len(body)), **(headers or {})})
        await self.data(body)
        await self.end()

    async def head(self, code: int, headers: dict[str, str]) -> None:
        fields = [("Content-Type", "application/json"), *headers.items()]
        self._writer.write(self._state.send(h11.Response(status_code=code, headers=fields)) or b"")

    async def data(self, body: bytes) -> None:
        if self._left is not None:
            body, cut = body[: self._left], len(body) >= self._left
            self._left -= len(body)
            if cut:
                self._writer.write(self._state.send(h11.Data(data=body)) or b"")
                await self._writer.drain()
                await asyncio.sleep(0.01)  # what was written leaves before the connection does
                raise ConnectionResetError
        self._writer.write(self._state.send(h11.Data(data=body)) or b"")
        await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(self._state.send(h11.EndOfMessage()) or b"")
        await self._writer.drain()


def _line(event: Json) -> bytes:
    return json.dumps(event).encode() + b"\n"


@asynccontextmanager
async def running() -> AsyncIterator[FakeApi]:
    """One that serves while the block runs."""
    fake = FakeApi()
    server = await asyncio.start_server(fake._serve, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()
        fake.drop()
        await asyncio.sleep(0.01)
