#!/usr/bin/env python3
"""Cuts a version: `scripts/changelog.py cut 0.2.0 2026-12-01`; `… section 0.2.0` prints what it brought.

`… tag v0.2.0` fails unless that version was cut: what an index has once taken cannot be taken back.

To cut is to give the top section of CHANGELOG.md the version's name, and to say the version in each file that has it.
It needs Python alone, since the workflow of a release runs it without an environment.
"""

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CHANGELOG: Final = ROOT / "CHANGELOG.md"
_TOP: Final = "## Unreleased\n"
# Without candidates: dpkg takes 1.2.0rc1 for newer than 1.2.0, and helm for no version.
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")
# Each file that says the version, and what stands before it there.
PLACES: Final = {
    "src/weft/__init__.py": r'__version__ = "',
    "lab/pyproject.toml": r'"weft-cni==',
    "deploy/chart/Chart.yaml": r"^(?:version|appVersion): ",
    "deploy/Containerfile": r"localhost/weft:",
    "deploy/kubernetes.yaml": r"localhost/weft:",
    "deploy/handback.yaml": r"localhost/weft:",
    "deploy/kustomize/base/kubernetes.yaml": r"localhost/weft:",
}


def versions() -> set[str]:
    """All versions that the files say: one, if they agree."""
    return {
        found[1] for name, before in PLACES.items() for found in _places(before).finditer((ROOT / name).read_text())
    }


def section(text: str, version: str) -> str:
    """What stands below a version's heading. Raises `ValueError`."""
    found = re.search(rf"^## {re.escape(version)} [^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"CHANGELOG.md: there is no section {version!r}; scripts/changelog.py cut makes one")
    return found[1].strip() + "\n"


def cut(text: str, version: str, date: str) -> str:
    """Give the top section a version's name. Raises `ValueError`."""
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is no version: expected as 1.2.0")
    if re.search(rf"^## {re.escape(version)} ", text, re.MULTILINE):
        raise ValueError(f"CHANGELOG.md: has a section {version!r} already")
    before, found, after = text.partition(_TOP)
    if not found or not re.match(r"\s*### ", after):
        raise ValueError("CHANGELOG.md: nothing stands below Unreleased: there is nothing to release")
    return f"{before}{_TOP}\n## {version} – {date}\n{after}"


def check_tag(tag: str, text: str) -> None:
    """Raise `ValueError` unless a tag, the files and a section of the changelog say one version."""
    if {tag} != {f"v{version}" for version in versions()}:
        said = ", ".join(sorted(versions()))
        raise ValueError(
            f"tag {tag}: the files say {said}. Cut the version first (scripts/changelog.py cut), then tag it"
        )
    section(text, tag.removeprefix("v"))


def _places(before: str) -> re.Pattern[str]:
    return re.compile(rf"{before}({_VERSION.pattern})", re.MULTILINE)


def _say(version: str) -> None:
    for name, before in PLACES.items():
        path = ROOT / name
        path.write_text(_places(before).sub(lambda found: found[0].removesuffix(found[1]) + version, path.read_text()))


def main(arguments: list[str]) -> None:
    match arguments:
        case ["section", version]:
            print(section(CHANGELOG.read_text(), version), end="")
        case ["tag", tag]:
            check_tag(tag, CHANGELOG.read_text())
        case ["cut", version, date]:
            CHANGELOG.write_text(cut(CHANGELOG.read_text(), version, date))
            _say(version)
        case _:
            raise ValueError("expected: section VERSION, tag TAG, or cut VERSION DATE")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ValueError as error:
        sys.exit(str(error))
