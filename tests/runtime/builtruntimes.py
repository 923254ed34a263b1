"""Container runtimes that Debian has not, which scripts/runtimes.sh builds."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

BUILD: Final = Path(__file__).parents[2] / "scripts" / "runtimes.sh"
_NO_GO: Final = 4


@cache
def _built() -> tuple[int, str, str]:
    done = subprocess.run([BUILD, "--built"], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def folder(name: str) -> Path:
    """Where a runtime's programs are. Skips where it cannot be built, fails where it is not yet."""
    code, folder, words = _built()
    if code == _NO_GO:
        pytest.skip(words)
    assert code == 0, words
    return Path(folder, name)
