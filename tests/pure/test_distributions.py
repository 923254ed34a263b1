"""The two distributions of one tree, by their pyproject.toml, agree."""

import tomllib
from pathlib import Path
from typing import Any

from scripts.figures import WORKSHOP
from weft import __version__

ROOT = Path(__file__).parents[2]


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text())


NODE, LAB = read("pyproject.toml"), read("lab/pyproject.toml")


def test_the_lab_needs_weft_of_its_own_version():
    assert f"weft-cni=={__version__}" in LAB["project"]["dependencies"]


def test_what_one_leaves_out_the_other_has():
    left_out, taken = (each["tool"]["setuptools"]["packages"]["find"] for each in (NODE, LAB))
    assert left_out["exclude"] == taken["include"] == [f"weft.{name}*" for name in WORKSHOP]


def test_what_only_the_lab_needs_is_locked_for_tests():
    needs = {each for each in LAB["project"]["dependencies"] if not each.startswith("weft-cni==")}
    assert needs <= set(NODE["dependency-groups"]["dev"])
    assert not needs & set(NODE["project"]["dependencies"])
