"""The workflows of GitHub, judged by the tools that are made for it; what they must hold without tools: tests/pure."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT

BIN = CHECKOUT / ".venv-release" / "bin"
OPTIONS = {"actionlint": [], "zizmor": ["--offline", "--no-progress", ".github"]}
BAD = {
    "actionlint": ("runs-on: ubuntu-24.04", "runs-on: ubuntu-24.04\n    neds: build"),
    "zizmor": (r"checkout@[0-9a-f]{40}", "checkout@main"),
}


def judge(tool: str, tree: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(BIN / tool), *OPTIONS[tool]]
    return subprocess.run(command, cwd=tree, capture_output=True, check=False, text=True, timeout=200)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with the workflows alone."""
    shutil.copytree(CHECKOUT / ".github", tmp_path / ".github")
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.mark.parametrize("tool", BAD)
def test_the_workflows_are_without_fault(tree: Path, tool: str):
    said = judge(tool, tree)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("tool", BAD)
def test_a_fault_would_be_found(tree: Path, tool: str):
    path = tree / ".github" / "workflows" / "ci.yml"
    path.write_text(re.sub(*BAD[tool], path.read_text()))
    assert judge(tool, tree).returncode != 0
