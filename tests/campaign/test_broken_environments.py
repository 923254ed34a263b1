"""What a node stands on breaks, in seeded order: weftd lives, tells the truth, and all is as before afterwards.

The seed is printed and another one each time; set WEFT_SEED to repeat a run. With WEFT_TROUBLE set to a trouble's name,
that one alone is played, three times.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.campaign.brokenworld import KINDS, Kind, Trouble, Usage, World, play, worlds
from tests.campaign.troubles import TROUBLES
from weft.cni import build
from weft.cni.install.executables import install

A_WORLD = 12  # troubles that one world goes through before another one is made
REPEATS = 3  # of a trouble that is played alone


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


@pytest.fixture
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("b")  # short: a socket's path has room for 103 bytes
    return (place / str(number) for number in range(1_000_000))


def campaign(folders: Iterator[Path], bin_dir: Path, seconds: float) -> None:
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    only = os.environ.get("WEFT_TROUBLE", "")
    print(f"WEFT_SEED={seed}")
    chance = random.Random(seed)
    played: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    waiting: list[str] = []
    while time.monotonic() < deadline and played[only] < REPEATS:
        waiting = waiting or ([only] * REPEATS if only else chance.sample(sorted(TROUBLES), len(TROUBLES)))
        kind = chance.choice([kind for kind in KINDS if TROUBLES[waiting[-1]].fits(kind)])
        with worlds(kind, next(folders), bin_dir, chance) as world:
            for name in [name for name in reversed(waiting) if TROUBLES[name].fits(kind)][:A_WORLD]:
                print(f"{' '.join(kind)}: {name}", flush=True)
                waiting.remove(name)
                play(world, TROUBLES, name)
                played[name] += 1
                if time.monotonic() > deadline:
                    break
    print(f"{played.total()} troubles, {len(played)} of {len(TROUBLES)} kinds")


@pytest.mark.timeout(600)
def test_a_node_outlives_what_breaks_around_it(folders: Iterator[Path], bin_dir: Path):
    campaign(folders, bin_dir, 45)  # some twenty of them, others each time


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
def test_a_node_outlives_an_hour_of_troubles(folders: Iterator[Path], bin_dir: Path):
    campaign(folders, bin_dir, 3600)


@contextmanager
def nothing(world: World) -> Iterator[None]:
    yield


def test_each_violation_is_found(folders: Iterator[Path], bin_dir: Path, monkeypatch: pytest.MonkeyPatch):
    """What a trouble may not do is planted; each is found by its own check, and all is well in between."""
    quiet = Trouble(lasts=nothing)
    with worlds(Kind("etcd", "vxlan"), next(folders), bin_dir, random.Random(1)) as world:
        play(world, {"nothing": quiet}, "nothing")
        world.patience = 0.2
        with pytest.raises(AssertionError, match="does not say NEVER-001"):
            world.check_during("silent", Trouble(lasts=nothing, says="NEVER-001"))
        switch = world.underlay.switch
        hook = "type filter hook forward priority 0; policy drop;"
        switch.run(f"nft add table bridge wall; nft 'add chain bridge wall f {{ {hook} }}'")
        with pytest.raises(AssertionError, match="packets do not flow"):
            world.check_during("a wall", Trouble(lasts=nothing, answers=False))
        with pytest.raises(AssertionError, match="readiness does not tell the truth"):
            world.check_during("a lie", Trouble(lasts=nothing, flows=False))
        switch.run("nft delete table bridge wall")
        world.one.netns.run("ip route add 10.5.77.0/24 dev eth0")
        with pytest.raises(AssertionError, match="not as before"):
            world.check_after("a route too many")
        world.one.netns.run("ip route del 10.5.77.0/24")
        with monkeypatch.context() as planted:
            planted.setattr(world, "normal", Usage(resident=1, descriptors=1000, threads=1000))
            with pytest.raises(AssertionError, match="resident"):
                world.check_after("too large")
        world.patience = 30.0
        play(world, {"nothing": quiet}, "nothing")
        world.one.kill()
        with pytest.raises(AssertionError, match="health answers"):
            world.check_during("an end", quiet)
