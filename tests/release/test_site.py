"""The docs as a site: strict, each link and anchor there, nothing from elsewhere, and a search that needs no server."""

import subprocess
from pathlib import Path

from tests.support.checkout import CHECKOUT
from weft import __version__


def test_the_site_is_built_without_fault(tmp_path: Path):
    command = [f"{CHECKOUT}/.venv-release/bin/python", "-m", "scripts.site", str(tmp_path / "site"), __version__]
    built = subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=False, text=True, timeout=600)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "upgrade" in (tmp_path / "site" / "searchindex.js").read_text()
    assert (tmp_path / "site" / "howto" / "upgrade.html").is_file()
