"""From the moment somebody flushes our masquerade rules until they are back."""

import time

from benchmarks.figures import Figure
from benchmarks.world import World, until

ROUNDS = 5
REST = 3.5  # longer than the fuse waits between repairs of one object
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
            samples = []
            for _ in range(ROUNDS):
                time.sleep(REST)
                start = time.perf_counter()
                world.netns.run(flush)
                samples.append((until(lambda: "masq" in world.netns.run(show), name) - start) * 1e3)  # noqa: B023
        what = f"masquerade rules flushed, {name}, until back"
        figures.append(Figure(what=what, unit="ms", ours=samples, target=100, upstream="up to 5 s"))
    return figures
