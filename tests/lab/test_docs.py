"""The commands of README and tutorial work as printed: each block marked `console`, in order, in one lab."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.lab import SECONDS

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TUTORIAL = "docs/tutorial/first-lab.md"
BY_HAND = "docs/tutorial/build-a-pod-network.md"  # its lessons are followed in test_lab_tutorial.py
PAGES = (
    *("README.md", TUTORIAL, BY_HAND, "docs/howto/call-a-plugin.md", "docs/howto/check-everything.md"),
    *("docs/howto/find-what-is-wrong.md", "docs/howto/services-in-a-lab.md"),
    "docs/howto/change-a-lab.md",
    "docs/howto/look-at-a-lab.md",
    "docs/howto/quiz.md",
    "docs/howto/second-network.md",
    "docs/howto/work-in-a-lab.md",
)
OURS = ("make ",)  # `make demo` is CI's own job, and `make test` is what runs this


def commands(page: str) -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if not line.startswith(OURS)]


class Place(NamedTuple):
    """A folder, and a process whose mount namespace has a `/run` of its own: somebody's labs are not seen there."""

    folder: Path
    process: int


def shell(command: str, place: Place) -> subprocess.CompletedProcess[str]:
    folder, process = place
    return subprocess.run(
        ["nsenter", f"--mount=/proc/{process}/ns/mnt", f"--wdns={folder}", "bash", "-c", command],
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    held = ["unshare", "--mount", "sh", "-ec", "mount -t tmpfs -o mode=755 tmpfs /run; echo; exec sleep 1000"]
    with subprocess.Popen(held, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        place = Place(tmp_path, process.pid)
        try:
            yield place
        finally:
            shell("weft lab down", place)  # when a command failed, the page's own `down` was not reached
            process.kill()


def follow(page: str, place: Place) -> dict[str, str]:
    """Run a page's commands and return what each printed."""
    said = {}
    for command in commands(page):
        ran = shell(command, place)
        assert ran.returncode == 0, f"$ {command}\n{ran.stdout}{ran.stderr}"
        said[command] = ran.stdout
    return said


@pytest.mark.every
@pytest.mark.parametrize("page", [page for page in PAGES if page != TUTORIAL])
def test_the_commands_of_a_page_work_as_printed(page, place):
    assert follow(page, place)


def test_the_commands_of_the_tutorial_work_and_its_capture_shows_the_pods_packet(place):
    [listed] = [text for command, text in follow(TUTORIAL, place).items() if command.startswith("tcpdump")]
    assert "VXLAN, flags [I] (0x08), vni 1\n" in listed
    assert "ICMP echo request" in listed
