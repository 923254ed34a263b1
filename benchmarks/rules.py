"""From the moment somebody flushes our masquerade rules until they are back."""

import time

from benchmarks.figures import Figure
from benchmarks.world import World, until

ROUNDS = 5
REST = 3.5  # longer than the backoff waits between repairs of one object
LONGEST = 60.0
CASES = (
    ("nft", "nft flush chain ip flannel-ipv4 postrtg", "nft list chain ip flannel-ipv4 postrtg"),
    ("iptables-nft", "iptables -w -t nat -F FLANNEL-POSTRTG", "iptables -w -t nat -S FLANNEL-POSTRTG"),
)


def measure() -> list[Figure]:
    figures = []
    for name, flush, show in CASES:
        with World(peers=10, nft=name == "nft") as world:
            world.weftd("--ip-masq")
            world.ready()
            samples = _rounds(world, flush, show)
        what = f"masquerade rules flushed, {name}, until back"
        figures.append(Figure(what=what, unit="ms", ours=samples, target=100, upstream="up to 5 s"))
    return figures


def _rounds(world: World, flush: str, show: str) -> list[float]:
    whole = world.netns.run(show)

    def back(seconds: float) -> float:
        return until(lambda: world.netns.run(show) == whole, show, seconds=seconds)

    samples = []
    for _ in range(ROUNDS):
        time.sleep(REST)
        start = time.perf_counter()
        world.netns.run(flush)
        samples.append((back(LONGEST) - start) * 1e3)
    time.sleep(REST)
    world.control(flush, lambda: world.netns.run(flush), back)
    return samples
