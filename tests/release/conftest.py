"""The release that `scripts/release.sh` has made, in the folder that WEFT_RELEASE names: scripts/release-check.sh."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.netns import make_netns
from weft import __version__

__all__ = ["make_netns"]

MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine, of elf.h
PROGRAMS = ("cni/bin/weft-cni", "cni/bin/weft-launch", "cni/bin/weft-init", "forward/bin/weft-relay")


@pytest.fixture
def found(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Call it with what a test has found: `pytest -v` says it beside the test's name."""
    return lambda words: record_property("found", words)


def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    if not isinstance(report, pytest.TestReport) or not report.passed or report.when != "call":
        return None
    return "passed", ".", f"PASSED {dict(report.user_properties).get('found', '')}".strip()


@pytest.fixture(scope="session")
def release() -> Path:
    folder = os.environ.get("WEFT_RELEASE")
    if folder is None:
        pytest.fail("WEFT_RELEASE names no folder that scripts/release.sh has filled: make release-check does it all")
    return Path(folder)


@pytest.fixture(scope="session")
def wheel(release: Path) -> Callable[[str], Path]:
    """The node part's wheel for a kind of machine."""

    def found(machine: str) -> Path:
        [path] = release.glob(f"weft_cni-{__version__}-*_{machine}.whl")
        return path

    return found


@pytest.fixture(scope="session")
def programs(wheel: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the package of arm64's wheel, as installed."""
    folder = tmp_path_factory.mktemp("aarch64")
    with zipfile.ZipFile(wheel("aarch64")) as file:
        file.extractall(folder)
    for name in PROGRAMS:
        (folder / "weft" / name).chmod(0o755)
    return folder / "weft"
