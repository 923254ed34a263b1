"""Random histories of a mesh: row S5 of the specification. What breaks is said with a command that plays it again."""

import os
import subprocess
import sys

import pytest

from tests.support.mesh.play import failing

pytestmark = pytest.mark.long

DETERMINED = """
from tests.support.mesh.play import play
print([(made.world.now, made.world.ops) for made in (play(seed, 2000) for seed in range(5))])
"""


@pytest.mark.parametrize("seed", range(200))
def test_s5_no_history_breaks_a_rule(seed):
    told = failing(seed, 5000)
    assert told is None, told


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_s5_no_long_history_breaks_a_rule(seed):
    told = failing(seed, 100_000)
    assert told is None, told


def test_the_same_calls_have_the_same_effects_whatever_the_order_of_sets():
    def played(order: str) -> str:
        environ = os.environ | {"PYTHONHASHSEED": order, "PYTHONPATH": "."}
        command = [sys.executable, "-c", DETERMINED]
        return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout

    assert played("1") == played("2")
