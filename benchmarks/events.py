"""From a lease's put to its route in the kernel, with few and with many peers: it must not grow with them.

The clock starts before the put is sent, so that the store's own time is part of it: the put's round trip is the
floor.
"""

import json
import socket
import time

from benchmarks.figures import Figure, p95
from benchmarks.notices import INET, NO_ROUTE, ROUTE, Notices
from benchmarks.world import Peer, World, b64

EVENTS = 200
PAUSE = 0.01  # between events: each meets a loop at rest
SPARE = 30_000  # numbers no other peer has
_ROOM = 1 << 16


def measure() -> list[Figure]:
    figures = []
    for peers, upstream in ((10, ("1.2 ms", "2–2.5 ms")), (5000, ("1.4 ms", "2–2.5 ms"))):
        ours, puts = events(peers)
        shared = {"unit": "ms", "peer": "etcd put", "theirs": puts}
        figures += [
            Figure(
                what=f"lease put to route, {peers} peers",
                ours=ours,
                target=2.2,
                floor=puts,
                upstream=upstream[0],
                **shared,
            ),
            Figure(
                what=f"the same, p95, {peers} peers",
                ours=[p95(ours)],
                target=5,
                floor=[p95(puts)],
                upstream=upstream[1],
                unit="ms",
            ),
        ]
    return figures


def events(peers: int) -> tuple[list[float], list[float]]:
    """Milliseconds from put to route, and of the put alone."""
    with World(peers=peers) as world, Notices(world.netns) as notices:
        world.weftd()
        world.ready()
        time.sleep(1)
        measured = world.netns.call(lambda: _events(notices))
        late = Peer(SPARE + EVENTS)
        notices.reset()
        world.control(
            "lease put to route",
            lambda: world.put({late.key: late.value}),
            lambda seconds: notices.wait({(ROUTE, INET): 1}, seconds=seconds),
        )
        return measured


def _events(notices: Notices) -> tuple[list[float], list[float]]:
    ours, puts = [], []
    with socket.create_connection(("127.0.0.1", 2379), timeout=10) as store:
        store.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(EVENTS):
            peer = Peer(SPARE + index)
            put = _request("/v3/kv/put", {"key": b64(peer.key), "value": b64(peer.value)})
            notices.reset()
            start = time.perf_counter()
            store.sendall(put)
            answer = store.recv(_ROOM)
            puts.append((time.perf_counter() - start) * 1e3)
            ours.append((notices.wait({(ROUTE, INET): 1}) - start) * 1e3)
            _check(answer)
            time.sleep(PAUSE)
            notices.reset()
            store.sendall(_request("/v3/kv/deleterange", {"key": b64(peer.key)}))
            _check(store.recv(_ROOM))
            notices.wait({(NO_ROUTE, INET): 1})
            time.sleep(PAUSE)
    return ours, puts


def _request(path: str, body: dict[str, str]) -> bytes:
    """A request to etcd's JSON gateway, ready before the clock starts."""
    content = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: etcd\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(content), content)


def _check(answer: bytes) -> None:
    """Make sure that it is one whole answer: after the clock was read, for which the interpreter must be free."""
    head, _, content = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200") or b"content-length: %d" % len(content) not in head.lower():
        raise RuntimeError(f"etcd answers {answer!r}")
