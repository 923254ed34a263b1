"""The commands of README and tutorial work as printed: each block marked `console`, in order, in one lab."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PAGES = ("README.md", "docs/tutorial/first-lab.md", "docs/howto/call-a-plugin.md")
OURS = ("make ",)  # `make demo` is CI's own job, and `make test` is what runs this


def commands(page: str) -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if not line.startswith(OURS)]


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shell("weft lab down", tmp_path)  # when a command failed, the page's own `down` was not reached


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_as_printed(page, folder):
    assert commands(page)
    for command in commands(page):
        ran = shell(command, folder)
        assert ran.returncode == 0, f"$ {command}\n{ran.stdout}{ran.stderr}"
