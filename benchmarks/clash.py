"""5,000 leases that clash: a start beside one with as many honest leases, and the health server's answers meanwhile.

All publish one address, so one is believed and each of the others is refused because of it.
"""

import http.client
import threading
import time

from benchmarks.figures import Figure
from benchmarks.world import World

ROUNDS = 3
PEERS = 5000
_PORT = 8081


def measure() -> list[Figure]:
    clean, clashing, slowest = [], [], []
    for _ in range(ROUNDS):  # in turns, so that both see the machine as it is
        clean.append(start(clash=False)[0])
        seconds, answer = start(clash=True)
        clashing.append(seconds)
        slowest.append(answer * 1000)
    return [
        Figure(
            what=f"exec to subnet.env, {PEERS} leases that clash",
            unit="s",
            ours=clashing,
            ratio=1.5,
            peer="without a clash",
            theirs=clean,
        ),
        Figure(what="slowest health answer while they come and the oldest goes", unit="ms", ours=slowest, target=100),
    ]


def start(*, clash: bool) -> tuple[float, float]:
    """Seconds from exec to subnet.env, and the slowest answer of the health server until a while after."""
    with World(peers=PEERS) as world:
        if clash:
            for peer in world.peers:
                peer.public = world.peers[0].public
            world.put({peer.key: peer.value for peer in world.peers})
        begin = time.perf_counter()
        world.weftd(f"--healthz-port={_PORT}")
        answers: list[float] = []
        over = threading.Event()
        asking = threading.Thread(target=world.netns.call, args=(lambda: _ask(over, answers),))
        asking.start()
        try:
            seconds = world.ready() - begin
            world.delete(world.peers[0].key)
            time.sleep(1.0)
        finally:
            over.set()
            asking.join()
        return seconds, max(answers)


def _ask(over: threading.Event, answers: list[float]) -> None:
    """Ask again and again; what is not there yet does not count."""
    while not over.wait(0.002):
        connection = http.client.HTTPConnection("127.0.0.1", _PORT, timeout=10)
        begin = time.perf_counter()
        try:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        except OSError:
            continue
        finally:
            connection.close()
        answers.append(time.perf_counter() - begin)
