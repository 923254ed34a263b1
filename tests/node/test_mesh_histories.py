"""Pods come and go on a mesh of real daemons that are cut off, killed and lost: done-when 4 of the mesh.

A seed is a history: `WEFT_SEED=7 pytest …::test_a_history` plays it again.
"""

import os
import random
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from tests.node.meshhistory import History, Life, shared
from tests.node.meshnode import created
from tests.node.plugincalls import Runtime
from tests.support.weftd import Cluster
from weft.cni import build
from weft.cni.install.executables import install

FAULTS = ("partition", "silence", "one_way", "kills", "lost")


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    return install(tmp_path_factory.mktemp("bin")).bin_dir


def played(cluster: Cluster, folder: Path, bin_dir: Path, faults: list[str], seed: object) -> History:
    nodes = created(cluster, 1, 2, 3, 4, peers=(1, 2))
    runtimes = [Runtime(node, folder / node.name / "runtime", bin_dir) for node in nodes]
    history = History(nodes, runtimes, seed)
    history.play(faults)
    return history


def drawn(seed: object, length: int) -> Iterator[str]:
    """All faults once, and then any."""
    chance = random.Random(f"faults {seed}")
    yield from chance.sample(FAULTS, len(FAULTS))
    yield from chance.choices(FAULTS, k=length - len(FAULTS))


def test_a_history(cluster: Cluster, tmp_path: Path, bin_dir: Path):
    seed = os.environ.get("WEFT_SEED", "1")
    history = played(cluster, tmp_path, bin_dir, list(drawn(seed, len(FAULTS))), seed)
    assert not shared(history.lives), history.told
    assert len(history.lives) > 20, "clients had their turns"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
def test_long_histories(cluster: Cluster, tmp_path: Path, bin_dir: Path, seed: int):
    history = played(cluster, tmp_path, bin_dir, list(drawn(seed, 30)), seed)
    assert not shared(history.lives), history.told


def test_an_address_that_two_pods_have_at_once_is_seen():
    lives = [
        Life("10.0.0.2", "a", 1.0, 2.0),
        Life("10.0.0.2", "b", 2.0, 9.0),
        Life("10.0.0.3", "c", 0.0, inf),
        Life("10.0.0.2", "d", 9.5),
    ]
    assert not shared(lives)
    assert shared([*lives, Life("10.0.0.2", "e", 5.0, 6.0), Life("10.0.0.3", "f", 4.0)]) == [
        "10.0.0.3 was c's and f's",
        "10.0.0.2 was b's and e's",
    ]
